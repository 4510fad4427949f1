"""SHAC with mixed gradients: for each step and action, the analytic one and that of likelihood ratios.

Both estimate how the loss changes with a sample's mean. The one through the simulation is precise where the simulation
is smooth, and one world's alone where contact makes it steep; the one from advantages is noisy everywhere, but not more
so there. They are weighed by the inverse of their variances over the worlds, which gives the least variance that a
weighted mean of two independent estimates can have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trot.learn.algorithms.several_critics import require_deviation
from trot.learn.algorithms.shac import Shac
from trot.learn.algorithms.shac_settings import NETWORKS, OWN_TASK, TUNED, ShacSettings
from trot.learn.learner import Algorithm
from trot.learn.members import in_rows
from trot.learn.returns import discounts, td_lambda

NO_VARIANCE = 1e-12
"""Added where variances are divided by: both may be 0."""


@dataclass(frozen=True)
class MixedSettings(ShacSettings):
    """SHAC's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_deviation(self, "likelihood ratios need one")
        if not self.critic:
            raise ValueError("critic must be on: advantages are measured by it")
        if self.num_worlds < 2:
            raise ValueError("num_worlds must be 2 at least: gradients are weighed by how they vary over worlds")


class Mixed(Shac):
    """SHAC whose policy follows both kinds of gradient."""

    columns = (*Shac.columns, "analytic_share")
    takes_ranks = False
    settings: MixedSettings

    def policy_gradient(self) -> list[Tensor]:
        """The mixture of both, pushed through the policy."""
        analytic = self.by_samples()
        by_likelihood = self.by_likelihood()
        # Of a world's own return, not of the mean over all: numbers of the size of rewards.
        count = self.window.reward.shape[-2:].numel()
        share = inverse_variance_share(count * analytic, count * by_likelihood)
        self.analytic_share = share.mean(dim=(-3, -2, -1))
        return self._by_weights(self.sample, torch.lerp(by_likelihood, analytic, share))

    def sample(self, inputs: Tensor, noise: Tensor) -> Tensor:
        """What tanh makes an action of."""
        mean, log_std = self.policy.distribution(inputs)
        assert log_std is not None
        return torch.addcmul(mean, log_std.exp(), noise)

    @torch.no_grad()
    def by_likelihood(self) -> Tensor:
        """The loss's gradient by the samples' means, from what the actions turned out to be worth.

        Pushed through a deviation, it lacks a term whose mean is 0, the advantage's own.
        """
        window, gamma = self.window, self._numbers["gamma"]
        returns = td_lambda(window.paid, window.next_value, window.done, gamma, self._numbers["td_lambda"])
        advantage = returns - in_rows(self.target_critic, self.members, window.inputs)
        gamma = gamma.view(-1, 1, 1) if isinstance(gamma, Tensor) else gamma
        weight = discounts(window.done, gamma, advantage.dtype) * advantage / advantage.shape[-2:].numel()
        _, log_std = self.distribution(window.inputs)
        return -weight.unsqueeze(-1) * self.noise * (-log_std).exp()

    def more_columns(self) -> dict[str, Tensor]:
        return {"analytic_share": self.analytic_share}


def inverse_variance_share(first: Tensor, second: Tensor) -> Tensor:
    """(..., 1, actions) that the first of two estimates (..., worlds, actions) has in the mixture of least variance."""
    first_variance, second_variance = (part.var(dim=-2, keepdim=True) for part in (first, second))
    return second_variance / (first_variance + second_variance + NO_VARIANCE)


def tuned(task: str) -> MixedSettings:
    """As SHAC."""
    return replace(MixedSettings(**NETWORKS.get(task, {})), **TUNED.get(task, OWN_TASK))


def general(task: str) -> MixedSettings:
    """As SHAC's."""
    return MixedSettings(**NETWORKS.get(task, {}))


SHAC_MIXED = Algorithm(
    name="shac-mixed",
    label="SHAC, mixed gradients",
    summary="SHAC's gradients mixed with those from advantages, by their variances: where contact makes them steep",
    settings=MixedSettings,
    learner=Mixed,
    presets={"tuned": tuned, "general": general},
)
