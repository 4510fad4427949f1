"""Ant, Humanoid and muscle Humanoid: every term of the reward by hand; derivatives of it and of the observation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closed_forms import times, turn
from exact_tasks import EXACT, make, rows
from floating_tasks import HEADING, HEIGHT_REWARD, NAMES, START_ROTATION, UP, actions, copy_of, squares, state_of
from numpy.testing import assert_allclose
from torch.autograd import gradcheck

import trot


@pytest.mark.parametrize("name", NAMES)
def test_reward_terms(name):
    env = make(name)
    action = actions(env)
    expected = {"forward": 1.5, "up": 0.1 * UP, "heading": HEADING[name]}
    if name == "ant":
        expected["height"] = 0.33  # 0.6 - 0.27; actions cost nothing
    elif name == "humanoid":
        expected["height"] = 0.6  # 10 (0.9 - 0.84)
        expected["effort"] = -0.002 * squares(action[0])
    else:
        expected["height"] = 0.08  # 4 (0.53 - 0.51)
        expected["effort"] = -0.001 * squares((a + 1) / 2 for a in action[0])
    terms = env.task.reward_terms(env.task.measure(state_of(name)), action)
    assert list(terms) == list(expected)
    for term, value in expected.items():
        assert_allclose(terms[term], [[value]], err_msg=term, **EXACT)


HEIGHTS = [
    ("ant", 1.27, 1),
    ("ant", 0.27, 0),
    ("ant", 0.07, -0.2),  # no kink, no bound
    ("humanoid", 1.5, 1),  # no more than 0.1 above 0.84 counts, ten times
    ("humanoid", 0.94, 1),
    ("humanoid", 0.93, 0.9),
    ("humanoid", 0.9, 0.6),
    ("humanoid", 0.84, 0),
    ("humanoid", 0.83, -0.02),  # below: 200 d^2
    ("humanoid", 0.8, -0.32),
    ("humanoid", 0.74, -2),
    ("humanoid", -0.15, -196.02),  # 200 * 0.99^2
    ("humanoid", -0.16, -200),  # no more than 1 below counts
    ("humanoid", -5, -200),
    ("muscle_humanoid", 1, 0.2),  # no more than 0.05 above 0.51 counts, four times
    ("muscle_humanoid", 0.56, 0.2),
    ("muscle_humanoid", 0.55, 0.16),
    ("muscle_humanoid", 0.53, 0.08),
    ("muscle_humanoid", 0.51, 0),
    ("muscle_humanoid", 0.5, -0.02),
    ("muscle_humanoid", 0.46, -0.5),
    ("muscle_humanoid", -0.48, -196.02),
    ("muscle_humanoid", -0.49, -200),
    ("muscle_humanoid", -3, -200),
]


@pytest.mark.parametrize(("name", "height", "term"), HEIGHTS)
def test_height_term(name, height, term):
    env, state = make(name), state_of(name)
    state.joint_q[0, 2] = height
    terms = env.task.reward_terms(env.task.measure(state), actions(env))
    assert_allclose(terms["height"], [[term]], **EXACT)


@pytest.mark.parametrize(
    ("name", "place", "heading"),
    [
        # The Humanoid is past its target and must turn back; the others' is far ahead.
        ("humanoid", (250, 0), -1),
        ("ant", (250, 0), 1),
        ("muscle_humanoid", (250, 0), 1),
        ("humanoid", (200, 70), 0),  # it lies straight to the right
        ("humanoid", (80, -160), 0.6),  # (120, 160) is (0.6, 0.8) of 200
        ("ant", (9880, 160), 0.6),
        ("muscle_humanoid", (9880, -160), 0.6),
    ],
)
def test_heading_is_the_cosine_of_the_way_to_the_target(name, place, heading):
    env = make(name)
    state = copy_of(env.state)
    state.joint_q[0, :2] = rows(place)
    assert_allclose(env.task.measure(state).heading, [[heading]], **EXACT)


@pytest.mark.parametrize(
    ("axis", "degrees", "up", "heading"),
    [
        ("z", 90, 1, 0),
        ("z", 180, 1, -1),
        ("x", 60, 0.5, 1),  # leaning sideways, still facing x
        ("y", 60, 0.5, 0.5),  # the nose points to the ground: half of it is left ahead
        ("x", 180, -1, 1),
        ("y", 180, -1, -1),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_up_and_heading_of_plain_turns(name, axis, degrees, up, heading):
    env = make(name)
    state = copy_of(env.state)
    state.joint_q[0, 3:7] = torch.tensor(times(turn(axis, np.radians(degrees)), START_ROTATION[name]))
    measured = env.task.measure(state)
    assert_allclose([measured.up.item(), measured.heading.item()], [up, heading], **EXACT)


@pytest.mark.parametrize(
    ("action", "effort"),
    [(-1, 0), (0, -0.038), (1, -0.152)],  # 152 muscles, slack, half and fully active: 0.001 * 152 * (0, 0.25, 1)
)
def test_muscle_humanoid_pays_for_the_squares_of_activations(action, effort):
    env = make("muscle_humanoid")
    terms = env.task.reward_terms(env.task.measure(env.state), torch.full((1, 152), action, dtype=torch.float64))
    assert_allclose(terms["effort"], [[effort]], **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_observation_and_reward(name):
    """At heights on every branch of the height's reward; quaternions count as four free numbers."""
    env, state = make(name, num_worlds=3), state_of(name)
    joint_q, joint_qd = state.joint_q.repeat(3, 1), state.joint_qd.repeat(3, 1)
    joint_q[:, 2] = HEIGHT_REWARD.get(name, (0.6,))[0] + torch.tensor([-0.03, 0.03, 0.3])

    def seen_and_paid(joint_q, joint_qd, action):
        measured = env.task.measure(trot.State(joint_q, joint_qd))
        parts = [*env.task.observation(measured, action).values(), *env.task.reward_terms(measured, action).values()]
        return torch.cat(parts, dim=1)

    inputs = [tensor.requires_grad_() for tensor in (joint_q, joint_qd, actions(env))]
    assert gradcheck(seen_and_paid, inputs, atol=1e-6, rtol=1e-6)
