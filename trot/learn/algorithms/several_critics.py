"""What SAPO, RPO and AHAC have in common beyond SHAC: several critics of which the least builds targets, and AdamW."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.learn.agent import AgentDescription
from trot.learn.algorithms.shac import Shac
from trot.learn.algorithms.shac_settings import ShacSettings
from trot.learn.critic_fit import CriticFit
from trot.learn.critic_fit_cuda import CudaCriticFit
from trot.learn.learner import require_at_least_one
from trot.learn.members import in_rows
from trot.learn.networks import Activation, Critic, Critics
from trot.learn.optimizer import Adam, MemberAdam

LOG_STD_BOUNDS = (-5.0, 2.0)
"""Of a deviation that the network gives."""


@dataclass(frozen=True)
class SeveralCriticsSettings(ShacSettings):
    """SHAC's, and what comes on top."""

    critics: int = 2
    """They learn the same from different beginnings; the least of their values builds the targets. One is faster."""
    policy_trusts: Literal["least", "mean"] = "mean"
    """What lies beyond the window is worth to the policy: the least of the critics' values, or their mean."""
    weight_decay: float = 0.01
    """Share of themselves, times the learning rate, that weights lose in each step."""
    activation: Activation = "silu"
    """Between the layers of all networks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "critics")
        if self.policy_trusts not in ("least", "mean"):
            raise ValueError(f"policy_trusts must be least or mean, not '{self.policy_trusts}'")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be 0 or more, not {self.weight_decay}")

    def going_on_from(self, form: AgentDescription) -> Self:
        return replace(super().going_on_from(form), activation=form.activation)

    def agent(self, env: Env) -> AgentDescription:
        bounds = LOG_STD_BOUNDS if self.policy == "state_dependent" else None
        return replace(super().agent(env), activation=self.activation, log_std_bounds=bounds)


def require_deviation(settings: ShacSettings, why: str) -> None:
    """Raise where a policy without one is asked for."""
    if settings.policy == "deterministic":
        raise ValueError(f"policy must be gaussian or state_dependent, not 'deterministic': {why}")


class SeveralCritics(Shac):
    """SHAC with several critics."""

    takes_ranks = False
    settings: SeveralCriticsSettings

    def make_critic(self) -> Critic | Critics:
        """One alone is SHAC's own, which kernels can fit."""
        settings, observations = self.settings, self.env.num_observations
        hidden, activation, members = settings.critic_hidden, settings.activation, self.members
        if settings.critics == 1:
            return Critic(observations, hidden, activation=activation, members=members)
        return Critics(settings.critics, observations, hidden, activation=activation, members=members)

    def _native_fit(self) -> CriticFit | CudaCriticFit | None:
        return self._fit_by_kernels(self.critic) if isinstance(self.critic, Critic) else None

    def _adam(self, weights: list[Tensor], parameters: list[Tensor]) -> Adam | MemberAdam:
        betas, decay = self.settings.adam_betas, self.settings.weight_decay
        if self.members is None:
            return Adam(parameters, betas, decay)
        return MemberAdam(weights[0], parameters, betas, decay)

    def values(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(self.target_critic, Critic):
            return super().values(inputs)
        each = in_rows(self.target_critic.each, self.members, inputs)
        least = each.amin(dim=-1)
        return (least if self.settings.policy_trusts == "least" else each.mean(dim=-1)), least

    def critic_loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        if isinstance(self.critic, Critic):
            return super().critic_loss(inputs, target)
        each = in_rows(self.critic.each, self.members, inputs)
        return torch.stack([self._error(value, target) for value in each.unbind(dim=-1)]).sum(dim=0)
