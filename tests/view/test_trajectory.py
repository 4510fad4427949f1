"""Recorded motions: what is in a frame, the file, and the forces of the ground."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from made_run import make_run
from tasks_with_memory import COMMANDED

from trot.envs.registry import make_env
from trot.sim.load import load_model
from trot.view.motion.force_arrows import contact_forces
from trot.view.motion.frames import robot_text
from trot.view.motion.record import load_or_record, record
from trot.view.motion.trajectory import Trajectory

ASSETS = Path(__file__).parents[2] / "trot" / "envs" / "assets"
WALKER = Path(__file__).parents[2] / "examples" / "walker" / "my_task.py"
BALL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="0 0 1" friction="0.3"/>
    <body pos="0 0 0.1"><freejoint/><geom type="sphere" size="0.1" mass="2" friction="0.4" user="5e3 2e3 50"/></body>
  </worldbody>
</mujoco>
"""
ARRAYS = ("joint_q", "joint_qd", "action", "control", "begins")


@pytest.fixture(scope="module")
def hops():
    """Two Hoppers that act at random and fall now and then."""
    return record("hopper", agent="random", worlds=2, steps=150)


def settings_of(trajectory):
    return trajectory.task, trajectory.robot, trajectory.dt


def test_file_keeps_everything(hops, tmp_path):
    path = tmp_path / "hops.npz"
    hops.save(path)
    again = Trajectory.load(path)
    assert settings_of(again) == settings_of(hops)
    for name in ARRAYS:
        assert getattr(again, name).dtype == getattr(hops, name).dtype
        np.testing.assert_array_equal(getattr(again, name), getattr(hops, name))
    assert again.reward_terms.keys() == hops.reward_terms.keys()
    for name, values in hops.reward_terms.items():
        np.testing.assert_array_equal(again.reward_terms[name], values)
    assert [file.name for file in tmp_path.iterdir()] == ["hops.npz"], "nothing else is left behind"


def test_other_programs_read_the_file(hops, tmp_path):
    hops.save(tmp_path / "hops.npz")
    with np.load(tmp_path / "hops.npz", allow_pickle=False) as file:
        model = mujoco.MjModel.from_xml_string(str(file["robot"]))
        assert str(file["task"]) == "hopper"
        assert float(file["dt"]) == pytest.approx(1 / 60)
        assert file["joint_q"].shape == (151, 2, model.nq)
        assert {"reward_terms/forward", "reward_terms/height"} <= set(file.files)


def test_robot_and_its_meshes_are_inside(tmp_path):
    (tmp_path / "wedge.obj").write_text(
        "v 0 0 0\nv 1 0 0\nv 0 2 0\nv 0 0 3\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n", encoding="utf-8"
    )
    robot = tmp_path / "robot.xml"
    robot.write_text(
        '<mujoco><asset><mesh file="wedge.obj" scale="0.1 0.1 0.1"/></asset><worldbody><body><freejoint/>'
        '<geom type="mesh" mesh="wedge" pos="1 2 3" euler="10 20 30" contype="0" conaffinity="0"/>'
        '<geom type="sphere" size="0.1"/></body></worldbody></mujoco>'
    )
    before = mujoco.MjModel.from_xml_path(str(robot))
    record(str(robot), steps=2).save(tmp_path / "motion.npz")
    robot.unlink()
    (tmp_path / "wedge.obj").unlink()
    after = Trajectory.load(tmp_path / "motion.npz").model()
    np.testing.assert_allclose(corners(after), corners(before), atol=2e-6)
    np.testing.assert_allclose(after.body_mass, before.body_mass, rtol=1e-5)


def test_a_robot_that_was_mended_stands_alone(tmp_path):
    """What was found elsewhere, repaired or left out is so in the text, which then loads without options."""
    inertia = '<mass value="1"/><inertia ixx="0.1" iyy="0.2" izz="0.5" ixy="0" ixz="0" iyz="0"/>'
    mesh = '<collision><geometry><mesh filename="package://arm/tip.obj"/></geometry></collision>'
    text = (
        f'<robot name="arm"><link name="base"/><link name="tip"><inertial>{inertia}</inertial>{mesh}</link>'
        '<joint name="hinge" type="continuous"><parent link="base"/><child link="tip"/><axis xyz="0 1 0"/></joint>'
        "</robot>"
    )
    (tmp_path / "there").mkdir()
    (tmp_path / "arm.urdf").write_text(text)
    corners = "v 0 0 0\nv 0.1 0 0\nv 0 0.1 0\nv 0 0 0.1\n"
    (tmp_path / "there" / "tip.obj").write_text(corners + "f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    options = {"ground": True, "repair_inertia": True, "package_path": str(tmp_path / "there")}
    model = load_model(tmp_path / "arm.urdf", **options)
    again = load_model(robot_text(tmp_path / "arm.urdf", model, **options))
    np.testing.assert_allclose(again.body_inertia, model.body_inertia, rtol=1e-6)
    np.testing.assert_allclose(again.point_pos, model.point_pos, atol=1e-7)
    assert again.num_points == 4


def corners(model):
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model.mesh_vert @ data.geom_xmat[0].reshape(3, 3).T + data.geom_xpos[0]


@torch.no_grad()
def test_frames_are_those_of_a_plain_loop(tmp_path):
    run, agent = make_run(tmp_path, "hopper")
    recorded = record(str(run.path), worlds=3, steps=120, seed=5)
    env = make_env("hopper", 3, seed=5)
    observation, _ = env.reset()
    np.testing.assert_array_equal(recorded.joint_q[0], env.state.joint_q.numpy())
    assert recorded.begins[0].all()
    done = torch.zeros(3, dtype=torch.bool)
    ends = 0
    for frame in range(1, 121):
        np.testing.assert_array_equal(recorded.begins[frame], done.numpy())
        action = agent(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        done = terminated | truncated
        ends += int(done.sum())
        np.testing.assert_array_equal(recorded.action[frame], action.numpy())
        np.testing.assert_array_equal(recorded.control[frame], action.numpy())
        np.testing.assert_array_equal(recorded.joint_q[frame], info["final_state"].joint_q.numpy())
        np.testing.assert_array_equal(recorded.joint_qd[frame], info["final_state"].joint_qd.numpy())
        total = sum(values[frame] for values in recorded.reward_terms.values())
        np.testing.assert_allclose(total, reward.numpy(), rtol=1e-5, atol=1e-5)
    assert ends, "no episode ended, so no reset was compared"


def test_a_servo_task_is_recorded_with_its_controls():
    motion = record(COMMANDED, agent="random", steps=5, seed=2)
    assert motion.control.shape == (6, 1, 3)
    assert abs(motion.control[1:]).max() <= 1 and not (motion.control[1:] == motion.action[1:]).any()


def test_frame_before_a_new_episode_is_the_fall(hops):
    frames, worlds = np.nonzero(hops.begins[1:])
    assert len(frames)
    # A Hopper's episode ends below 0.8 m, and begins at about 1.25 m.
    heights = [mujoco_height(hops, frame, world) for frame, world in zip(frames, worlds, strict=True)]
    later = [mujoco_height(hops, frame + 1, world) for frame, world in zip(frames, worlds, strict=True)]
    assert max(heights) < 0.8 < min(later)
    for values in (hops.action, hops.control, *hops.reward_terms.values()):
        assert not values[0].any()


def mujoco_height(trajectory, frame, world):
    model = trajectory.model()
    data = mujoco.MjData(model)
    data.qpos = trajectory.joint_q[frame, world]
    mujoco.mj_kinematics(model, data)
    return data.xpos[1, 2]


def test_agents_and_noise(tmp_path):
    run, _ = make_run(tmp_path)
    play = {"steps": 20, "seed": 3}
    policy, again = record(str(run.path), **play), record(str(run.path), **play)
    np.testing.assert_array_equal(policy.joint_q, again.joint_q)
    others = [
        record(str(run.path), stochastic=True, **play),
        record(str(run.path), checkpoint="last", **play),
        record(str(run.path), agent="random", **play),
        record(str(run.path), agent="zero", **play),
    ]
    for other in others:
        np.testing.assert_array_equal(other.joint_q[0], policy.joint_q[0])
        assert not np.array_equal(other.action, policy.action)
    assert not others[-1].action.any()


def test_muscles_show_activations():
    trajectory = record("muscle_humanoid", agent="random", steps=3)
    np.testing.assert_allclose(trajectory.control[1:], (trajectory.action[1:] + 1) / 2, rtol=1e-6)


@pytest.mark.parametrize("robot", [ASSETS / "humanoid.xml", ASSETS / "muscle_humanoid.xml"], ids=lambda path: path.stem)
def test_at_rest_the_ground_carries_the_weight(robot):
    trajectory = record(str(robot), steps=700)
    assert trajectory.joint_q.shape[0] == 701
    [(_, forces)] = contact_forces(trajectory, 700)
    weight = 9.81 * load_model(trajectory.robot).body_mass.sum()
    assert len(forces) > 2
    assert forces[:, 2].sum() == pytest.approx(weight, rel=0.01)
    assert np.abs(forces[:, :2].sum(axis=0)).max() < 0.01 * weight


@pytest.mark.parametrize("speed", [0.01, 3.0], ids=["sticks", "slides"])
def test_forces_are_those_of_the_contact_law(speed):
    # A ball 4 mm deep that sinks, slides and spins about y. Friction acts at its lowest point.
    trajectory = Trajectory(
        task="ball",
        robot=BALL,
        dt=0.1,
        joint_q=np.array([[[0, 0, 0.096, 1, 0, 0, 0]]], np.float32),
        joint_qd=np.array([[[speed, 0, -0.5, 0, 1, 0]]], np.float32),
        action=np.zeros((1, 1, 0), np.float32),
        control=np.zeros((1, 1, 0), np.float32),
        reward_terms={},
        begins=np.ones((1, 1), np.bool_),
    )
    [((point,), (force,))] = contact_forces(trajectory, 0)
    normal = 0.004 * (5e3 + 2e3 * 0.5)
    sliding = speed - 0.1
    np.testing.assert_allclose(point, [0, 0, -0.004], atol=1e-6)
    np.testing.assert_allclose(force, [-np.sign(sliding) * min(50 * abs(sliding), 0.4 * normal), 0, normal], rtol=1e-4)


def test_nothing_touches_in_the_air():
    for source, agent in (("cartpole", "zero"), (str(ASSETS / "ant.xml"), "policy")):
        [(points, forces)] = contact_forces(record(source, agent=agent, steps=1), 0)
        assert points.shape == forces.shape == (0, 3)


def test_a_task_is_shown_with_the_policy_that_comes_with_trot():
    """It runs; random actions stay where they are, and so does a task that no policy comes for."""
    ran, strayed = load_or_record("ant", steps=120), load_or_record("ant", steps=120, agent="random")
    assert ran.joint_q[-1, 0, 0] > 5 and abs(strayed.joint_q[-1, 0, 0]) < 2
    assert ran.begins.sum() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": f"{WALKER}:Walker"}, "no policy comes with trot"),
        ({"source": "nowhere"}, "is no run folder, robot file or task; tasks are cartpole"),
        ({"source": "nowhere.xml"}, "no robot file"),
        ({"source": str(ASSETS / "ant.xml"), "agent": "random"}, "moves without control"),
        ({"source": "ant", "agent": "zero", "steps": 0}, "steps must be at least 1"),
        ({"source": "ant", "agent": "zero", "worlds": 0}, "num_worlds"),
        ({"source": str(ASSETS)}, "settings.json"),
    ],
)
def test_what_cannot_be_recorded(arguments, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        record(**arguments)
    assert "\n" not in str(caught.value)


def test_what_is_no_trajectory(hops, tmp_path):
    path = tmp_path / "file.npz"
    hops.save(path)
    whole = path.read_bytes()
    with np.load(path) as file:
        parts = dict(file)

    def refused(message):
        with pytest.raises(ValueError, match=message) as caught:
            Trajectory.load(path)
        assert "\n" not in str(caught.value)

    for content in (b"", b"text", whole[: len(whole) // 2]):
        path.write_bytes(content)
        refused("is not a trajectory that trot saved")
    changes = {
        "format": ("another 1", "its format is not"),
        "robot": ("<mujoco><worldbody>", "is not a trajectory"),
        "joint_q": (parts["joint_q"][:, :, 1:], "joint_q is"),
        "control": (parts["control"][1:], "control is"),
        "begins": (parts["begins"][:0], "no frames"),
        "reward_terms/forward": (parts["reward_terms/forward"][1:], "reward term forward"),
    }
    for name, (value, message) in changes.items():
        np.savez(path, **(parts | {name: value}))
        refused(message)
    np.savez(path, **{name: value for name, value in parts.items() if name != "action"})
    refused("action")
    np.save(path.open("wb"), np.zeros(3))
    refused("is not a trajectory")
    with pytest.raises(FileNotFoundError, match="no trajectory file"):
        Trajectory.load(tmp_path / "missing.npz")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        hops.save(tmp_path / "missing" / "file.npz")


def test_a_motion_that_would_never_end_is_refused_at_once():
    with pytest.raises(ValueError, match="60,000,000,000 steps of 1 worlds are too long a motion to record"):
        record("cartpole", agent="zero", seconds=1e9)
    with pytest.raises(ValueError, match="1,000,000,000 worlds are too many to record"):
        record("cartpole", agent="zero", worlds=10**9, steps=1)
