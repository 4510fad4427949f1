"""Jacobians of a control step, for model-predictive control and iLQR."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trot.sim.model import Model
from trot.sim.parameters import Parameters
from trot.sim.state import State
from trot.sim.step import Pass, Physics, check_inputs, prepare


class Linearization(NamedTuple):
    """How the next state changes, per world. Its coordinates are the tangent of joint_q, joint_qd, then activation.

    The tangent of joint_q has one number per dof: a rotation is a small turn in the body's own axes, as trot.retract
    applies it.
    """

    state: Tensor
    """A: (num_worlds, n, n) with n = 2 num_dofs + num_acts"""
    control: Tensor
    """B: (num_worlds, n, num_controls)"""


@torch.no_grad()
def linearize(
    model: Model,
    state: State,
    control: Tensor,
    control_dt: float,
    substeps: int = 1,
    parameters: Parameters | None = None,
) -> Linearization:
    """A = d next_state / d state and B = d next_state / d control of one control step, exact for what step() computes.

    One forward pass, then one backward launch that runs every row of the Jacobians side by side.
    """
    check_inputs(model, state, control, control_dt, substeps)
    packed, run = prepare(model, state, substeps, parameters)
    physics = Physics(run, control_dt, substeps)
    ran = Pass(physics, state.joint_q, state.joint_qd, control, packed, activation=state.activation)
    ran.forward(keep=True)
    worlds, dofs = state.num_worlds, model.num_dofs
    padded = run.num_blocks(worlds) * run.kernels.sizes.worlds_per_block
    width = 2 * dofs + model.num_acts
    directions = torch.eye(width, dtype=run.dtype, device=run.device).repeat_interleave(padded, dim=0)
    q_bar, qd_bar, activation_bar, control_bar, _ = ran.backward(
        directions[:, :dofs],
        directions[:, dofs : 2 * dofs],
        tangent=True,
        next_activation_bar=directions[:, 2 * dofs :] if model.num_acts else None,
    )

    def per_world(rows: Tensor) -> Tensor:
        return rows.reshape(width, padded, -1)[:, :worlds].transpose(0, 1)

    bars = [q_bar, qd_bar] if activation_bar is None else [q_bar, qd_bar, activation_bar]
    return Linearization(per_world(torch.cat(bars, dim=1)).contiguous(), per_world(control_bar).contiguous())
