"""The physics step as environments take it: a world that blows up is set aside, and never poisons the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trot.sim.launch import Launcher
from trot.sim.step import Pass

BOUND = 1e6
"""A joint coordinate or velocity beyond this counts as blown up, as NaN does."""


@dataclass(frozen=True)
class Physics:
    """What stays the same from step to step."""

    run: Launcher
    control_dt: float
    substeps: int
    nominal_q: Tensor
    """(1, num_q) where a world that blew up is put until its reset: a pose that can be observed."""
    zero: Tensor
    """A scalar. Where a plain 0.0 stands, PyTorch makes such a one on the GPU each time."""


def guarded_step(
    physics: Physics, joint_q: Tensor, joint_qd: Tensor, control: Tensor, parameter: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The next joint_q and joint_qd, and (num_worlds, 1) which of them are sound.

    A world that is not sound comes back at the nominal pose and at rest, and no gradient passes through its step. The
    others get exactly what trot.step gives them. Unlike trot.step it never waits for the GPU.
    """
    keep = torch.is_grad_enabled() and (joint_q.requires_grad or joint_qd.requires_grad or control.requires_grad)
    next_q, next_qd, sound = _GuardedStep.apply(physics, keep, joint_q, joint_qd, control, parameter)  # type: ignore[no-untyped-call]
    return next_q, next_qd, sound


def is_sound(joint_q: Tensor, joint_qd: Tensor) -> Tensor:
    """(num_worlds, 1) False where a number is NaN or beyond BOUND."""
    # The largest magnitude of a row is NaN if one of its numbers is, and no comparison with NaN holds.
    return torch.cat([joint_q, joint_qd], dim=1).abs().amax(dim=1, keepdim=True) <= BOUND


def surely_all(mask: Tensor) -> bool:
    """Whether a mask is known to hold everywhere. The GPU is never asked: there nothing is known, and masks decide.

    Where a mask holds everywhere, masked work changes nothing; on the CPU leaving it out saves half of an environment's
    time.
    """
    return not mask.is_cuda and bool(mask.all())


class _GuardedStep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, physics: Physics, keep: bool, joint_q: Tensor, joint_qd: Tensor, control: Tensor,
        parameter: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        ran = Pass(physics.run, physics.control_dt, physics.substeps, joint_q, joint_qd, control, parameter)
        next_q, next_qd = ran.forward(keep)
        sound = is_sound(next_q, next_qd)
        if keep:
            ctx.physics = physics
            ctx.save_for_backward(ran.joint_q, ran.joint_qd, ran.control, parameter, next_q, ran.trajectory, sound)
        ctx.mark_non_differentiable(sound)
        # Or PyTorch would make up a gradient of zeros by it.
        ctx.set_materialize_grads(False)
        if not surely_all(sound):
            next_q, next_qd = torch.where(sound, next_q, physics.nominal_q), torch.where(sound, next_qd, physics.zero)
        return next_q, next_qd, sound

    @staticmethod
    def backward(
        ctx: Any, next_q_bar: Tensor | None, next_qd_bar: Tensor | None, sound_bar: None
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        if torch.is_grad_enabled():
            raise NotImplementedError("trot has first derivatives only; create_graph=True would miss the physics")
        joint_q, joint_qd, control, parameter, next_q, trajectory, sound = ctx.saved_tensors
        next_q_bar = torch.zeros_like(joint_q) if next_q_bar is None else next_q_bar
        next_qd_bar = torch.zeros_like(joint_qd) if next_qd_bar is None else next_qd_bar
        physics = ctx.physics
        ran = Pass(
            physics.run, physics.control_dt, physics.substeps, joint_q, joint_qd, control, parameter, next_q, trajectory
        )
        joint_q_bar, joint_qd_bar, control_bar, _ = ran.backward(next_q_bar, next_qd_bar, tangent=False)
        gradients = [joint_q_bar, joint_qd_bar, control_bar]
        if not surely_all(sound):
            gradients = [torch.where(sound, gradient, physics.zero) for gradient in gradients]
        return None, None, *gradients, None
