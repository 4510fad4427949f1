"""The quadruped: its figures, its commands, what it sees and is paid, worked by hand; and it stands."""

import math
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from trot.envs.randomize import Randomize
from trot.envs.registry import make_env, make_task
from trot.envs.situation import Situation
from trot.envs.tasks.quadruped import COMMANDS, FASTEST, HEIGHT, LIFT, REACH, STAND
from trot.learn.train import parse_settings

TURN = math.pi / 2


@pytest.fixture(scope="module")
def task():
    return make_task("quadruped")


def situation(yaw=0.0, velocity=(0.0, 0.0, 0.0), turning=(0.0, 0.0, 0.0), elapsed=0.0, last_action=0.0):
    pose = [0.0, 0.0, HEIGHT, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2), *STAND]
    commands = [[0.1 * index, 0.2, 0.3 - 0.1 * index] for index in range(COMMANDS)]
    return Situation(
        torch.tensor([pose], dtype=torch.float64),
        torch.tensor([[*velocity, *turning, *([0.0] * 12)]], dtype=torch.float64),
        {
            "commands": torch.tensor(commands, dtype=torch.float64).reshape(1, -1),
            "elapsed": torch.tensor([[elapsed]], dtype=torch.float64),
            "last_action": torch.full((1, 12), last_action).double(),
        },
    )


def test_its_masses_and_limits_are_the_published_ones(task):
    model = task.model
    # Trunk and four rotors; of each leg hip, thigh and calf with foot, rotors included.
    assert model.body_mass.sum() == pytest.approx(5.204 + 12 * 0.089 + 4 * (0.591 + 0.92 + 0.135862 + 0.06), rel=1e-5)
    np.testing.assert_allclose(model.servo_upper, np.tile([23.7, 23.7, 35.55], 4))
    np.testing.assert_allclose(model.joint_lower[1:], np.tile([-0.863, -0.686, -2.818], 4))
    np.testing.assert_allclose(model.joint_upper[1:], np.tile([0.863, 4.501, -0.888], 4))
    # Mirror images: left and right legs weigh the same, and stand as far from the middle.
    for left, right in (("FL", "FR"), ("RL", "RR")):
        one, other = (model.body_name.index(f"{side}_thigh") for side in (left, right))
        np.testing.assert_allclose(model.body_com[one], model.body_com[other] * [1, -1, 1])
        np.testing.assert_allclose(
            model.body_inertia[one], model.body_inertia[other] * np.outer([1, -1, 1], [1, -1, 1])
        )


@pytest.mark.parametrize(("elapsed", "index"), [(0.0, 0), (4.99, 0), (5.0, 1), (12.0, 2), (19.9, 3), (25.0, 3)])
def test_commands_follow_each_other_every_five_seconds(task, elapsed, index):
    found = task.measure(situation(elapsed=elapsed)).command
    np.testing.assert_allclose(found[0], [0.1 * index, 0.2, 0.3 - 0.1 * index], atol=1e-12)


def test_velocities_are_seen_and_paid_in_the_trunks_axes(task):
    # Turned to the left by a right angle it moves along y, which is forward to it.
    measured = task.measure(situation(yaw=TURN, velocity=(-0.5, 1.0, 0.2), turning=(0.3, 0.4, 0.7)))
    np.testing.assert_allclose(measured.velocity[0], [1.0, 0.5, 0.2], atol=1e-12)
    np.testing.assert_allclose(measured.down[0], [0, 0, -1], atol=1e-12)
    # The command is (0, 0.2) and 0.3.
    terms = {name: value.item() for name, value in task.reward_terms(measured, torch.full((1, 12), 0.5)).items()}
    assert terms == pytest.approx(
        {
            "speed": 3 - 3 * math.sqrt(1.0 + 0.09 + 0.0025),
            "turning": 0.75 - 0.75 * math.sqrt(0.16 + 0.0025),
            "gait": 0,
            "level": 0,
            "height": 0,
            "bounce": -0.2 * 0.04 - 0.02 * 0.25,
            "smooth": -0.01 * 12 * 0.25,
            "calm": 0,
        },
        abs=1e-9,
    )
    figures = task.figures(measured)
    assert figures["speed error, m/s"].item() == pytest.approx(math.sqrt(1.09))
    assert figures["turning error, rad/s"].item() == pytest.approx(0.4)


def test_diagonal_legs_are_to_lift_in_turn(task):
    """Two strides a second: after an eighth of a second the first pair is to be highest, then the other."""
    stood = np.zeros(4)
    for elapsed, expected in ((0.0, stood), (0.125, [LIFT, 0, 0, LIFT]), (0.375, [0, LIFT, LIFT, 0]), (0.5, stood)):
        measured = task.measure(situation(elapsed=elapsed))
        np.testing.assert_allclose(measured.swing[0], expected, atol=1e-12)
        np.testing.assert_allclose(measured.lifted[0], 0, atol=1e-12)
        pay = task.reward_terms(measured, torch.zeros(1, 12).double())["gait"].item()
        assert pay == pytest.approx(-20 * np.square(expected).sum(), abs=1e-12)
    standing = situation(elapsed=0.125)
    standing.memory["commands"].zero_()
    assert not task.measure(standing).swing.any()


def test_legs_are_drawn_up_as_far_as_the_robots_feet_move(task):
    """By MuJoCo: the foot's height in the trunk's frame, less what it is while it stands; more than asked is free."""
    legs = ("FL", "FR", "RL", "RR")
    model, data = task.model.source, mujoco.MjData(task.model.source)
    feet = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_GEOM, f"{leg}_foot") for leg in legs]
    stood = situation(elapsed=0.125)
    data.qpos[:] = stood.joint_q[0]
    mujoco.mj_forward(model, data)
    before = data.geom_xpos[feet, 2].copy()
    # The hip's sideways offset lifts a foot as well, which the formula leaves out: hips stay as they are.
    for leg, (thigh, calf) in enumerate([(0.3, -0.5), (-0.2, -0.1), (0.1, 0.4), (0.0, -0.7)]):
        stood.joint_q[0, 7 + 3 * leg + 1 : 7 + 3 * leg + 3] += torch.tensor([thigh, calf]).double()
    data.qpos[:] = stood.joint_q[0]
    mujoco.mj_forward(model, data)
    measured = task.measure(stood)
    np.testing.assert_allclose(measured.lifted[0], data.geom_xpos[feet, 2] - before, atol=1e-9)
    short = np.maximum(np.array([LIFT, 0, 0, LIFT]) - measured.lifted[0].numpy(), 0)
    assert short.any() and (short == 0).any()
    pay = task.reward_terms(measured, torch.zeros(1, 12).double())["gait"].item()
    assert pay == pytest.approx(-20 * np.square(short).sum(), rel=1e-9)


def test_training_pushes_it_and_evaluation_does_not(task):
    settings = parse_settings(["quadruped", "--device", "cpu"])
    assert settings.randomize == task.randomize and task.randomize.push_interval == 2.0
    calm = parse_settings(["quadruped", "--randomize.friction", "1", "1"])
    assert calm.randomize == replace(task.randomize, friction=(1.0, 1.0))
    assert parse_settings(["ant"]).randomize == Randomize()
    assert make_env("quadruped", 1).randomize is None


def test_what_it_remembers_goes_on(task):
    measured, action = task.measure(situation(elapsed=1.0)), torch.full((1, 12), 0.25).double()
    after = task.next_memory(measured, action)
    assert after["elapsed"].item() == pytest.approx(1.02) and after["last_action"].equal(action)


def test_actions_move_the_servos_targets_around_the_stand(task):
    np.testing.assert_allclose(task.control(torch.zeros(1, 12).double())[0], STAND)
    np.testing.assert_allclose(task.control(-torch.ones(1, 12).double())[0], np.array(STAND) - REACH)


def test_commands_are_drawn_between_their_limits_and_nominal_without_chance(task):
    like = torch.zeros(()).double()
    drawn = task.draw_memory(2000, torch.Generator().manual_seed(0), like)["commands"].view(-1, COMMANDS, 3)
    moving = drawn.any(dim=2)
    # Of 8000 commands a tenth says to stand, to five standard errors.
    assert (~moving).double().mean().item() == pytest.approx(0.1, abs=0.017)
    for column, limit in enumerate(FASTEST):
        values = drawn[..., column][moving]
        assert values.abs().max() <= limit and values.abs().max() > 0.99 * limit
        # Of a uniform distribution: limit / sqrt(3), to five standard errors of 8000 numbers.
        assert values.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.03)
    nominal = task.draw_memory(2, None, like)["commands"]
    np.testing.assert_allclose(nominal, np.tile(0.5 * np.array(FASTEST), (2, COMMANDS)))


def test_without_actions_it_stands_for_two_seconds():
    env = make_env("quadruped", 4)
    env.reset(seed=0)
    for _ in range(100):
        _, _, terminated, _, info = env.step(torch.zeros(4, 12))
        assert not terminated.any() and not info["fault"].any()
    measured = env.task.measure(env.state)
    assert (measured.height - HEIGHT).abs().max() < 0.06
    assert measured.velocity.abs().max() < 0.1 and (measured.down[:, 2] < -0.98).all()


def test_the_urdf_of_the_examples_is_the_same_robot(task):
    examples = Path(__file__).parents[2] / "examples"
    env = make_env(f"{examples / 'commanded_urdf' / 'robot_dog_task.py'}:RobotDog", 2)
    for name in ("body_mass", "body_com", "body_inertia", "servo_upper", "servo_gain", "servo_bias", "dof_armature"):
        np.testing.assert_allclose(getattr(env.task.model, name), getattr(task.model, name), atol=1e-9)
    assert env.task.model.actuator_name == task.model.actuator_name
    env.reset(seed=0)
    for _ in range(50):
        _, _, terminated, _, info = env.step(torch.zeros(2, 12))
        assert not terminated.any() and not info["fault"].any()
