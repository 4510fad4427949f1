"""A world that blows up is set aside, and never poisons the others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BOUND = 1e6
"""A joint coordinate or velocity beyond this counts as blown up, as NaN does."""


@dataclass(frozen=True, eq=False)
class Guard:
    """What takes the place of a world that is not sound."""

    nominal_q: Tensor
    """(1, num_q) where it is put, at rest: a pose that can be observed."""
    zero: Tensor
    """A scalar. Where a plain 0.0 stands, PyTorch makes such a one on the GPU each time."""

    def replace(
        self, sound: Tensor, joint_q: Tensor, joint_qd: Tensor, activation: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The state, with every world that is not sound at the nominal pose and at rest, muscles not activated."""
        if surely_all(sound):
            return joint_q, joint_qd, activation
        if activation is not None:
            activation = torch.where(sound, activation, self.zero)
        return torch.where(sound, joint_q, self.nominal_q), torch.where(sound, joint_qd, self.zero), activation

    def silence(self, sound: Tensor, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """The gradients, with zeros for every world that is not sound."""
        if surely_all(sound):
            return gradients
        return [None if gradient is None else torch.where(sound, gradient, self.zero) for gradient in gradients]


def is_sound(joint_q: Tensor, joint_qd: Tensor, activation: Tensor | None = None) -> Tensor:
    """(num_worlds, 1) False where a number is NaN or beyond BOUND."""
    # The largest magnitude of a row is NaN if one of its numbers is, and no comparison with NaN holds.
    parts = [joint_q, joint_qd] if activation is None else [joint_q, joint_qd, activation]
    return torch.cat(parts, dim=1).abs().amax(dim=1, keepdim=True) <= BOUND


def surely_all(mask: Tensor) -> bool:
    """Whether a mask is known to hold everywhere. The GPU is never asked: there nothing is known, and masks decide.

    Where a mask holds everywhere, masked work changes nothing; on the CPU leaving it out saves half of an environment's
    time.
    """
    return not mask.is_cuda and bool(mask.all())
