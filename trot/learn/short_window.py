"""A short window of simulation that gradients flow through: what happened in it, and its adjoints."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trot.sim.state import State


@dataclass
class Window:
    """What a rollout leaves for the rest of its iteration, (horizon, worlds, ...)."""

    inputs: Tensor
    """Normalised observations that the policy saw."""
    answers: list[Tensor]
    """Of the policy: actions, and behind them what else the loss takes from it. The worlds of all members are in one
    axis, as in the following three."""
    actions: list[Tensor]
    """As the environment took them."""
    seen: list[Tensor]
    """Observations as they came, the one behind the window included."""
    states: list[State]
    """After each step, before any reset."""
    reward: Tensor
    paid: Tensor
    """What is learned from: the reward, and what a relative of SHAC adds to it."""
    next_value: Tensor
    """Of the target critic after each step; 0 after a fall."""
    cautious_value: Tensor
    """The same for the critic's own targets; SHAC makes no difference."""
    done: Tensor
    truncated: Tensor
    """Where time was up."""
    loss: Tensor


@dataclass
class Adjoints:
    """The loss's gradient by what happened in a window, (horizon, worlds of all members, ...)."""

    answers: Tensor
    joint_q: Tensor
    joint_qd: Tensor

    @classmethod
    def of(cls, window: Window) -> Adjoints:
        """One backward pass through the window."""
        steps = len(window.answers)
        joint_q, joint_qd = ([getattr(state, name) for state in window.states] for name in ("joint_q", "joint_qd"))
        # A member's loss depends on its own worlds alone.
        found = torch.autograd.grad(
            window.loss, [*window.answers, *joint_q, *joint_qd], torch.ones_like(window.loss), materialize_grads=True
        )
        return cls(*(torch.stack(found[first : first + steps]) for first in (0, steps, 2 * steps)))

    def state_norms(self, reward: Tensor) -> Tensor:
        """(horizon, worlds) of the gradient by each world's state; of its own return, not of the mean over all."""
        count = reward.shape[-2:].numel()
        return (self.joint_q.square().sum(dim=2) + self.joint_qd.square().sum(dim=2)).sqrt() * count
