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
    """How the next state changes, per world. A state's coordinates are the tangent of joint_q, then joint_qd.

    The tangent of joint_q has one number per dof: a rotation is a small turn in the body's own axes, as trot.retract
    applies it.
    """

    state: Tensor
    """A: (num_worlds, 2 num_dofs, 2 num_dofs)"""
    control: Tensor
    """B: (num_worlds, 2 num_dofs, num_controls)"""


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
    packed, run = prepare(model, state, parameters)
    ran = Pass(Physics(run, control_dt, substeps), state.joint_q, state.joint_qd, control, packed)
    ran.forward(keep=True)
    worlds, dofs = state.num_worlds, model.num_dofs
    padded = run.num_blocks(worlds) * run.kernels.sizes.worlds_per_block
    directions = torch.eye(2 * dofs, dtype=run.dtype, device=run.device).repeat_interleave(padded, dim=0)
    q_bar, qd_bar, control_bar, _ = ran.backward(directions[:, :dofs], directions[:, dofs:], tangent=True)

    def per_world(rows: Tensor) -> Tensor:
        return rows.reshape(2 * dofs, padded, -1)[:, :worlds].transpose(0, 1)

    return Linearization(per_world(torch.cat([q_bar, qd_bar], dim=1)).contiguous(), per_world(control_bar).contiguous())
