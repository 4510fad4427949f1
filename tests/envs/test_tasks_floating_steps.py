"""Ant, Humanoid and muscle Humanoid: steps pay by the paper's formulas, and episodes end with a fall."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closed_forms import rotation, times, turn
from exact_tasks import EXACT, make, rows
from floating_tasks import HEIGHT_REWARD, NAMES, START_ROTATION, SUBSTEPS, actions, copy_of, squares, state_of
from numpy.testing import assert_allclose, assert_array_equal

import trot

TARGET = {"ant": 10_000, "humanoid": 200, "muscle_humanoid": 10_000}
FALLEN = {"ant": 0.27, "humanoid": 0.74, "muscle_humanoid": 0.46}


def reward_by_hand(name: str, q: np.ndarray, qd: np.ndarray, action: np.ndarray) -> float:
    """The paper's formulas in plain arithmetic, for one world."""
    back = np.array(START_ROTATION[name]) * [1, -1, -1, -1]
    since_start = rotation(times(q[3:7], back))
    to_target = np.array([TARGET[name] - q[0], -q[1]])
    heading = since_start[:2, 0] @ to_target / np.linalg.norm(to_target)
    common = qd[0] + 0.1 * since_start[2, 2] + heading
    if name == "ant":
        return common + q[2] - 0.27
    wanted, reach, gain = HEIGHT_REWARD[name]
    above = min(max(q[2] - wanted, -1), reach)
    height = -200 * above**2 if above < 0 else gain * above
    effort = 0.002 * squares(action) if name == "humanoid" else 0.001 * squares((action + 1) / 2)
    return common + height - effort


def rewards_by_hand(name: str, after: trot.State, action: torch.Tensor) -> list[float]:
    worlds = zip(after.joint_q.numpy(), after.joint_qd.numpy(), action.numpy(), strict=True)
    return [reward_by_hand(name, *world) for world in worlds]


def next_state(name: str, env: trot.Env, before: trot.State, action: torch.Tensor) -> trot.State:
    """A motor's control is the action itself, a muscle's its activation."""
    control = (action + 1) / 2 if name == "muscle_humanoid" else action
    return trot.step(env.task.model, before, control, 1 / 60, SUBSTEPS[name])


@pytest.mark.parametrize("name", NAMES)
def test_step_from_rest_with_a_known_action(name):
    env = make(name)
    start, action = env.state, actions(env)
    _, reward, _, _, info = env.step(action)
    after = next_state(name, env, start, action)
    assert torch.equal(env.state.joint_q, after.joint_q)
    assert torch.equal(env.state.joint_qd, after.joint_qd)
    assert_allclose(reward, rewards_by_hand(name, after, action), **EXACT)
    assert_allclose(sum(info["reward_terms"].values()), reward, **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_step_pays_for_the_state_after_it(name, rng):
    """Lively worlds, far apart, on every branch of the height's reward."""
    env = make(name, num_worlds=4)
    state = state_of(name)
    before = trot.State(state.joint_q.repeat(4, 1), state.joint_qd.repeat(4, 1))
    before.joint_q[:, :2] = rows((0, 0), (30, -40), (120, 160), (-500, 900))
    before.joint_q[:, 2] = FALLEN[name] + torch.tensor([0.04, 0.08, 0.12, 0.5])
    before.joint_qd[:] = torch.tensor(rng.uniform(-1, 1, before.joint_qd.shape))
    env.place(before)
    action = torch.tensor(rng.uniform(-1, 1, (4, env.num_actions)))
    observation, reward, terminated, truncated, _ = env.step(action)
    assert not terminated.any() and not truncated.any()
    after = next_state(name, env, before, action)
    assert torch.equal(env.state.joint_q, after.joint_q)
    if name != "ant":
        wanted, reach, _ = HEIGHT_REWARD[name]
        heights = after.joint_q[:, 2] - wanted
        assert heights[0] < 0 < heights[1] < reach < heights[3]
    assert_allclose(reward, rewards_by_hand(name, after, action), **EXACT)
    assert torch.equal(observation, env.place(after, action))


@pytest.mark.parametrize("name", NAMES)
def test_actions_beyond_their_range_are_clipped(name, rng):
    """Costs, motors and the observation's last slots all get the clipped one."""
    env, twin = make(name, num_worlds=2), make(name, num_worlds=2)
    action = torch.tensor(rng.uniform(-3, 3, (2, env.num_actions)))
    action[:, 0], action[:, 1] = 1.7, -2.5
    clipped = torch.tensor(np.clip(action.numpy(), -1, 1))
    start = env.state
    observation, reward, _, _, _ = env.step(action)
    expected_observation, expected_reward, _, _, _ = twin.step(clipped)
    assert torch.equal(observation, expected_observation)
    assert torch.equal(reward, expected_reward)
    assert_allclose(reward, rewards_by_hand(name, next_state(name, env, start, clipped), clipped), **EXACT)
    assert torch.equal(env.worlds.previous_action, clipped)
    if name != "muscle_humanoid":
        assert torch.equal(observation[:, -env.num_actions :], clipped)


# Ends of episodes.


@pytest.mark.parametrize("name", NAMES)
def test_fallen_is_below_the_height_and_nothing_else(name):
    env = make(name)
    border = FALLEN[name]
    state = state_of(name)
    for height, fallen in [
        (border + 1e-4, False),
        (border, False),
        (np.nextafter(border, 0), True),
        (border - 1e-4, True),
    ]:
        state.joint_q[0, 2] = height
        assert env.task.fallen(env.task.measure(state)).tolist() == [[fallen]]
    # Upside down, but high up.
    state.joint_q[0, 2:7] = torch.tensor([border + 1, *times(turn("x", np.pi), START_ROTATION[name])])
    assert env.task.fallen(env.task.measure(state)).tolist() == [[False]]


@pytest.mark.parametrize("name", NAMES)
def test_world_that_falls_is_paid_for_the_fall_and_starts_anew(name):
    """One world sinks through the limit within the step, the other is above it and rises."""
    env = make(name, num_worlds=2)
    start = env.state
    before = copy_of(start)
    if name == "ant":
        before.joint_q[:, 7:] = 0  # legs level
    else:
        before.joint_q[:, 3:7] = torch.tensor(times(turn("y", np.pi / 2), START_ROTATION[name]))  # lying in the air
    before.joint_q[:, 2] = FALLEN[name] + 1e-3
    before.joint_qd[:, 2] = torch.tensor([-2.0, 2.0])
    env.place(before)
    action = 1.5 * actions(env)
    clipped = action.clamp(-1, 1)
    observation, reward, terminated, truncated, info = env.step(action)
    assert terminated.tolist() == [True, False]
    assert not truncated.any()
    after = next_state(name, env, before, clipped)
    assert after.joint_q[0, 2] < FALLEN[name] < after.joint_q[1, 2]
    assert_allclose(reward, rewards_by_hand(name, after, clipped), **EXACT)
    assert_allclose(info["final_obs"][:, 0], after.joint_q[:, 2], **EXACT)
    assert torch.equal(env.state.joint_q[0], start.joint_q[0])
    assert torch.equal(env.worlds.previous_action, torch.stack([torch.zeros_like(clipped[0]), clipped[1]]))
    if name != "muscle_humanoid":
        # The new episode has no previous action; the old one's last observation has.
        assert_array_equal(observation[0, -env.num_actions :], np.zeros(env.num_actions))
        assert torch.equal(info["final_obs"][:, -env.num_actions :], clipped)
        assert torch.equal(observation[1], info["final_obs"][1])


@pytest.mark.parametrize("name", NAMES)
def test_no_previous_action_after_a_reset(name):
    env = make(name)
    env.step(actions(env))
    observation, _ = env.reset()
    assert_array_equal(env.worlds.previous_action, np.zeros((1, env.num_actions)))
    if name != "muscle_humanoid":
        assert_array_equal(observation[0, -env.num_actions :], np.zeros(env.num_actions))
