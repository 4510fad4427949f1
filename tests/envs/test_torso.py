"""What the three-dimensional tasks measure of a torso, against MuJoCo's rotations, and its derivative."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closed_forms import rotation, times, turn
from numpy.testing import assert_allclose
from torch.autograd import gradcheck

import trot
from trot.envs.torso import measure_torso

TARGET = 3.0
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def states(rng, count, num_joints=5, dtype=torch.float64, device="cpu"):
    """Torsos all over the place, turned in every way, the half turns included."""
    joint_q, joint_qd = rng.normal(size=(count, 7 + num_joints)), rng.normal(size=(count, 6 + num_joints))
    joint_q[:, 3:7] /= np.linalg.norm(joint_q[:, 3:7], axis=1, keepdims=True)
    joint_q[:4, 3:7] = np.eye(4)[:count]
    return trot.State(*(torch.tensor(part, dtype=dtype, device=device) for part in (joint_q, joint_qd)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("up_axis", "xyz")
@pytest.mark.parametrize("forward_axis", "xyz")
def test_measured_against_mujoco(rng, up_axis, forward_axis, device):
    state = states(rng, 200, device=device)
    found = measure_torso(state, TARGET, up_axis, forward_axis)
    q, qd = state.joint_q.cpu().numpy(), state.joint_qd.cpu().numpy()
    matrices = np.array([rotation(quaternion) for quaternion in q[:, 3:7]])
    way = np.array([TARGET, 0]) - q[:, :2]
    forward = matrices[:, :2, "xyz".index(forward_axis)]
    expected = {
        "height": q[:, 2:3],
        "rotation": q[:, 3:7],
        "velocity": qd[:, :3],
        "forward_speed": qd[:, :1],
        "angular_velocity": np.einsum("nij,nj->ni", matrices, qd[:, 3:6]),
        "joints": q[:, 7:],
        "joint_rates": qd[:, 6:],
        "up": matrices[:, 2:, "xyz".index(up_axis)],
        "heading": ((forward * way).sum(axis=1) / np.linalg.norm(way, axis=1))[:, None],
    }
    for name, values in expected.items():
        assert_allclose(getattr(found, name).cpu(), values, atol=1e-13, err_msg=name)


def test_a_known_turn():
    """30 degrees about z, then 20 about the body's own x: x stays level, z leans towards the body's -y."""
    quaternion = times(turn("z", np.radians(30)), turn("x", np.radians(20)))
    joint_q = torch.tensor([[TARGET - 2, -2.0, 1, *quaternion]], dtype=torch.float64)
    found = measure_torso(trot.State(joint_q, joint_q.new_zeros(1, 6)), TARGET)
    assert found.up.item() == pytest.approx(np.cos(np.radians(20)), abs=1e-15)
    # The target lies at 45 degrees.
    assert found.heading.item() == pytest.approx(np.cos(np.radians(15)), abs=1e-15)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("up_axis", "forward_axis"), ["zx", "yz", "xx"])
def test_derivatives(rng, up_axis, forward_axis, device):
    state = states(rng, 5, device=device)

    def everything(joint_q, joint_qd):
        measured = measure_torso(trot.State(joint_q, joint_qd), TARGET, up_axis, forward_axis)
        return torch.cat(list(vars(measured).values()), dim=1)

    inputs = [part.requires_grad_() for part in (state.joint_q, state.joint_qd)]
    assert gradcheck(everything, inputs, atol=1e-8, rtol=1e-7)


def test_rows_need_not_lie_one_after_the_other(rng):
    state = states(rng, 6)
    apart = trot.State(*(part.T.contiguous().T for part in (state.joint_q, state.joint_qd)))
    assert not apart.joint_q.is_contiguous()
    assert measure_torso(apart, TARGET).heading.equal(measure_torso(state, TARGET).heading)


def test_float32_stays_float32():
    expected = measure_torso(states(np.random.default_rng(3), 50), TARGET)
    found = measure_torso(states(np.random.default_rng(3), 50, dtype=torch.float32), TARGET)
    for name, values in vars(found).items():
        assert values.dtype == torch.float32
        assert_allclose(values, getattr(expected, name), atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    ("joint_q", "joint_qd", "axis", "message"),
    [
        (torch.zeros(3, 6), torch.zeros(3, 6), "z", "whose first joint is free"),
        (torch.zeros(3, 7), torch.zeros(3, 5), "z", "whose first joint is free"),
        (torch.zeros(3, 7), torch.zeros(2, 6), "z", "one row per world"),
        (torch.zeros(3, 7), torch.zeros(3, 6, dtype=torch.float64), "z", "both float64"),
        (torch.zeros(3, 7).half(), torch.zeros(3, 6).half(), "z", "both float64"),
        (torch.zeros(3, 7), torch.zeros(3, 6), "up", "an axis is x, y or z, not 'up'"),
    ],
)
def test_what_does_not_fit_is_told_before_a_kernel_sees_it(joint_q, joint_qd, axis, message):
    with pytest.raises(ValueError, match=message):
        measure_torso(trot.State(joint_q, joint_qd), TARGET, up_axis=axis)
