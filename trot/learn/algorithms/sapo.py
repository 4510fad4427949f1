"""Soft Analytic Policy Optimisation: SHAC that is paid for staying random, with two critics.

To what a step pays, a temperature times the policy's entropy is added, for the policy and for the critics alike. The
entropy is that of the squashed action, whose logarithm of tanh's slope keeps actions from their limits, where no
gradient gets through; and the temperature follows it, so that it stays near its target:

    rollout         as SHAC's; every step also tells the logarithm of its action's density
    improve_policy  as SHAC's, then a step of the temperature
    fit_critic      as SHAC's, for both critics, with the entropy in the targets

Xing, Luk and Oh, "Stabilizing reinforcement learning in differentiable multiphysics simulation", 2025.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from trot.envs.env import Env
from trot.learn.algorithms.sac import log_density_of_tanh
from trot.learn.algorithms.several_critics import SeveralCritics, SeveralCriticsSettings, require_deviation
from trot.learn.algorithms.shac_settings import NETWORKS
from trot.learn.learner import Algorithm, require_positive
from trot.learn.networks import PolicyKind


@dataclass(frozen=True)
class SapoSettings(SeveralCriticsSettings):
    """Defaults are the authors' setting for the Ant."""

    target_keep: float = 0.0
    max_grad_norm: float = 0.5
    policy: PolicyKind = "state_dependent"
    entropy_per_action: float = -0.5
    """What the temperature steers the policy's entropy to; below 0."""
    final_entropy_per_action: float = -0.5
    """The same at the end; it falls as learning rates do. The policy then ends with little noise, and may saturate."""
    initial_temperature: float = 1.0
    """What a unit of entropy is worth, at the start."""
    temperature_lr: float = 5e-3
    """At the start; it falls as the others do."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_deviation(self, "a policy that never varies has no entropy")
        require_positive(self, "initial_temperature", "temperature_lr")
        for name in ("entropy_per_action", "final_entropy_per_action"):
            if not -math.inf < getattr(self, name) < 0:
                raise ValueError(f"{name} must be below 0, not {getattr(self, name)}")


class Temperature(nn.Module):
    """What the entropy is worth."""

    def __init__(self, initial: float, like: Tensor) -> None:
        """One for each number of `like`."""
        super().__init__()
        self.logarithm = nn.Parameter(torch.full_like(like, math.log(initial)).unsqueeze(-1), requires_grad=False)


class Sapo(SeveralCritics):
    """SHAC with an entropy term, a temperature for it, and two critics."""

    columns = (*SeveralCritics.columns, "temperature", "entropy")
    settings: SapoSettings

    def __init__(self, env: Env, settings: SapoSettings, seed: int = 0) -> None:
        super().__init__(env, settings, seed)
        self.target_entropy = settings.entropy_per_action * env.num_actions
        self.target_fall = settings.final_entropy_per_action * env.num_actions - self.target_entropy
        self.heat = Temperature(settings.initial_temperature, self.episodes.mean_return)
        # With members, one tensor of (members, 1), as MemberAdam takes it. Nothing decays here: 0 is no natural value.
        weight = self.heat.logarithm
        self.temperature_optimizer = self._adam([weight], [weight])
        self.temperature_optimizer.decay = 0.0

    @property
    def temperature(self) -> Tensor:
        """Without dimensions, or (members,)."""
        return self.heat.logarithm.detach().exp().squeeze(-1)

    def answer(self, inputs: Tensor, noise: Tensor) -> Tensor:
        """The action, and behind it the logarithm of its density."""
        mean, log_std = self.policy.distribution(inputs)
        assert log_std is not None
        sample = torch.addcmul(mean, log_std.exp(), noise)
        density = log_density_of_tanh(sample, noise, log_std)
        return torch.cat([torch.tanh(sample), density.unsqueeze(-1)], dim=-1)

    def action_of(self, answer: Tensor) -> Tensor:
        return answer[:, :-1]

    def paid(self, reward: Tensor, answers: list[Tensor]) -> Tensor:
        """The reward and the entropy, which counts from 0 at its target to 1 at its target's negative."""
        entropy = -self._over_steps([answer[:, -1] for answer in answers])
        self.entropy = entropy.detach().mean(dim=(-2, -1))
        width = abs(self.target_entropy)
        return reward + self.temperature[..., None, None] * ((entropy + width) / (2 * width))

    def improve_policy(self) -> None:
        super().improve_policy()
        self.cool()

    @torch.no_grad()
    def cool(self) -> None:
        """A step of the temperature: lower while the policy is more random than it is to be."""
        # Of temperature * |target| * (entropy - target), by the temperature's logarithm.
        target = self._falling(self.target_entropy, self.target_fall)
        slope = self.temperature * abs(self.target_entropy) * (self.entropy - target)
        slope = slope.clamp(-self.settings.max_grad_norm, self.settings.max_grad_norm).unsqueeze(-1)
        stopped = self.stopped.unsqueeze(-1)
        initial = self.settings.temperature_lr
        rate = self._falling(initial, self.settings.final_lr - initial)
        self.temperature_optimizer.rate.copy_(torch.where(self.stopped, 0.0, rate))
        self.temperature_optimizer.step([slope.masked_fill(stopped, 0.0)])

    def more_columns(self) -> dict[str, Tensor]:
        return {"temperature": self.temperature, "entropy": self.entropy}


BY_TASK: dict[str, dict[str, Any]] = {"cartpole": {"iterations": 500}, "hopper": {"num_worlds": 256}}


def tuned(task: str) -> SapoSettings:
    """As the authors say; the sizes of networks are SHAC's."""
    return replace(SapoSettings(**NETWORKS.get(task, {})), **BY_TASK.get(task, {}))


SAPO = Algorithm(
    name="sapo",
    label="SAPO",
    summary="SHAC that is paid for staying random, two critics: where actions saturate",
    settings=SapoSettings,
    learner=Sapo,
    presets={"tuned": tuned},
)
