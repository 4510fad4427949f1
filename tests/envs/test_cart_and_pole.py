"""A cart and its pole by one kernel each way, against sines and cosines of NumPy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.autograd import gradcheck

import trot
from trot.envs.cart_and_pole import cart_and_pole, cart_and_pole_by_kernel

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def drawn(rng, device):
    return [torch.tensor(rng.normal(scale=4, size=(40, 2)), device=device) for _ in range(2)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("measure", [cart_and_pole, cart_and_pole_by_kernel])
def test_measured(rng, measure, device):
    joint_q, joint_qd = drawn(rng, device)
    q, qd = joint_q.cpu().numpy(), joint_qd.cpu().numpy()
    expected = [q[:, :1], qd[:, :1], np.sin(q[:, 1:]), np.cos(q[:, 1:]), qd[:, 1:]]
    for found, column in zip(measure(trot.State(joint_q, joint_qd)), expected, strict=True):
        assert_allclose(found.cpu(), column, atol=1e-15)


@pytest.mark.parametrize("device", DEVICES)
def test_derivatives(rng, device):
    inputs = [part.requires_grad_() for part in drawn(rng, device)]
    assert gradcheck(lambda *state: cart_and_pole_by_kernel(trot.State(*state)), inputs, atol=1e-8, rtol=1e-7)
