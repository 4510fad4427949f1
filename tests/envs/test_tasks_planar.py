"""CartPole, Hopper and HalfCheetah: every observation, reward and end of an episode, by numbers worked by hand."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from exact_tasks import EXACT, make, rows
from mujoco_frames import body_frames
from numpy.testing import assert_allclose, assert_array_equal
from torch.autograd import gradcheck

import trot

NAMES = ["cartpole", "hopper", "half_cheetah"]


def terms_at(env: trot.Env, state: trot.State, action: torch.Tensor) -> dict[str, torch.Tensor]:
    return env.task.reward_terms(env.task.measure(state), action)


# Settings that the paper's tasks are defined by: substeps, episode length, observations, actions, joint_q, joint_qd,
# contact points, total mass (kg).
SETTINGS = {
    "cartpole": (4, 240, 5, 1, 2, 2, 0, 52.5),
    "hopper": (16, 1000, 11, 3, 6, 6, 8, 15.82),
    "half_cheetah": (16, 1000, 17, 6, 9, 9, 16, 21.18),
}


@pytest.mark.parametrize("name", NAMES)
def test_settings(name):
    env = make(name)
    model = env.task.model
    counts = (env.num_observations, env.num_actions, model.num_q, model.num_dofs, model.num_points)
    *expected, mass = SETTINGS[name]
    assert [env.task.substeps, env.episode_length, *counts] == expected
    assert env.task.control_dt == 1 / 60
    assert model.body_mass.sum() == pytest.approx(mass, abs=0.005)
    assert_array_equal(model.gravity, [0, 0, -9.81])
    assert model.ground_height == (None if name == "cartpole" else 0)


# Name: part of the observation: its first and last index.
LAYOUTS = {
    "cartpole": {"position": (0, 0), "velocity": (1, 1), "sine": (2, 2), "cosine": (3, 3), "angle_rate": (4, 4)},
    "hopper": {
        **{"height": (0, 0), "pitch": (1, 1), "joints": (2, 4)},
        **{"forward_speed": (5, 5), "vertical_speed": (6, 6), "pitch_rate": (7, 7), "joint_rates": (8, 10)},
    },
    "half_cheetah": {
        **{"height": (0, 0), "pitch": (1, 1), "joints": (2, 7)},
        **{"forward_speed": (8, 8), "vertical_speed": (9, 9), "pitch_rate": (10, 10), "joint_rates": (11, 16)},
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_observation_layout(name):
    layout = make(name).observation_layout
    assert {part: (columns.start, columns.stop - 1) for part, columns in layout.items()} == LAYOUTS[name]
    assert list(layout) == list(LAYOUTS[name])


# Name: joint_q, joint_qd, observation.
OBSERVATIONS = {
    "cartpole": (
        [1.3, 3.5],
        [-0.7, 2.2],
        # x, its rate, sine and cosine of the angle, its rate. 3.5 rad is past hanging: both are negative.
        [1.3, -0.7, -0.35078322768961984, -0.9364566872907963, 2.2],
    ),
    "hopper": (
        [5, -0.1, 0.2, -0.3, -0.6, 0.4],
        [1.5, -0.8, 0.7, 2.0, -3.0, 4.0],
        # All but x = 5, nothing scaled.
        [-0.1, 0.2, -0.3, -0.6, 0.4, 1.5, -0.8, 0.7, 2.0, -3.0, 4.0],
    ),
    "half_cheetah": (
        [-7, -0.3, 0.25, 0.1, -0.2, 0.3, -0.4, 0.5, -0.6],
        [2.5, -1.5, 0.9, 1, -2, 3, -4, 5, -6],
        [-0.3, 0.25, 0.1, -0.2, 0.3, -0.4, 0.5, -0.6, 2.5, -1.5, 0.9, 1, -2, 3, -4, 5, -6],
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_observation(name):
    env, (q, qd, expected) = make(name), OBSERVATIONS[name]
    assert_allclose(env.place(trot.State(rows(q), rows(qd))), [expected], **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_observation_does_not_tell_the_previous_action(name):
    env, (q, qd, _) = make(name), OBSERVATIONS[name]
    state = trot.State(rows(q), rows(qd))
    assert torch.equal(env.place(state), env.place(state, torch.ones(1, env.num_actions, dtype=torch.float64)))


@pytest.mark.parametrize(("name", "offset"), [("hopper", 1.25), ("half_cheetah", 1)])
def test_height_is_relative(name, offset):
    env, (q, qd, _) = make(name), OBSERVATIONS[name]
    observation = env.place(trot.State(rows(q), rows(qd)))
    positions, _ = body_frames(env.task.model, q)
    assert_allclose(observation[0, 0] + offset, positions[0, 2], **EXACT)


# Name: action, reward terms at the state of OBSERVATIONS.
TERMS = {
    "cartpole": (
        [0.9],  # costs nothing
        {
            "angle": -((3.5 - 2 * np.pi) ** 2),  # 3.5 rad is 2.783 rad the other way round
            "angle_rate": -0.484,  # 0.1 * 2.2^2
            "position": -0.0845,  # 0.05 * 1.3^2
            "velocity": -0.049,  # 0.1 * 0.7^2
        },
    ),
    "hopper": (
        [0.5, -1, 0.25],
        {
            "forward": 1.5,
            "height": 0.2,  # -0.1 is 0.2 above -0.3
            "upright": 1 - 1.44 / np.pi**2,  # (0.2 / (pi / 6))^2 = (1.2 / pi)^2
            "effort": -0.13125,  # 0.1 * (0.25 + 1 + 0.0625)
        },
    ),
    "half_cheetah": (
        [0.1, -0.2, 0.3, -0.4, 0.5, 1],
        {"forward": 2.5, "effort": -0.155},  # 0.1 * (0.01 + 0.04 + 0.09 + 0.16 + 0.25 + 1)
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_reward_terms(name):
    env, (q, qd, _), (action, expected) = make(name), OBSERVATIONS[name], TERMS[name]
    terms = terms_at(env, trot.State(rows(q), rows(qd)), rows(action))
    assert list(terms) == list(expected)
    for term, value in expected.items():
        assert_allclose(terms[term], [[value]], err_msg=term, **EXACT)


@pytest.mark.parametrize(
    ("angle", "wrapped"),
    [
        (0.3, 0.3),
        (-3.1, -3.1),
        (3.5, 3.5 - 2 * np.pi),
        (-7, 2 * np.pi - 7),
        (10, 10 - 4 * np.pi),
        (-20, 6 * np.pi - 20),
        (np.pi, np.pi),
        (-np.pi, np.pi),
        (3 * np.pi, np.pi),
    ],
)
def test_cartpole_pays_for_the_angle_within_half_a_turn(angle, wrapped):
    terms = terms_at(make("cartpole"), trot.State(rows([0, angle]), rows([0, 0])), rows([0]))
    assert_allclose(terms["angle"], [[-(wrapped**2)]], **EXACT)


def test_cartpole_pays_nothing_for_standing_upright_in_the_middle():
    terms = terms_at(make("cartpole"), trot.State(rows([0, 2 * np.pi]), rows([0, 0])), rows([1]))
    assert_allclose(sum(terms.values()), [[0]], **EXACT)


@pytest.mark.parametrize(
    ("height", "bonus"),
    [
        (0.4, 0.3),  # no more than 0.3 above -0.3 counts
        (0, 0.3),
        (-0.01, 0.29),
        (-0.1, 0.2),
        (-0.3, 0),
        (-0.31, -0.02),  # below: 200 d^2
        (-0.35, -0.5),
        (-0.45, -4.5),
        (-1.29, -196.02),  # 200 * 0.99^2
        (-1.3, -200),  # no more than 1 below counts
        (-5, -200),
    ],
)
def test_hopper_height(height, bonus):
    terms = terms_at(make("hopper"), trot.State(rows([0, height, 0, 0, 0, 0]), rows([0] * 6)), rows([0] * 3))
    assert_allclose(terms["height"], [[bonus]], **EXACT)


@pytest.mark.parametrize(("pitch", "term"), [(0, 1), (np.pi / 6, 0), (-np.pi / 6, 0), (np.pi / 3, -3), (-np.pi, -35)])
def test_hopper_upright(pitch, term):
    terms = terms_at(make("hopper"), trot.State(rows([0, 0, pitch, 0, 0, 0]), rows([0] * 6)), rows([0] * 3))
    assert_allclose(terms["upright"], [[term]], **EXACT)


def reward_by_hand(name: str, q: np.ndarray, qd: np.ndarray, action: np.ndarray) -> float:
    """The paper's formulas in plain arithmetic, for one world."""
    if name == "cartpole":
        wrapped = (q[1] + np.pi) % (2 * np.pi) - np.pi
        return -(wrapped**2) - 0.1 * qd[1] ** 2 - 0.05 * q[0] ** 2 - 0.1 * qd[0] ** 2
    effort = 0.1 * sum(a * a for a in action)
    if name == "half_cheetah":
        return qd[0] - effort
    above = min(max(q[1] + 0.3, -1), 0.3)
    height = -200 * above**2 if above < 0 else above
    return qd[0] + height + 1 - (q[2] / (np.pi / 6)) ** 2 - effort


def lively(env: trot.Env, rng: np.random.Generator) -> trot.State:
    """States around the nominal one, in which nothing falls within a step."""
    shape_q, shape_qd = env.state.joint_q.shape, env.state.joint_qd.shape
    q = env.state.joint_q + torch.tensor(rng.uniform(-0.2, 0.2, shape_q))
    if env.task.name == "hopper":
        # All three branches of the height's reward; the lowest world with its leg folded, clear of the ground.
        q[0, 1], q[1, 1], q[-1] = 0.1, -0.1, rows(LOW_HOPPER)
    return trot.State(q, torch.tensor(rng.uniform(-1.5, 1.5, shape_qd)))


LOW_HOPPER = [0, -0.4, 0.1, -1, -1, 0]


@pytest.mark.parametrize("name", NAMES)
def test_step_pays_for_the_state_after_it(name, rng):
    env = make(name, num_worlds=4)
    before = lively(env, rng)
    env.place(before)
    action = torch.tensor(rng.uniform(-1, 1, (4, env.num_actions)))
    observation, reward, terminated, truncated, info = env.step(action)
    assert not terminated.any() and not truncated.any()

    # A motor's control is the action itself.
    after = trot.step(env.task.model, before, action, 1 / 60, SETTINGS[name][0])
    assert torch.equal(env.state.joint_q, after.joint_q)
    assert torch.equal(env.state.joint_qd, after.joint_qd)
    if name == "hopper":
        heights = after.joint_q[:, 1]
        assert heights[0] > 0 > heights[1] > -0.3 > heights[-1]
    expected = [reward_by_hand(name, *world) for world in zip(after.joint_q, after.joint_qd, action, strict=True)]
    assert_allclose(reward, expected, **EXACT)
    assert_allclose(sum(info["reward_terms"].values()), expected, **EXACT)
    assert torch.equal(observation, env.place(after))


@pytest.mark.parametrize("name", NAMES)
def test_actions_beyond_their_range_are_clipped(name, rng):
    env, twin = make(name, num_worlds=3), make(name, num_worlds=3)
    action = torch.tensor(rng.uniform(-3, 3, (3, env.num_actions)))
    action[0, 0], action[1, 0] = 1.7, -2.5
    clipped = torch.tensor(np.clip(action.numpy(), -1, 1))
    observation, reward, _, _, info = env.step(action)
    expected_observation, expected_reward, _, _, _ = twin.step(clipped)
    assert torch.equal(observation, expected_observation)
    assert torch.equal(reward, expected_reward)
    assert torch.equal(env.worlds.previous_action, clipped)
    if name != "cartpole":
        assert_allclose(info["reward_terms"]["effort"], -0.1 * (clipped.numpy() ** 2).sum(axis=1), **EXACT)


# Name: dof of each motor, its force at action 1 (N or N m).
MOTORS = {"cartpole": ([0], 1000), "hopper": ([3, 4, 5], 200), "half_cheetah": ([3, 4, 5, 6, 7, 8], 200)}


@pytest.mark.parametrize("name", NAMES)
def test_motor_forces(name, rng):
    """The action adds to the joints' momentum, over one short substep from rest, its force times the time."""
    env, (dofs, peak) = make(name), MOTORS[name]
    model, rest, dt = env.task.model, env.state, 1e-3
    action = torch.tensor(rng.uniform(-1, 1, (1, env.num_actions)))
    driven, idle = (
        trot.step(model, rest, env.task.control(each), dt, 1).joint_qd for each in (action, torch.zeros_like(action))
    )
    data = mujoco.MjData(model.source)
    data.qpos[:] = rest.joint_q[0]
    mujoco.mj_forward(model.source, data)
    mass_matrix = np.zeros((model.num_dofs, model.num_dofs))
    mujoco.mj_fullM(model.source, data, mass_matrix)
    expected = np.zeros(model.num_dofs)
    expected[dofs] = peak * action[0]
    assert_allclose(mass_matrix @ (driven - idle)[0].numpy() / dt, expected, rtol=0, atol=1e-8)
    assert_array_equal(model.motor_gear, np.full(len(dofs), peak))


@pytest.mark.parametrize(
    ("height", "fallen"), [(-0.4499, False), (-0.45, False), (np.nextafter(-0.45, -1), True), (-0.4501, True)]
)
def test_hopper_falls_below_its_height(height, fallen):
    env = make("hopper")
    # Not by its angle: it lies flat.
    measured = env.task.measure(trot.State(rows([0, height, 1.5, 0, 0, 0]), rows([0] * 6)))
    assert env.task.fallen(measured).tolist() == [[fallen]]


def test_hopper_that_falls_is_paid_for_the_fall_and_starts_anew():
    """One world sinks through the limit within the step, the other is above it and rises."""
    env = make("hopper", num_worlds=2)
    start = env.state
    pose, sinking, rising = [0, -0.449, *LOW_HOPPER[2:]], [0, -2, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0]
    before = trot.State(rows(pose, pose), rows(sinking, rising))
    env.place(before)
    action = rows([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])
    observation, reward, terminated, truncated, info = env.step(action)
    assert terminated.tolist() == [True, False]
    assert not truncated.any()
    after = trot.step(env.task.model, before, action, 1 / 60, 16)
    assert after.joint_q[0, 1] < -0.45 < after.joint_q[1, 1]
    expected = [reward_by_hand("hopper", *world) for world in zip(after.joint_q, after.joint_qd, action, strict=True)]
    assert_allclose(reward, expected, **EXACT)
    assert_allclose(info["final_obs"][0, 0], after.joint_q[0, 1], **EXACT)
    assert_array_equal(observation[0], np.zeros(11))
    assert torch.equal(env.state.joint_q[0], start.joint_q[0])


# States that no runner gets up from: a pole that spins far off the rail, a robot on its back in the ground.
HOPELESS = {"cartpole": ([50, 100], [-30, 40]), "half_cheetah": ([0, -0.98, np.pi] + [0] * 6, [-5, -3] + [0] * 7)}


@pytest.mark.parametrize("name", HOPELESS)
def test_cartpole_and_half_cheetah_never_end_early(name):
    env = make(name)
    q, qd = HOPELESS[name]
    env.place(trot.State(rows(q), rows(qd)))
    _, _, terminated, truncated, _ = env.step(torch.ones(1, env.num_actions, dtype=torch.float64))
    assert env.task.fallen(env.task.measure(env.state)) is None
    assert not terminated.any() and not truncated.any()


@pytest.mark.parametrize(("name", "length"), [("cartpole", 240), ("half_cheetah", 1000)])
def test_an_episode_ends_after_exactly_its_length(name, length):
    env = make(name)
    action = torch.zeros(1, env.num_actions, dtype=torch.float64)
    for step in range(1, length + 1):
        _, _, terminated, truncated, _ = env.step(action)
        assert truncated.item() == (step == length)
        assert not terminated.item()


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_observation_and_reward(name, rng):
    env = make(name, num_worlds=3)
    state = lively(env, rng)
    # Away from where the angle jumps by a whole turn.
    state.joint_q[:, -1] += 0.5
    inputs = [state.joint_q, state.joint_qd, torch.tensor(rng.uniform(-0.9, 0.9, (3, env.num_actions)))]

    def seen_and_paid(joint_q, joint_qd, action):
        measured = env.task.measure(trot.State(joint_q, joint_qd))
        parts = [*env.task.observation(measured, action).values(), *env.task.reward_terms(measured, action).values()]
        return torch.cat(parts, dim=1)

    assert gradcheck(seen_and_paid, [tensor.requires_grad_() for tensor in inputs], atol=1e-6, rtol=1e-6)
