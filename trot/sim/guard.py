"""A world that blows up is set aside, and never poisons the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from trot.sim.guard_kernels import set_aside, silence

BOUND = 1e6
"""A joint coordinate or velocity beyond this counts as blown up, as NaN does."""


class Guarded(NamedTuple):
    """A state behind the guard."""

    joint_q: Tensor
    joint_qd: Tensor
    activation: Tensor | None
    sound: Tensor
    """(num_worlds, 1) False where the world was set aside."""
    all_sound: bool
    """Whether that is known to hold everywhere; the GPU is never asked."""
    action: Tensor | None
    """What the worlds did, zeros where they were set aside: the action may be what was not finite."""


@dataclass(frozen=True, eq=False)
class Guard:
    """What takes the place of a world that is not sound."""

    nominal_q: Tensor
    """(1, num_q) where it is put, at rest: a pose that can be observed."""
    zero: Tensor
    """A scalar. Where a plain 0.0 stands, PyTorch makes such a one on the GPU each time."""
    native: bool | None = None
    """Whether one kernel does it, without looking at what it finds; None: on CUDA alone."""

    @property
    def _by_kernels(self) -> bool:
        return self.zero.is_cuda if self.native is None else self.native

    def take(
        self, joint_q: Tensor, joint_qd: Tensor, activation: Tensor | None, action: Tensor | None = None
    ) -> Guarded:
        """The state, with every world that is not sound at the nominal pose and at rest, muscles not activated.

        The tensors of the state are the guard's: it may write there.
        """
        if self._by_kernels:
            sound, action = set_aside(self.nominal_q, BOUND, joint_q, joint_qd, activation, action)
            return Guarded(joint_q, joint_qd, activation, sound, False, action)
        if surely_sound(joint_q, joint_qd, activation):
            everyone = joint_q.new_ones((len(joint_q), 1), dtype=torch.bool)
            return Guarded(joint_q, joint_qd, activation, everyone, True, action)
        sound = is_sound(joint_q, joint_qd, activation)
        joint_q, joint_qd = torch.where(sound, joint_q, self.nominal_q), torch.where(sound, joint_qd, self.zero)
        others = [None if part is None else torch.where(sound, part, self.zero) for part in (activation, action)]
        return Guarded(joint_q, joint_qd, others[0], sound, False, others[1])

    def silence(
        self, sound: Tensor, bars: dict[str, Tensor | None], action_bar: Tensor | None
    ) -> tuple[list[Tensor | None], Tensor | None]:
        """The derivatives by joint_q, joint_qd, activation, control and parameter, and by the action.

        With zeros for every world that is not sound. All but the last are the guard's: it may write there.
        """
        if self._by_kernels:
            action_bar = silence(sound, bars, action_bar)
            return list(bars.values()), action_bar
        *found, action_bar = [
            None if bar is None else torch.where(sound, bar, self.zero) for bar in (*bars.values(), action_bar)
        ]
        return found, action_bar


def is_sound(joint_q: Tensor, joint_qd: Tensor, activation: Tensor | None = None) -> Tensor:
    """(num_worlds, 1) False where a number is NaN or beyond BOUND."""
    # The largest magnitude of a row is NaN if one of its numbers is, and no comparison with NaN holds.
    return torch.cat(_present(joint_q, joint_qd, activation), dim=1).abs().amax(dim=1, keepdim=True) <= BOUND


def surely_sound(joint_q: Tensor, joint_qd: Tensor, activation: Tensor | None = None) -> bool:
    """Whether all worlds are known to be sound, told by one number of each tensor: a quarter of the time of is_sound().

    Masks are then left out, which saves half of an environment's time. No number is larger than the root of all
    squares, which is NaN if one number is. Worlds may be sound where this says no. The GPU is never asked.
    """
    if joint_q.is_cuda:
        return False
    flat = [part.reshape(-1) for part in _present(joint_q, joint_qd, activation)]
    return sum(float(torch.dot(part, part)) for part in flat) < BOUND**2 / 2


def _present(joint_q: Tensor, joint_qd: Tensor, activation: Tensor | None) -> list[Tensor]:
    return [joint_q, joint_qd] if activation is None else [joint_q, joint_qd, activation]
