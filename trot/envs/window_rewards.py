"""The rewards of short windows of motion, as a function of what they begin from and of the actions in them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.envs.worlds import Worlds
from trot.sim.manifold import retract
from trot.sim.state import State

COARSE = 1024
"""Multiples of a thousandth or so are not the result of arithmetic in single precision."""

LOST = 1e5
"""More than this many times the rounding of double precision is a difference of numbers that are larger by as much."""


@dataclass(frozen=True)
class Windows:
    """Where each world begins and what it does there."""

    begin: Worlds
    actions: Tensor
    """(steps, worlds, actions)"""


Inputs = dict[str, Tensor]


class WindowRewards:
    """The rewards of all windows, as a function of offsets on their actions and on the state that they begin from."""

    def __init__(self, env: Env, windows: Windows) -> None:
        self.env, self.windows = env, windows
        env.worlds = windows.begin
        env.detach()
        self.saved = env.get_state()
        self.names: list[str] = []
        """Of the reward terms."""

    @property
    def zeros(self) -> Inputs:
        still = torch.zeros_like(self.windows.begin.joint_qd)
        return {"actions": torch.zeros_like(self.windows.actions), "joint_q": still, "joint_qd": still}

    def __call__(self, moved: Inputs) -> Tensor:
        """(worlds, terms of all steps, one term after the other), NaN where a world blows up.

        Worlds that end an episode get the same fresh starts every time.
        """
        env, begin = self.env, self.windows.begin
        env.set_state(self.saved)
        # The activation stays as it was saved.
        state = State(retract(env.task.model, begin.joint_q, moved["joint_q"]), begin.joint_qd + moved["joint_qd"])
        env.place(state, begin.previous_action)
        infos = [env.step(action)[4] for action in self.windows.actions + moved["actions"]]
        self.names = list(infos[0]["reward_terms"])
        terms = [info["reward_terms"][name] for name in self.names for info in infos]
        fault = torch.stack([info["fault"] for info in infos]).any(dim=0)
        return torch.where(fault.unsqueeze(1), torch.nan, torch.stack(terms, dim=1))

    def columns(self, term: int) -> slice:
        """Of one reward term."""
        steps = len(self.windows.actions)
        return slice(term * steps, (term + 1) * steps)

    @torch.no_grad()
    def require_finite(self, terms: Tensor) -> None:
        """Name a reward term that is not finite, though its world did not blow up when it was last run."""
        sound = self.env.worlds.faults == self.windows.begin.faults
        bad = ~terms.isfinite() & sound
        if bool(bad.any()):
            world, column = (int(i) for i in bad.nonzero()[0])
            term, step = divmod(column, len(self.windows.actions))
            raise ValueError(
                f"reward term '{self.names[term]}' is {float(terms[world, column])} in world {world}, step {step} of "
                "its window: look for a division by zero, or the root or logarithm of a negative number"
            )

    @torch.no_grad()
    def require_double(self, terms: Tensor) -> None:
        """Name a reward term that lost the digits of double precision: no difference could tell anything about it."""
        for k, name in enumerate(self.names):
            values = terms[:, self.columns(k)]
            values = values[values.isfinite()]
            # Few binary digits are a count, or yes and no.
            if bool((values * COARSE == (values * COARSE).round()).all()):
                continue
            if bool((values == values.float().double()).all()):
                raise ValueError(
                    f"reward term '{name}' is rounded to float32, too coarse for differences: look for .float() or for "
                    "tensors that are made without a dtype"
                )
            grain, finest = _grain(values), torch.finfo(torch.float64).eps * float(values.abs().max())
            if grain > LOST * finest:
                in_single = grain * torch.finfo(torch.float32).eps / torch.finfo(torch.float64).eps
                raise ValueError(
                    f"reward term '{name}' has a precision of {grain:.0e} in float64, too coarse for differences, and "
                    f"of {in_single:.1g} in float32, which trains: look for a difference of large numbers"
                )


def _grain(values: Tensor) -> float:
    """The largest power of two that they all are multiples of."""
    mantissa, exponent = torch.frexp(values[values != 0])
    digits = (mantissa * 2**53).long()
    # The last binary digit that is not zero.
    last = (digits & -digits).double()
    return float(torch.ldexp(last, exponent - 53).min())
