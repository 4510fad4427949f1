"""Policy and value function: small perceptrons with layer normalisation behind each activation."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

PolicyKind = Literal["gaussian", "state_dependent", "deterministic"]


def perceptron(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Linear, ELU, LayerNorm for each hidden layer, then Linear."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [Linear(inputs, width), nn.ELU(), nn.LayerNorm(width)]
        inputs = width
    return nn.Sequential(*layers, Linear(inputs, outputs))


class Linear(nn.Linear):
    """nn.Linear in two operations on CUDA: for few rows PyTorch's one operation picks a kernel twice as slow."""

    def forward(self, input: Tensor) -> Tensor:
        return input @ self.weight.T + self.bias if input.is_cuda else super().forward(input)


def orthogonal_(network: nn.Module) -> None:
    """Orthogonal weights with gain sqrt(2), zero biases, in every linear layer."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            nn.init.zeros_(layer.bias)


class Policy(nn.Module):
    """Normalised observations to actions in [-1, 1]: tanh of a normal sample around a learned mean.

    The noise comes from outside, so that the sample is a differentiable function of mean and deviation.
    """

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: tuple[int, ...],
        kind: PolicyKind = "gaussian",
        initial_log_std: float = -1.0,
    ) -> None:
        super().__init__()
        self.kind, self.actions = kind, actions
        self.network = perceptron(observations, hidden, 2 * actions if kind == "state_dependent" else actions)
        if kind == "gaussian":
            self.log_std = nn.Parameter(torch.full((actions,), initial_log_std))
        elif kind == "state_dependent":
            # Begin with the same deviation everywhere; what the weights add to it is learned.
            last = self.network[-1]
            assert isinstance(last, nn.Linear)
            with torch.no_grad():
                last.weight[actions:] = 0
                last.bias[actions:] = initial_log_std
        else:
            orthogonal_(self.network)

    def forward(self, observation: Tensor, noise: Tensor | None = None) -> Tensor:
        """The action that standard normal noise leads to; without noise the mean's."""
        mean, log_std = self.distribution(observation)
        if noise is None or log_std is None:
            return torch.tanh(mean)
        return torch.tanh(torch.addcmul(mean, log_std.exp(), noise))

    def distribution(self, observation: Tensor) -> tuple[Tensor, Tensor | None]:
        """Mean and logarithm of the deviation before the tanh; None where there is no deviation."""
        output: Tensor = self.network(observation)
        if self.kind == "gaussian":
            return output, self.log_std
        if self.kind == "state_dependent":
            mean, log_std = torch.split(output, self.actions, dim=-1)
            return mean, log_std
        return output, None


class Critic(nn.Module):
    """Normalised observations to the discounted return that is still to come."""

    def __init__(self, observations: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.network = perceptron(observations, hidden, 1)
        orthogonal_(self.network)

    def forward(self, observation: Tensor) -> Tensor:
        value: Tensor = self.network(observation)
        return value.squeeze(-1)


@torch.no_grad()
def move_towards(target: nn.Module, source: nn.Module, keep: float) -> None:
    """Each parameter of the target keeps this share of itself and takes the rest from the source."""
    ours: list[Tensor] = list(target.parameters())
    theirs: list[Tensor] = list(source.parameters())
    torch._foreach_lerp_(ours, theirs, 1 - keep)
