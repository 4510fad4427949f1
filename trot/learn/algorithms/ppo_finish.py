"""PPO that goes on with a policy of SHAC's: `trot train ant --algo ppo-finish --start-from runs/ant-shac-0`.

The policy has SHAC's form: layer normalisation, samples squashed by tanh, observations normalised and not cut. The
value has a network of its own. It knows nothing at first, and would pull a trunk that it shares with a good policy away
from it; so it also learns alone for some iterations, in which the policy acts and stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from trot.command_line import WorldCount
from trot.envs.env import Env
from trot.learn.agent import AgentDescription
from trot.learn.algorithms.ppo import Ppo, PpoSettings
from trot.learn.algorithms.shac_settings import NETWORKS
from trot.learn.learner import Algorithm, require_widths
from trot.learn.networks import perceptron


@dataclass(frozen=True)
class PpoFinishSettings(PpoSettings):
    """PPO's; worlds, iterations and rate are those of a finish, not tuned."""

    num_worlds: WorldCount = 1024
    iterations: int = 1000
    lr: float = 1e-4
    bound_weight: float = 0.0
    initial_log_std: float = -1.0
    value_hidden: tuple[int, ...] = (64, 64)
    """Widths of the value function's hidden layers."""
    value_only_iterations: int = 20
    """That begin the training, in which the value alone learns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_widths(self, "value_hidden")
        if self.value_only_iterations < 0:
            raise ValueError(f"value_only_iterations must be 0 or more, not {self.value_only_iterations}")

    def agent(self, env: Env) -> AgentDescription:
        return AgentDescription(
            num_observations=env.num_observations,
            num_actions=env.num_actions,
            hidden=self.hidden,
            initial_log_std=self.initial_log_std,
            normalize=self.normalize_observations,
        )


class PpoFinish(Ppo):
    """PPO on a policy of SHAC's form."""

    settings: PpoFinishSettings

    def make_value(self) -> nn.Module:
        return perceptron(self.env.num_observations, self.settings.value_hidden, 1)

    def policy_and_value(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.agent.policy.network(inputs), self.value_head(inputs).squeeze(-1)

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
    """The sizes of SHAC's networks."""
    networks = NETWORKS.get(task, {})
    names = {"actor_hidden": "hidden", "critic_hidden": "value_hidden"}
    sizes: dict[str, Any] = {names[name]: widths for name, widths in networks.items()}
    return replace(PpoFinishSettings(), **sizes)


PPO_FINISH = Algorithm(
    name="ppo-finish",
    label="PPO, as a finish",
    summary="PPO on a policy of SHAC's form: goes on from a run of it, with --start-from",
    settings=PpoFinishSettings,
    learner=PpoFinish,
    presets={"tuned": tuned},
)
