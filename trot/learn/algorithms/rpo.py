"""Reparameterised policy optimisation: several steps of the policy from one window's gradients.

The window is simulated and differentiated once, as SHAC does. The gradient by every sample is kept, and some passes
push it through the policy as it is by then:

    improve_policy  one backward pass; then in each pass the policy, as it has become, draws the same samples again from
                    other noise. A sample counts by how much more probable it is by now, and not at all where that is
                    too much. The divergence from the policy that acted costs, and entropy pays.

The first pass is SHAC's step, but for the entropy. Ratios are weights here: no gradient goes through them.

"Reparameterization Proximal Policy Optimization", arXiv 2508.06214, 2025.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trot.command_line import WorldCount
from trot.learn.algorithms.ppo import log_normal
from trot.learn.algorithms.several_critics import SeveralCritics, SeveralCriticsSettings, require_deviation
from trot.learn.learner import Algorithm, require_at_least_one
from trot.learn.members import cosine


@dataclass(frozen=True)
class RpoSettings(SeveralCriticsSettings):
    """Defaults are the authors' setting for the Ant without its entropy; rates fall linearly, as SHAC's do."""

    num_worlds: WorldCount = 128
    actor_lr: float = 5e-4
    target_keep: float = 0.2
    actor_hidden: tuple[int, ...] = (400, 200, 100)
    critic_hidden: tuple[int, ...] = (400, 200, 100)
    policy_passes: int = 5
    """Steps of the policy from one window."""
    ratio_bounds: tuple[float, float] = (0.2, 2.0)
    """Samples count while they are so many times as probable as when they were drawn."""
    kl_weight: float = 0.25
    """Of the divergence from the policy that acted."""
    entropy_weight: float = 0.0
    """What a unit of entropy is worth. Above 0 the deviation may grow until the policy fails."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "policy_passes")
        require_deviation(self, "probabilities of its actions are compared")
        low, high = self.ratio_bounds
        if not 0 <= low < 1 < high < math.inf:
            raise ValueError(f"ratio_bounds must be a number below 1 and one above it, not {self.ratio_bounds}")
        for name in ("kl_weight", "entropy_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")


class Rpo(SeveralCritics):
    """SHAC that uses the gradients of a window several times."""

    columns = (*SeveralCritics.columns, "kl", "samples_left")
    settings: RpoSettings

    @property
    def updates_per_iteration(self) -> int:
        return self.settings.policy_passes

    def improve_policy(self) -> None:
        """Follow the gradient of the window's return for some passes."""
        by_samples = self.by_samples()
        with torch.no_grad():
            mean, log_std = self.distribution(self.window.inputs)
            samples = torch.addcmul(mean, log_std.exp(), self.noise)
        cached = (samples, by_samples, mean, log_std)
        self.policy.requires_grad_(True)
        *gradients, self.kl, self.samples_left = self._over_window(self._pass, *cached)
        self.half_cosine = self._half_cosine(gradients, cached)
        self.gradient_norm = self._follow(gradients)
        for _ in range(self.settings.policy_passes - 1):
            *gradients, self.kl, self.samples_left = self._over_window(self._pass, *cached)
            self._follow(gradients)

    def _half_cosine(self, gradients: list[Tensor], cached: tuple[Tensor, ...]) -> Tensor:
        if not self.settings.compare_halves:
            return torch.zeros_like(self.episodes.mean_return)
        *half, _, _ = self._over_window(self._pass, *cached, num_worlds=self.num_worlds // 2)
        rest = [whole - part for whole, part in zip(gradients, half, strict=True)]
        return cosine(half, rest, self.members)

    def _pass(self, inputs: Tensor, samples: Tensor, by_samples: Tensor, mean: Tensor, log_std: Tensor) -> list[Tensor]:
        """The gradient by the weights as they are now, and sums of what the metrics tell: each a mean over the window.

        mean and log_std are those of the policy that acted.
        """
        settings = self.settings
        share = 1 / (settings.horizon * self.num_worlds)
        new_mean, new_log_std = self.distribution(inputs)
        noise = ((samples - new_mean) * (-new_log_std).exp()).detach()
        ratio = (log_normal(samples, new_mean, new_log_std) - log_normal(samples, mean, log_std)).exp().detach()
        kept = (ratio >= settings.ratio_bounds[0]) & (ratio <= settings.ratio_bounds[1])
        weight = torch.where(kept, ratio, 0.0).unsqueeze(-1)
        again = torch.addcmul(new_mean, new_log_std.exp(), noise)
        kl = divergence(mean, log_std, new_mean, new_log_std)
        entropy = new_log_std.sum(dim=-1)
        costs = settings.kl_weight * kl - settings.entropy_weight * entropy
        loss = (weight * by_samples * again).sum() + share * costs.sum()
        gradients = self._gathered(torch.autograd.grad(loss, self._policy_parameters))
        told = (kl.detach(), kept.to(kl.dtype))
        return [*gradients, *(share * part.sum(dim=(-2, -1)) for part in told)]

    def more_columns(self) -> dict[str, Tensor]:
        return {"kl": self.kl, "samples_left": self.samples_left}


def divergence(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
    """Kullback and Leibler's, of Gaussians from others, summed over actions."""
    square = (2 * log_std).exp() + (mean - other_mean).square()
    return (other_log_std - log_std + square * (-2 * other_log_std).exp() / 2 - 0.5).sum(dim=-1)


PAPER: dict[str, dict[str, Any]] = {
    "cartpole": {"actor_hidden": (64, 64), "critic_hidden": (64, 64), "iterations": 500},
    "hopper": {"num_worlds": 512},
}
SMALL: dict[str, Any] = {
    "actor_hidden": (128, 64, 32),
    "critic_hidden": (64, 64),
    "critics": 1,
    "activation": "elu",
    "weight_decay": 0.0,
    "actor_lr": 1e-3,
    "critic_lr": 2e-3,
    "kl_weight": 0.02,
    "iterations": 1000,
}
"""SHAC's networks, one critic and a looser hold on the policy: less time for an iteration, where they suffice."""
BETTER: dict[str, dict[str, Any]] = {
    "ant": SMALL,
    "half_cheetah": SMALL,
    "humanoid": {"iterations": 1000},
}
"""What was found to serve better; docs/better.md has the numbers."""


def paper(task: str) -> RpoSettings:
    """As the authors say, entropy included."""
    return replace(RpoSettings(entropy_weight=0.2), **PAPER.get(task, {}))


def tuned(task: str) -> RpoSettings:
    """What was found since."""
    return replace(RpoSettings(), **PAPER.get(task, {}) | BETTER.get(task, {}))


RPO = Algorithm(
    name="rpo",
    label="RPO",
    summary="SHAC with five steps of the policy per window, from the same gradients: fewer samples",
    settings=RpoSettings,
    learner=Rpo,
    presets={"tuned": tuned, "paper": paper},
)
