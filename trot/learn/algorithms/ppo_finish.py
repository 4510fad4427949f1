"""PPO that goes on with a policy of SHAC's: `trot train ant --algo ppo-finish --start-from runs/ant-shac-0`.

The policy has SHAC's form: layer normalisation, samples squashed by tanh, observations normalised and not cut, left and
right alike if asked for. The value has a network of its own. It knows nothing at first, and would pull a trunk that it
shares with a good policy away from it; so it also learns alone for some iterations, in which the policy acts and stays
as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from trot.command_line import WorldCount
from trot.envs.env import Env
from trot.envs.mirror import find_mirror
from trot.learn.agent import AgentDescription
from trot.learn.algorithms import shac_settings
from trot.learn.algorithms.ppo import Ppo, PpoSettings
from trot.learn.learner import Algorithm, require_widths
from trot.learn.networks import Activation, perceptron


@dataclass(frozen=True)
class PpoFinishSettings(PpoSettings):
    """PPO's; worlds, iterations and rate are those of a finish, not tuned."""

    num_worlds: WorldCount = 1024
    iterations: int = 1000
    lr: float = 1e-4
    bound_weight: float = 0.0
    initial_log_std: float = -1.0
    activation: Activation = "elu"
    """Between the policy's layers."""
    symmetric: bool = False
    """What the policy does on the left it does on the right in the mirrored state."""
    value_hidden: tuple[int, ...] = (64, 64)
    """Widths of the value function's hidden layers."""
    value_only_iterations: int = 20
    """That begin the training, in which the value alone learns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_widths(self, "value_hidden")
        if self.value_only_iterations < 0:
            raise ValueError(f"value_only_iterations must be 0 or more, not {self.value_only_iterations}")

    def going_on_from(self, form: AgentDescription) -> Self:
        return replace(
            self,
            hidden=form.hidden,
            activation=form.activation,
            symmetric=form.mirror is not None,
            normalize_observations=form.normalize,
        )

    def agent(self, env: Env) -> AgentDescription:
        return AgentDescription(
            num_observations=env.num_observations,
            num_actions=env.num_actions,
            hidden=self.hidden,
            initial_log_std=self.initial_log_std,
            activation=self.activation,
            normalize=self.normalize_observations,
            mirror=find_mirror(env) if self.symmetric else None,
        )


class PpoFinish(Ppo):
    """PPO on a policy of SHAC's form."""

    settings: PpoFinishSettings

    def make_value(self) -> nn.Module:
        return perceptron(self.env.num_observations, self.settings.value_hidden, 1)

    def policy_and_value(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, _ = self.agent.policy.distribution(inputs)
        return mean, self.value_head(inputs).squeeze(-1)

    @property
    def value_alone(self) -> Tensor:
        return self.iteration < self.settings.value_only_iterations

    def followed(self, gradients: list[Tensor]) -> list[Tensor]:
        count = len(list(self.agent.policy.parameters()))
        held = [gradient.masked_fill_(self.value_alone, 0.0) for gradient in gradients[:count]]
        return [*held, *gradients[count:]]

    def next_rate(self, kl: Tensor) -> Tensor:
        # A policy that is held does not move, which is no reason to go faster.
        return torch.where(self.value_alone, self.rate, super().next_rate(kl))


def tuned(task: str) -> PpoFinishSettings:
    """For a policy as SHAC makes it by default."""
    shac = shac_settings.tuned(task)
    return PpoFinishSettings(hidden=shac.actor_hidden, value_hidden=shac.critic_hidden, symmetric=shac.symmetric)


PPO_FINISH = Algorithm(
    name="ppo-finish",
    label="PPO, as a finish",
    summary="PPO on a policy of SHAC's form: goes on from a run of it, with --start-from",
    settings=PpoFinishSettings,
    learner=PpoFinish,
    presets={"tuned": tuned},
)
