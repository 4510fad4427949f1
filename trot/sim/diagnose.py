"""Finding out where a simulation went wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from trot.sim.errors import NonFiniteError
from trot.sim.model import JointType, Model
from trot.sim.parameters import Parameters
from trot.sim.state import State
from trot.sim.step import Pass, Physics, check_inputs, prepare


@torch.no_grad()
def check_finite(
    model: Model,
    state: State,
    control: Tensor,
    control_dt: float,
    substeps: int = 1,
    parameters: Parameters | None = None,
) -> None:
    """Run a step again, with the arguments of step(), and raise NonFiniteError naming where it first goes wrong.

    Substeps count from 0; None in the error means that the state was already bad. A finite step returns quietly.
    """
    check_inputs(model, state, control, control_dt, substeps)
    if not bool(state.finite.all()):
        bad_qd = ~state.joint_qd.isfinite()
        bad_q = _by_dof(model, ~state.joint_q.isfinite())
        _refuse_bad_activation(model, state)
        _raise_first(model, (bad_q | bad_qd).unsqueeze(0), before=True)
    packed, run = prepare(model, state, substeps, parameters)
    physics = Physics(run, control_dt, substeps)
    ran = Pass(physics, state.joint_q, state.joint_qd, control, packed, activation=state.activation)
    next_q, next_qd, _ = ran.forward(keep=True)
    if bool(State(next_q, next_qd).finite.all()):
        return
    assert ran.trajectory is not None
    # (substeps, blocks, record, worlds of a block) -> (substeps, worlds, record)
    records = ran.trajectory.transpose(2, 3).reshape(substeps, -1, ran.trajectory.shape[2])[:, : state.num_worlds]
    # A record holds the state before its substep; what a substep leaves stands in the next record, or in the result.
    after_q = torch.cat([records[1:, :, : model.num_q], next_q.unsqueeze(0)])
    after_qd = torch.cat([records[1:, :, model.num_q : model.num_q + model.num_dofs], next_qd.unsqueeze(0)])
    bad = ~after_qd.isfinite() | _by_dof(model, ~after_q.isfinite())
    _raise_first(model, bad, before=False)


def _refuse_bad_activation(model: Model, state: State) -> None:
    """Given, it can be bad; computed, never: it follows a finite control."""
    if state.activation is None or bool(state.activation.isfinite().all()):
        return
    world, act = (int(i) for i in (~state.activation.isfinite()).nonzero()[0])
    muscle = model.actuator_name[model.act_actuator[act]]
    raise ValueError(f"activation[{world}, {act}] of '{muscle}' is {float(state.activation[world, act])}")


def _by_dof(model: Model, bad_q: Tensor) -> Tensor:
    """Which dofs have a bad coordinate; a bad quaternion counts for each of its three."""
    bad = torch.zeros(*bad_q.shape[:-1], model.num_dofs, dtype=torch.bool, device=bad_q.device)
    for kind, q, dof in zip(model.joint_type, model.joint_q_start, model.joint_dof_start, strict=True):
        plain = JointType(kind).num_plain
        bad[..., dof : dof + plain] = bad_q[..., q : q + plain]
        if JointType(kind).has_quaternion:
            quaternion = bad_q[..., q + plain : q + plain + 4]
            bad[..., dof + plain : dof + plain + 3] = quaternion.any(dim=-1, keepdim=True)
    return bad


def _raise_first(model: Model, bad: Tensor, before: bool) -> None:
    """Name the earliest substep of (substeps, worlds, dofs), then the lowest world and dof."""
    substep, world, dof = (int(i) for i in bad.nonzero()[0])
    num_worlds = int(bad.any(dim=2).any(dim=0).sum())
    raise NonFiniteError(world, None if before else substep, model.dof_name[dof], num_worlds)
