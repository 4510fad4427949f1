"""Where episodes of the six tasks begin: nominal poses, and the distributions around them.

Seeds are fixed. Bounds are five standard errors wide, so that a right distribution passes with any seed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from closed_forms import times, turn
from manifold import quat_product
from numpy.testing import assert_allclose, assert_array_equal

import trot
from trot.envs.registry import make_task

COUNT = 20_000
FLOATING = ["ant", "humanoid", "muscle_humanoid"]


@dataclass
class Expected:
    """A nominal pose and half widths of the noise: on hinges and slides, and on velocities."""

    pose: list[float]
    joints: float
    velocities: float


BALL = [1, 0, 0, 0]
LEG = [*BALL, 0, *BALL, 0, 0]
STARTS = {
    "cartpole": Expected([0, -np.pi], joints=np.pi / 2, velocities=0.25),
    "hopper": Expected([0] * 6, joints=0.05, velocities=0.05),
    "half_cheetah": Expected([0, -0.2, *[0] * 7], joints=0.1, velocities=0.25),
    "ant": Expected([0, 0, 0.75, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1], joints=0.2, velocities=0.25),
    "humanoid": Expected([0, 0, 1.35, 1, 0, 0, 0, *[0] * 21], joints=0.2, velocities=0.25),
    # It faces its own z and stands along its own y: a third of a turn about the diagonal, x to y, y to z, z to x.
    "muscle_humanoid": Expected([0, 0, 1, 0.5, 0.5, 0.5, 0.5, *LEG, *LEG], joints=0, velocities=0.25),
}
POSITION_NOISE = 0.1
ANGLE_NOISE = np.pi / 24


def draw(start: trot.Start, model: trot.Model, seed: int | None = 3) -> tuple[np.ndarray, np.ndarray]:
    """COUNT draws of joint_q and joint_qd."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    state = start.draw(model, COUNT, generator, torch.zeros((), dtype=torch.float64))
    return state.joint_q.numpy(), state.joint_qd.numpy()


@pytest.fixture(scope="module")
def drawn() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    tasks = {name: make_task(name) for name in STARTS}
    return {name: draw(task.start, task.model) for name, task in tasks.items()}


def assert_uniform(samples: np.ndarray, half_width: float) -> None:
    """Each column within half a width of 0, up to its ends, with the mean and the spread of a uniform distribution."""
    count = len(samples)
    relative = samples / half_width
    assert np.abs(relative).max() <= 1 + 1e-12
    # One in a thousand draws is nearer to an end: with 20 000 of them, e^-20 that none is.
    assert relative.min(axis=0).max() < -0.998
    assert relative.max(axis=0).min() > 0.998
    # A uniform distribution on +-1: variance 1/3, its square's 1/5 - 1/9.
    assert_allclose(relative.mean(axis=0), 0, atol=5 * np.sqrt(1 / 3 / count))
    assert_allclose((relative**2).mean(axis=0), 1 / 3, atol=5 * np.sqrt((1 / 5 - 1 / 9) / count))


def assert_uncorrelated(samples: np.ndarray) -> None:
    correlation = np.corrcoef(samples.T) - np.eye(samples.shape[1])
    assert np.abs(correlation).max() < 5 / np.sqrt(len(samples))


def root_noise(pose: list[float], q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a free joint: offset, angle (COUNT, 1) and axis of the turn in the body's axes as it starts from the pose."""
    back = np.array(pose[3:7]) * [1, -1, -1, -1]
    noise = quat_product(np.broadcast_to(back, (len(q), 4)), q[:, 3:7])
    sine = np.linalg.norm(noise[:, 1:], axis=1, keepdims=True)
    return q[:, :3] - pose[:3], 2 * np.arctan2(sine, noise[:, :1]), noise[:, 1:] / sine


def twist(q: np.ndarray, qd: np.ndarray) -> np.ndarray:
    """Turning in world axes, and velocity of the point of the root body that lies at the world's origin."""
    w, x, y, z = q[:, 3:7].T
    matrix = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    turning = np.einsum("ijn,nj->ni", matrix, qd[:, 3:6])
    return np.concatenate([turning, qd[:, :3] - np.cross(turning, q[:, :3])], axis=1)


@pytest.mark.parametrize("name", STARTS)
def test_without_noise_every_start_is_the_nominal_pose_at_rest(name):
    task, expected = make_task(name), STARTS[name]
    q, qd = draw(task.start, task.model, seed=None)
    assert_array_equal(q, np.tile(expected.pose, (COUNT, 1)))
    assert_array_equal(qd, np.zeros((COUNT, task.model.num_dofs)))
    assert task.start.pose(task.model) == tuple(expected.pose)


@pytest.mark.parametrize("name", STARTS)
def test_environment_without_stochastic_start_begins_at_the_nominal_pose(name):
    env = trot.make_env(name, 3, dtype=torch.float64, stochastic_start=False)
    for _ in range(2):
        env.reset()
        assert_array_equal(env.state.joint_q, [STARTS[name].pose] * 3)
        assert_array_equal(env.state.joint_qd, np.zeros((3, env.task.model.num_dofs)))
        env.step(torch.ones(3, env.num_actions, dtype=torch.float64))


@pytest.mark.parametrize("name", ["cartpole", "hopper", "half_cheetah"])
def test_planar_starts(drawn, name):
    """Every coordinate alike, metres and radians: x, z and pitch too, and both x and the angle of CartPole."""
    (q, qd), expected = drawn[name], STARTS[name]
    noise = q - expected.pose
    assert_uniform(noise, expected.joints)
    assert_uniform(qd, expected.velocities)
    assert_uncorrelated(np.concatenate([noise, qd], axis=1))


def test_cartpole_never_starts_near_upright(drawn):
    q, _ = drawn["cartpole"]
    assert np.cos(q[:, 1]).max() < 1e-12


@pytest.mark.parametrize("name", ["ant", "humanoid"])
def test_joints_of_floating_starts(drawn, name):
    (q, qd), expected = drawn[name], STARTS[name]
    noise = q[:, 7:] - expected.pose[7:]
    assert_uniform(noise, expected.joints)
    assert_uncorrelated(np.concatenate([q[:, :3], noise, twist(q, qd), qd[:, 6:]], axis=1))


def test_joints_of_the_muscle_humanoid_have_no_noise(drawn):
    q, _ = drawn["muscle_humanoid"]
    assert_array_equal(q[:, 7:], np.tile([*LEG, *LEG], (COUNT, 1)))


@pytest.mark.parametrize("name", FLOATING)
def test_root_position(drawn, name):
    offset, _, _ = root_noise(STARTS[name].pose, drawn[name][0])
    assert_uniform(offset, POSITION_NOISE)
    assert_uncorrelated(offset)


def mean_fourth_powers(turned_by: float = 0.0) -> float:
    """Of the numbers of a direction to a random point in a cube, in axes turned about z: 0.6 if all were alike."""
    ticks = (np.arange(60) + 0.5) / 30 - 1
    points = np.stack(np.meshgrid(ticks, ticks, ticks), axis=-1).reshape(-1, 3)
    c, s = np.cos(turned_by), np.sin(turned_by)
    points = points @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
    return ((points / np.linalg.norm(points, axis=1, keepdims=True)) ** 4).sum(axis=1).mean()


@pytest.mark.parametrize("name", FLOATING)
def test_root_rotation(drawn, name):
    q, _ = drawn[name]
    assert_allclose(np.linalg.norm(q[:, 3:7], axis=1), 1, atol=1e-14)
    _, angle, axis = root_noise(STARTS[name].pose, q)
    # A turn by -a is one by a about the opposite axis, so its size is uniform from 0 on.
    assert_uniform(2 * angle - ANGLE_NOISE, ANGLE_NOISE)
    # Axes point to points of a cube: no direction is favoured in the mean, its corners are a little.
    assert_allclose(axis.mean(axis=0), 0, atol=5 * np.sqrt(1 / 3 / COUNT))
    assert_allclose(axis.T @ axis / COUNT, np.eye(3) / 3, atol=5 * 0.3 / np.sqrt(COUNT))
    assert_allclose((axis**4).sum(axis=1).mean(), mean_fourth_powers(), atol=5 * 0.16 / np.sqrt(COUNT))
    assert_uncorrelated(np.concatenate([angle, axis, q[:, :3]], axis=1))


def test_root_turns_about_axes_of_the_body():
    """The turn comes on the right of the pose's rotation: the cube its axis is drawn in stands in body axes."""
    ant = make_task("ant")
    pose = [0, 0, 0.75, *turn("z", np.pi / 4), *STARTS["ant"].pose[7:]]
    q, _ = draw(replace(ant.start, joint_q=tuple(map(float, pose))), ant.model)
    _, angle, axis = root_noise(pose, q)
    in_body, in_world = mean_fourth_powers(), mean_fourth_powers(np.pi / 4)
    assert in_world - in_body > 0.04
    assert angle.max() <= ANGLE_NOISE + 1e-12
    assert_allclose((axis**4).sum(axis=1).mean(), in_body, atol=5 * 0.16 / np.sqrt(COUNT))


@pytest.mark.parametrize("name", FLOATING)
def test_floating_velocities(drawn, name):
    """The root's twist is uniform, not the velocity of its origin, which lies a metre from the world's."""
    (q, qd), expected = drawn[name], STARTS[name]
    drawn_twist = twist(q, qd)
    assert_uniform(drawn_twist, expected.velocities)
    assert_uniform(qd[:, 6:], expected.velocities)
    assert_uncorrelated(np.concatenate([drawn_twist, qd[:, 6:], q[:, :3]], axis=1))
    assert np.abs(qd[:, :2]).max() > 1.4 * expected.velocities


def test_twist_does_not_depend_on_height():
    """Far above the ground, by a turned pose: the origin moves fast, the twist is drawn as ever."""
    ant = make_task("ant")
    rotation = times(turn("x", 0.7), turn("y", -1.9))
    pose = (3.0, -4.0, 50.0, *rotation, *[0.0] * 8)
    q, qd = draw(replace(ant.start, joint_q=pose), ant.model)
    assert_uniform(twist(q, qd), 0.25)
    assert np.abs(qd[:, :2]).max() > 10


def test_float32_starts_stay_in_range():
    task = make_task("humanoid")
    state = task.start.draw(task.model, COUNT, torch.Generator().manual_seed(5), torch.zeros(()))
    assert {state.joint_q.dtype, state.joint_qd.dtype} == {torch.float32}
    q, qd = state.joint_q.double().numpy(), state.joint_qd.double().numpy()
    assert_allclose(np.linalg.norm(q[:, 3:7], axis=1), 1, atol=1e-6)
    assert np.abs(q[:, 7:]).max() <= 0.2 + 1e-6
    assert np.abs(twist(q, qd)).max() <= 0.25 + 1e-6


@pytest.mark.parametrize("name", STARTS)
def test_environment_draws_its_starts_from_there(name):
    """Every world and every reset another start, all of them within the task's ranges."""
    env = trot.make_env(name, 200, dtype=torch.float64)
    starts = []
    for _ in range(2):
        env.reset()
        starts += [(q, qd) for q, qd in zip(env.state.joint_q.numpy(), env.state.joint_qd.numpy(), strict=True)]
    q, qd = (np.array(part) for part in zip(*starts, strict=True))
    expected = STARTS[name]
    assert len(np.unique(qd[:, -1])) == 400
    if name in FLOATING:
        offset, angle, _ = root_noise(expected.pose, q)
        assert np.abs(offset).max() <= POSITION_NOISE + 1e-12
        assert np.abs(angle).max() <= ANGLE_NOISE + 1e-12
        q, qd = q[:, 7:], np.concatenate([twist(q, qd), qd[:, 6:]], axis=1)
    assert np.abs(q - expected.pose[-q.shape[1] :]).max() <= expected.joints + 1e-12
    assert 0.9 * expected.velocities < np.abs(qd).max() <= expected.velocities + 1e-12


def test_the_nominal_pose_is_that_of_the_keyframe_the_robot_is_loaded_with():
    hinges = "<body><joint/><geom size='0.1'/><body><joint/><geom size='0.1'/></body></body>"
    key = "<keyframe><key name='home' qpos='0.5 -0.25' qvel='1 2'/></keyframe>"
    model = trot.load_model(f"<mujoco><worldbody>{hinges}</worldbody>{key}</mujoco>", keyframe="home")
    q, qd = draw(trot.Start(), model, seed=None)
    assert (q == [0.5, -0.25]).all()
    assert (qd == 0).all()
