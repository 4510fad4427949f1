"""Discounted returns in windows of steps, where episodes may end and others begin. Tensors are (steps, worlds).

With members they are (members, steps, worlds of each), and what is a number of all worlds is one of each member.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trot.learn.along_steps import average_returns, collect


def episode_start(done: Tensor) -> Tensor:
    """For every step, the step of the window that its episode began in; 0 also for what began before the window."""
    begins = torch.zeros_like(done, dtype=torch.int64)
    begins[..., 1:, :] = torch.where(done[..., :-1, :], _steps(done)[1:], 0)
    return begins.cummax(dim=-2).values


def discounts(done: Tensor, gamma: float | Tensor, dtype: torch.dtype) -> Tensor:
    """What each step counts: discounting begins anew with each episode. A gamma per member is (members, 1, 1)."""
    age = _steps(done) - episode_start(done)
    return gamma ** age.to(dtype)


def _steps(done: Tensor) -> Tensor:
    """(steps, 1) their numbers."""
    return torch.arange(done.shape[-2], device=done.device).unsqueeze(1)


def policy_loss(
    reward: Tensor, next_value: Tensor, done: Tensor, gamma: float | Tensor, horizon: Tensor | None = None
) -> Tensor:  # fmt: skip
    """Minus the mean discounted return, cut at the end of the window and completed there by the value function.

    next_value is the value after each step, already 0 where the episode fell. It counts where an episode ended and in
    the last step. Discounting begins anew with each episode. Divided by steps times worlds. Members may have
    each a gamma of its own, (members,).

    With a horizon, the window ends after so many of its steps, and the others count nothing: a whole number without
    dimensions, or (members,).
    """
    if isinstance(gamma, Tensor):
        gamma = gamma.view(-1, 1, 1)
    discount = discounts(done, gamma, reward.dtype)
    cut = done.clone()
    cut[..., -1, :] = True
    if horizon is not None:
        cut = cut | (_steps(done) == horizon[..., None, None] - 1)
    worth = discount * (reward + torch.where(cut, gamma * next_value, 0.0))
    if horizon is None:
        return -worth.mean(dim=(-2, -1))
    counted = torch.where(_steps(done) < horizon[..., None, None], worth, 0.0)
    return -counted.sum(dim=(-2, -1)) / (horizon * done.shape[-1])


def td_lambda(
    reward: Tensor, next_value: Tensor, done: Tensor, gamma: float | Tensor, lam: float | Tensor
) -> Tensor:  # fmt: skip
    """Targets for the value function: exponential averages over returns of 1, 2, ... steps, cut as in policy_loss.

    Beyond the last step there is only the value; where an episode ends, likewise. Members may have each a gamma and a
    lambda of its own, both (members,). No gradient flows to what they are made of.
    """
    return average_returns(reward, next_value, done, gamma, lam)


def finished_returns(reward: Tensor, done: Tensor, so_far: Tensor) -> tuple[Tensor, Tensor]:
    """The undiscounted return up to each step since its episode began, and what the next window goes on from.

    so_far: (worlds,) what the episodes that run into the window have collected before it.
    """
    return collect(reward, done, so_far)
