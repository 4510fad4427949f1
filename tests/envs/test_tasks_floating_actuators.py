"""Ant, Humanoid and muscle Humanoid: what actions do to motors and muscles."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from exact_tasks import make, rows
from floating_tasks import actions
from numpy.testing import assert_allclose, assert_array_equal

import trot

# Name: force of each motor at action 1 (N m). Trunk, two legs, two arms of the Humanoid: 0.35 times its strengths.
LEG, ARM = [70, 70, 210, 140, 35, 35], [35, 35, 70]
PEAK_TORQUE = {"ant": [200] * 8, "humanoid": [70, 70, 70, *LEG, *LEG, *ARM, *ARM]}


def added_force(env: trot.Env, action: torch.Tensor, idle: torch.Tensor) -> np.ndarray:
    """What the action adds to the generalised momentum in one short substep from rest, over the time."""
    model, rest, dt = env.task.model, env.state, 1e-4
    after, after_idle = (
        trot.step(model, rest, env.task.control(each), dt, 1).joint_qd[0].numpy() for each in (action, idle)
    )
    data = mujoco.MjData(model.source)
    data.qpos[:] = rest.joint_q[0]
    mujoco.mj_forward(model.source, data)
    mass_matrix = np.zeros((model.num_dofs, model.num_dofs))
    mujoco.mj_fullM(model.source, data, mass_matrix)
    return mass_matrix @ (after - after_idle) / dt


@pytest.mark.parametrize("name", PEAK_TORQUE)
def test_motor_torques(name):
    env = make(name)
    action = actions(env)
    expected = [0] * 6 + [peak * a for peak, a in zip(PEAK_TORQUE[name], action[0].tolist(), strict=True)]
    assert_allclose(added_force(env, action, torch.zeros_like(action)), expected, rtol=0, atol=1e-7)
    assert_array_equal(env.task.model.motor_gear, PEAK_TORQUE[name])


def test_muscle_humanoid_maps_actions_to_activations():
    control = make("muscle_humanoid").task.control(rows([-1, -0.5, 0, 0.5, 1]))
    assert control.tolist() == [[0, 0.25, 0.5, 0.75, 1]]


def test_muscle_tensions():
    """0.36 of the strengths: 45 N to 1793 N (soleus), 363 N on average, 55.2 kN together."""
    env = make("muscle_humanoid")
    model, peak = env.task.model, env.task.model.muscle_peak_force
    assert peak.min() == pytest.approx(0.36 * 45, abs=0.36 * 0.5)
    assert peak.max() == pytest.approx(0.36 * 1793, abs=0.36 * 0.5)
    assert peak.mean() == pytest.approx(0.36 * 363, abs=0.36 * 0.5)
    assert peak.sum() == pytest.approx(0.36 * 55.2e3, abs=0.36 * 50)
    assert "soleus" in model.actuator_name[model.muscle_actuator[np.argmax(peak)]]

    # Muscles pull along straight lines with activation times that: the loss of length per dof times it.
    action = actions(env)
    data = mujoco.MjData(model.source)
    data.qpos[:] = env.state.joint_q[0]
    data.ctrl[:] = (action[0] + 1) / 2
    mujoco.mj_forward(model.source, data)
    found = added_force(env, action, torch.full_like(action, -1))
    assert_allclose(found, data.qfrc_actuator, rtol=0, atol=1e-7)
