"""What is measured of a cart and the pole on it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from trot.sim.native_operation import RowOperation
from trot.sim.state import State

_measure = RowOperation(
    Path(__file__).parent / "cart_and_pole.h", "measure", inputs=("joint_q", "joint_qd"), settings=()
)


def cart_and_pole(state: State) -> tuple[Tensor, ...]:
    """Position and velocity of the cart, sine and cosine of the pole's angle, and its rate: a column each.

    On CUDA one kernel each way; on the CPU PyTorch's few small operations take no longer.
    """
    if state.joint_q.is_cuda:
        return cart_and_pole_by_kernel(state)
    position, angle = torch.split(state.joint_q, 1, dim=1)
    velocity, angle_rate = torch.split(state.joint_qd, 1, dim=1)
    return position, velocity, angle.sin(), angle.cos(), angle_rate


def cart_and_pole_by_kernel(state: State) -> tuple[Tensor, ...]:
    """The same wherever it is."""
    return _measure((state.joint_q, state.joint_qd), 5, {}).split_with_sizes([1] * 5, dim=1)
