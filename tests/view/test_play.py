"""`trot play` without a browser: the world and its loop, by numbers worked out by hand; the arrows, by differences."""

import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from living_rail import rail
from made_run import make_agent, make_run
from slider_task import HighBox, LowBox, Rail

from trot.cli import main
from trot.envs.env import Env
from trot.envs.registry import make_env
from trot.learn.play import nothing_acts
from trot.sim.state import State
from trot.view.browser.nodes import RobotScene
from trot.view.browser.page import quiet_server
from trot.view.browser.page_guard import Guard
from trot.view.browser.page_layout import phone_camera
from trot.view.play.changed_robot import Factors, changed_model
from trot.view.play.inertia import Inertia
from trot.view.play.living import Living
from trot.view.play.play_command import find_player, play_command
from trot.view.play.play_controls import PlayControls
from trot.view.play.player import between, usual_box
from trot.view.play.push_gains import push_gains
from trot.view.play.pushes import Pull, pull_jump, push_jump


def test_a_step_a_push_and_a_reset_by_hand():
    living = rail()
    living.kind = "policy"
    # 1 N on 2 kg for 0.1 s: 0.05 m/s, and with that 0.005 m.
    living.step()
    np.testing.assert_allclose([*living.joint_q, *living.joint_qd], [0.005, 0.05], rtol=1e-6)
    assert living.episode.terms == pytest.approx({"place": 0.005, "motion": 0.5})
    # A push of 3 m/s is 6 N s on 2 kg, at once.
    living.push("forward", 3.0)
    np.testing.assert_allclose(living.joint_qd, 3.05, rtol=1e-6)
    living.push("back", 1.0)
    np.testing.assert_allclose(living.joint_qd, 2.05, rtol=1e-6)
    living.kind = "zero"
    living.step()
    np.testing.assert_allclose([*living.joint_q, *living.joint_qd], [0.21, 2.05], rtol=1e-6)
    assert living.episode.total == pytest.approx(0.505 + 0.21 + 20.5)
    assert [moment.seconds for moment in living.history] == pytest.approx([0.1, 0.2])
    living.reset()
    np.testing.assert_allclose([*living.joint_q, *living.joint_qd], 0)
    assert living.ended.how == "was reset" and living.ended.total == pytest.approx(21.215)
    assert (living.episode.steps, living.episodes, living.steps) == (0, 2, 2)


def test_a_robot_that_no_push_moves_takes_none_from_pages():
    guard = Guard()
    with quiet_server(0, guard) as server:
        for directions, taken in (["forward"], "forward"), ([], "nowhere"):
            controls = PlayControls(
                server, guard, agents=["zero"], agent="zero", directions=directions, pushed="cart", follow=True
            )
            message = {"type": "GuiUpdateMessage", "uuid": controls.direction._impl.uuid, "updates": {"value": taken}}
            assert (guard.allowed(msgspec.msgpack.encode(message)) is not None) is bool(directions)


def test_an_episode_ends_by_itself_and_random_actions_move():
    living = rail()
    living.kind = "random"
    for _ in range(4):
        living.step()
    assert abs(living.joint_qd[0]) > 1e-3 and living.ended is None
    living.step()
    assert living.ended.how == "time was up" and living.ended.seconds == pytest.approx(0.5)
    assert living.episode.steps == 0 and living.joint_qd[0] == 0 and np.array_equal(living.before, living.joint_q)


def test_only_directions_that_move_something_are_offered():
    assert rail().directions == ["forward", "back"]
    assert Living(HighBox(), None, "zero").directions == ["forward", "back", "left", "right", "up"]


def test_gravity_mass_and_friction_by_hand():
    falling = Living(HighBox(), None, "zero")
    falling.change(Factors(gravity=0.5))
    falling.step()
    np.testing.assert_allclose(falling.joint_qd[2], -0.4905, rtol=1e-6)
    # What is under way goes on: position and clock.
    falling.change(Factors())
    falling.step()
    np.testing.assert_allclose(falling.joint_qd[2], -1.4715, rtol=1e-6)
    assert falling.episode.steps == 2 and int(falling.env.worlds.clock) == 2

    heavy = rail()
    heavy.kind = "policy"
    heavy.change(Factors(mass=4.0))
    heavy.step()
    np.testing.assert_allclose(heavy.joint_qd, 0.0125, rtol=1e-6)
    # The push grows with the mass: again 1 m/s.
    heavy.push("forward", 1.0)
    np.testing.assert_allclose(heavy.joint_qd, 1.0125, rtol=1e-6)

    coefficient = LowBox().model.shape_friction[0]
    # A cube with a coefficient of 1 would tip over.
    for friction in (0.0, 0.25, 0.5):
        sliding = Living(LowBox(), None, "zero")
        sliding.change(Factors(friction=friction))
        # Let it settle first.
        for _ in range(5):
            sliding.step()
        sliding.push("forward", 3.0)
        before = sliding.joint_qd
        for _ in range(2):
            sliding.step()
        slowed, _, lifted = (sliding.joint_qd - before)[:3]
        # While it slides, the ground takes friction times what it gives upwards: the weight for 0.2 s, and the lift.
        assert slowed == pytest.approx(-friction * coefficient * (0.2 * 9.81 + lifted), rel=1e-3, abs=1e-5)


def test_factors_change_nothing_but_what_they_say():
    model = make_env("ant", 1).task.model
    same = changed_model(model, Factors())
    for name, value in vars(model).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(same, name), value)
    changed = changed_model(model, Factors(2.0, 3.0, 4.0))
    different = {
        name for name, value in vars(model).items()
        if isinstance(value, np.ndarray) and not np.array_equal(getattr(changed, name), value)
    }  # fmt: skip
    assert different == {"gravity", "body_mass", "body_inertia", "shape_friction"}
    np.testing.assert_array_equal(changed.gravity, 3 * model.gravity)


def test_factors_of_one_change_no_bit_of_a_run():
    plain, changed = (Living("cartpole", None, "random", seed=3) for _ in range(2))
    changed.change(Factors(mass=2.0))
    changed.change(Factors())
    for _ in range(250):
        plain.step()
        changed.step()
    np.testing.assert_array_equal(plain.joint_q, changed.joint_q)


def test_a_pull_by_hand():
    living = rail()
    inertia = living.inertia.at(np.zeros(1))
    pull = Pull(int(inertia.bodies[0]), (0.0, 0.0, 0.0), (1.0, 0.0, 1.0))
    # k = 64 m and c = 16 m; dt (dt k + c) / m = 2.24, and (0.1 x 64 x 1 m - 2.24 v) / 3.24.
    np.testing.assert_allclose(pull_jump(inertia, np.zeros(1), pull, 0.1), 6.4 / 3.24)
    np.testing.assert_allclose(pull_jump(inertia, np.array([2.0]), pull, 0.1), (6.4 - 4.48) / 3.24)
    # No stronger than ten weights: 98.1 m/s^2 for 0.1 s.
    far = replace(pull, target=(1000.0, 0.0, 1.0))
    np.testing.assert_allclose(pull_jump(inertia, np.zeros(1), far, 0.1), 9.81)
    # Across the rail, 5 m away, most of that is in vain: 2 kg x (6.4 / 3.24, 0.1 x 64 x 5) N s are cut to 19.62.
    across = replace(pull, target=(1.0, 5.0, 1.0))
    share = 9.81 / np.hypot(6.4 / 3.24, 32)
    np.testing.assert_allclose(pull_jump(inertia, np.zeros(1), across, 0.1), share * 6.4 / 3.24)
    living.step([pull])
    np.testing.assert_allclose(living.joint_qd, 6.4 / 3.24, rtol=1e-6)


def test_a_held_box_comes_to_rest_where_it_is_held_and_hangs_from_where_it_is_grasped():
    living = Living(HighBox(), None, "zero")
    corner, body = (0.1, 0.1, 0.1), int(living.inertia.bodies[0])
    held = Pull(body, corner, (1.0, 0.0, 100.0))
    for _ in range(4000):
        living.episode.steps = 0
        living.env.worlds.clock.zero_()
        living.step([held])
    inertia = living.inertia.at(living.joint_q)
    grasped, centre = inertia.to_world(body, np.array(corner)), inertia.centre(body)
    # At rest the pull gives g dt before each step takes it: dt 64/s^2 x / 3.24 = g dt, as in the test before this one.
    np.testing.assert_allclose(grasped, [1.0, 0.0, 100 - 3.24 * 9.81 / 64], atol=1e-4)
    np.testing.assert_allclose(centre - grasped, [0, 0, -np.sqrt(0.03)], atol=1e-4)


def test_a_push_moves_the_centre_of_mass_of_the_robot_as_newton_says():
    """Whatever the pose, an impulse p on a free robot gives its centre of mass p / m."""
    import mujoco

    model = make_env("ant", 1).task.model.source
    for mass in (1.0, 2.5):
        inertia = Inertia(model, mass)
        data = mujoco.MjData(inertia.model)
        data.qpos[:] = model.qpos0
        data.qpos[7:] = np.linspace(-0.7, 0.9, model.nq - 7)
        impulse = np.array([0.3, -0.2, 0.5])
        for body in inertia.bodies[[0, 3, -1]].tolist():
            data.qvel[:] = push_jump(inertia.at(data.qpos), body, impulse)
            mujoco.mj_forward(inertia.model, data)
            mujoco.mj_subtreeVel(inertia.model, data)
            # Armature, rotors that are not in the masses, takes a little.
            np.testing.assert_allclose(data.subtree_linvel[0] * inertia.total_mass, impulse, rtol=1e-9, atol=1e-9)


def returns_after(env: Env, act, change, steps):
    """The reward of some steps after a change of velocity; env stays as it is."""
    worlds = env.worlds.clone()
    saved = env.get_state()
    observation = env.place(State(worlds.joint_q, worlds.joint_qd + change), worlds.previous_action)
    total = 0.0
    for _ in range(steps):
        observation, reward, *_ = env.step(act(observation).clamp(-1, 1))
        total += float(reward)
    env.set_state(saved)
    return total


@torch.no_grad()
def test_gains_are_what_small_pushes_bring():
    env = make_env("ant", 1, dtype=torch.float64, seed=4)
    env.reset()
    weights = (
        0.3 * torch.randn(env.num_observations, env.num_actions, generator=torch.Generator().manual_seed(0)).double()
    )

    def act(observation):
        return torch.tanh(observation @ weights)

    for _ in range(30):
        env.step(act(env.worlds.observation))
    inertia, steps = Inertia(env.task.model.source), 8
    kept = env.worlds.joint_q.clone()
    gains = push_gains(env, act, inertia, steps)
    assert torch.equal(env.worlds.joint_q, kept) and gains.shape == (len(inertia.bodies), 3)
    assert np.abs(gains).max() > 1e-3
    small = 1e-6
    for row in (0, 2, len(gains) - 1):
        for axis in range(3):
            jump = push_jump(inertia.at(kept[0].numpy()), int(inertia.bodies[row]), small * np.eye(3)[axis])
            up, down = (returns_after(env, act, sign * torch.from_numpy(jump), steps) for sign in (1, -1))
            assert gains[row, axis] == pytest.approx((up - down) / (2 * small), rel=1e-4, abs=1e-6)


def test_gains_by_hand():
    env = make_env(Rail(), 1, dtype=torch.float64)
    env.reset()
    # Two steps: a velocity v pays 0.1 v + 10 v and 0.2 v + 10 v, and 1 N s gives 2 kg 0.5 m/s.
    gains = push_gains(env, nothing_acts(env), Inertia(env.task.model.source), steps=2)
    np.testing.assert_allclose(gains, [[20.3 / 2, 0, 0]], atol=1e-12)


def test_half_way_between_two_poses():
    model = HighBox().model.source
    first, second = np.array([0, 0, 0, 1.0, 0, 0, 0]), np.array([2, 0, 4, np.sqrt(0.5), 0, 0, np.sqrt(0.5)])
    half = between(model, first, second, 0.5)
    np.testing.assert_allclose(half, [1, 0, 2, np.cos(np.pi / 8), 0, 0, np.sin(np.pi / 8)], atol=1e-12)


def test_the_camera_holds_what_follows_most_starts():
    """Of eleven starts one goes astray: the farthest but one decides."""
    with quiet_server(0) as server:
        scene = RobotScene(server.scene, Rail().model.source, np.zeros((1, 1)))
        # Of a robot that stays: one that is followed is always in the middle.
        scene.leader = None
        reach = np.array([100.0, *np.linspace(0.1, 1.0, 10)])
        low, high = usual_box(scene, np.stack([0 * reach, reach, -reach])[:, :, None].repeat(4, axis=0))
        still_low, still_high = scene.kinematics.extent(np.zeros(1))
    np.testing.assert_allclose((high - still_high)[0], 1.0, atol=1e-9)
    np.testing.assert_allclose((low - still_low)[0], -1.0, atol=1e-9)
    np.testing.assert_allclose((high - still_high)[1:], 0, atol=1e-9)


def test_looking_ahead_changes_nothing():
    living = rail()
    living.push("forward", 2.0)
    before = living.env.get_state()
    motion = living.foreseen(0.5, 3)
    # Nobody acts there, and nobody pushes.
    assert motion.shape == (5, 3, 1) and not motion.any()
    assert str(living.env.get_state()) == str(before)
    living.step()
    np.testing.assert_allclose(living.joint_q, 0.2, rtol=1e-6)


def test_a_phone_sees_the_robot_above_the_panel():
    position, target = np.array([0.0, -3.0, 1.0]), np.array([0.0, 0.0, 1.0])
    there, below = phone_camera(position, target, tallness=2.0, fov=1.0)
    np.testing.assert_allclose(there, [0, -6, 1])
    # The angle between where it looks and the robot, in heights of the screen.
    np.testing.assert_allclose(np.arctan2(1 - below[2], 6.0), 0.28)


DRAG = {
    "type": "SceneNodeDragMessage", "phase": "start", "name": "/trot/world_0/cart/geom_0", "instance_index": None,
    "start_position": [0.0, 0, 0], "start_screen_pos": [0.5, 0.5], "end_position": [1.0, 0, 0],
    "end_screen_pos": [0.6, 0.5], "button": "left", "modifier": None, "owner": "",
}  # fmt: skip


def test_pages_drag_what_may_be_dragged_and_nothing_else():
    guard = Guard()
    guard.allow_drag(DRAG["name"])
    assert msgspec.msgpack.decode(guard.allowed(msgspec.msgpack.encode(DRAG))) == DRAG
    far = {"end_position": [float("nan"), float("inf"), -1e300], "start_screen_pos": [float("-inf"), 0.0]}
    told = msgspec.msgpack.decode(guard.allowed(msgspec.msgpack.encode(DRAG | {"phase": "end"} | far)))
    assert told["end_position"] == [0, 1e6, -1e6] and told["start_screen_pos"] == [-1e6, 0]
    for change in (
        {"name": "/trot"}, {"name": "/WorldAxes"}, {"phase": "again"}, {"button": "right"}, {"owner": "x"}, {"more": 1},
        {"end_position": [0, 0]}, {"end_position": None}, {"instance_index": 2**70 // 2**10}, {"modifier": "shift"},
    ):  # fmt: skip
        assert guard.allowed(msgspec.msgpack.encode(DRAG | change)) is None, change
    assert Guard().allowed(msgspec.msgpack.encode(DRAG)) is None


def test_who_plays(tmp_path, monkeypatch):
    run_folder, best = make_run(tmp_path)
    task, agent, about = find_player(str(run_folder.path), "policy", "best")
    assert task == "cartpole" and agent.num_actions == best.num_actions and "'best' of cartpole" in about
    task, agent, about = find_player("cartpole", "policy", "best")
    assert task == "cartpole" and agent is not None and "trot train cartpole" in about
    with pytest.raises(ValueError, match=re.escape("trot train my/task.py:Walker && trot play runs/Walker-shac-0")):
        find_player("my/task.py:Walker", "policy", "best")
    with pytest.raises(FileNotFoundError, match="tasks are cartpole"):
        find_player("cartpol", "policy", "best")
    with pytest.raises(ValueError, match="observations"):
        Living("ant", make_agent(5, 1), "policy")


def test_without_viser_one_line_says_how_to_get_it(monkeypatch, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "viser", None)
    assert play_command(["cartpole"]) == 2
    assert 'pip install "trot[view]"' in capsys.readouterr().err


def test_what_the_user_can_mend_is_one_line(tmp_path, capsys):
    run_folder, _ = make_run(tmp_path)
    cases = {
        ("my/task.py:Walker",): "trot train my/task.py:Walker && trot play runs/Walker-shac-0",
        ("antt",): "tasks are cartpole",
        (str(run_folder.path), "--checkpoint", "none"): "no checkpoint 'none'",
        ("cartpole", "--port", "70000"): "65535",
        ("my_task.py:Walker", "--agent", "zero"): "no task file",
        ("cartpole", "--agent", "drunk"): "drunk",
    }
    for arguments, part in cases.items():
        assert main(["play", *arguments, "--no-browser"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("trot play: ") and part in line
