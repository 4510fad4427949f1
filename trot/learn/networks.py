"""Small perceptrons: policies and value functions, one by one or many members at once.

With `members` a network is as many networks side by side: weights are stacked along a leading axis, and each layer is
one batched product. Inputs are then (members, rows, width), or (rows, width) where all members see the same.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trot.envs.mirror import Mirror, mirror_matrix
from trot.learn.pieces import in_pieces
from trot.unpromised import foreach_lerp_

PolicyKind = Literal["gaussian", "state_dependent", "deterministic"]
Squash = Literal["tanh", "clamp"]
Activation = Literal["elu", "relu", "silu"]
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"elu": nn.ELU, "relu": nn.ReLU, "silu": nn.SiLU}


def perceptron(
    inputs: int,
    hidden: tuple[int, ...],
    outputs: int,
    *,
    activation: Activation = "elu",
    layer_norm: bool = True,
    members: int | None = None,
) -> nn.Sequential:
    """Linear, activation, LayerNorm for each hidden layer, then Linear.

    Every member begins with weights of its own, those that it would have drawn as a single network.
    """
    if members is not None:
        single = partial(perceptron, inputs, hidden, outputs, activation=activation, layer_norm=layer_norm)
        return stack_members([single() for _ in range(members)])
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [Linear(inputs, width), ACTIVATIONS[activation]()]
        if layer_norm:
            layers.append(nn.LayerNorm(width))
        inputs = width
    return nn.Sequential(*layers, Linear(inputs, outputs))


class Linear(nn.Linear):
    """nn.Linear in two operations on CUDA: for few rows PyTorch's one operation picks a kernel twice as slow."""

    def forward(self, input: Tensor) -> Tensor:
        return input @ self.weight.T + self.bias if input.is_cuda else super().forward(input)


GRADIENT_BLOCK = 512
"""Rows over which a member's weight gradient is summed by one block of the GPU."""


class _MemberProduct(torch.autograd.Function):
    """A MemberLinear's product whose weight gradient is summed in blocks of rows, and laid out like the weight.

    The matrix library gives a member's sum over thousands of rows to a few blocks of the GPU, ten times as slow.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(input, weight)
        return torch.baddbmm(bias.unsqueeze(1), input, weight.transpose(1, 2))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        by_input, by_weight, by_bias = ctx.needs_input_grad
        of_weight = _weight_gradient(gradient, input) if by_weight else None
        return gradient @ weight if by_input else None, of_weight, gradient.sum(dim=1) if by_bias else None


def _weight_gradient(gradient: Tensor, input: Tensor) -> Tensor:
    members, rows, outputs = gradient.shape
    blocks = 1 if rows % GRADIENT_BLOCK else rows // GRADIENT_BLOCK
    if blocks == 1:
        return gradient.transpose(1, 2) @ input
    left = gradient.reshape(members * blocks, GRADIENT_BLOCK, outputs).transpose(1, 2)
    right = input.reshape(members * blocks, GRADIENT_BLOCK, -1)
    return (left @ right).view(members, blocks, outputs, -1).sum(dim=1)


class MemberLinear(nn.Module):
    """A linear layer for each member: weight (members, outputs, inputs), bias (members, outputs)."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() == 2:
            input = input.expand(len(self.weight), -1, -1)
        if input.is_cuda:
            product: Tensor = _MemberProduct.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]
            return product
        return torch.baddbmm(self.bias.unsqueeze(1), input, self.weight.transpose(1, 2))

    def member(self, index: int) -> Linear:
        outputs, inputs = self.weight.shape[1:]
        # Made without weights: to draw some that are overwritten would move PyTorch's global generator on.
        layer = Linear(inputs, outputs, device="meta", dtype=self.weight.dtype).to_empty(device=self.weight.device)
        return _with_weights(layer, self.weight[index], self.bias[index])


class MemberLayerNorm(nn.Module):
    """Layer normalisation with a scale and a shift for each member, (members, width)."""

    def __init__(self, layers: Sequence[nn.LayerNorm]) -> None:
        super().__init__()
        self.shape, self.eps = layers[0].normalized_shape, layers[0].eps
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def forward(self, input: Tensor) -> Tensor:
        normal = nn.functional.layer_norm(input, self.shape, eps=self.eps)
        return torch.addcmul(self.bias.unsqueeze(1), normal, self.weight.unsqueeze(1))

    def member(self, index: int) -> nn.LayerNorm:
        layer = nn.LayerNorm(self.shape, self.eps, device=self.weight.device, dtype=self.weight.dtype)
        return _with_weights(layer, self.weight[index], self.bias[index])


def stack_members(networks: Sequence[nn.Sequential]) -> nn.Sequential:
    """One network whose members are these, which must have the same layers."""
    if not networks:
        raise ValueError("a network with members needs at least one network to be made of")
    layers: list[nn.Module] = []
    for same in zip(*networks, strict=True):
        kinds = list(dict.fromkeys(type(layer).__name__ for layer in same))
        if len(kinds) > 1:
            raise ValueError(f"members must have the same layers, not {' beside '.join(kinds)}")
        if isinstance(same[0], nn.Linear):
            layers.append(MemberLinear(same))
        elif isinstance(same[0], nn.LayerNorm):
            layers.append(MemberLayerNorm(same))
        else:
            layers.append(same[0])
    return nn.Sequential(*layers)


def take_member(network: nn.Sequential, index: int) -> nn.Sequential:
    """One member as a network of its own, with a copy of its weights."""
    return nn.Sequential(
        *(layer.member(index) if isinstance(layer, MemberLinear | MemberLayerNorm) else layer for layer in network)
    )


Layer = TypeVar("Layer", Linear, nn.LayerNorm)


@torch.no_grad()
def _with_weights(layer: Layer, weight: Tensor, bias: Tensor) -> Layer:
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)
    return layer


def orthogonal_(network: nn.Module) -> None:
    """Orthogonal weights with gain sqrt(2), zero biases, in every linear layer and of every member."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            nn.init.zeros_(layer.bias)
        elif isinstance(layer, MemberLinear):
            for weight in layer.weight:
                nn.init.orthogonal_(weight, math.sqrt(2))
            nn.init.zeros_(layer.bias)


@torch.no_grad()
def zero_biases_(network: nn.Module) -> None:
    """In every linear layer and of every member."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear | MemberLinear):
            layer.bias.zero_()


class Policy(nn.Module):
    """Normalised observations to actions in [-1, 1]: tanh of a normal sample around a learned mean, or its clamp.

    The noise comes from outside, so that the sample is a differentiable function of mean and deviation.

    With a mirror, a mirrored observation leads to the mirrored action: what is given is the mean of what the network
    says and of the mirror image of what it says in the mirror.
    """

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: tuple[int, ...],
        kind: PolicyKind = "gaussian",
        initial_log_std: float = -1.0,
        *,
        activation: Activation = "elu",
        layer_norm: bool = True,
        squash: Squash = "tanh",
        log_std_bounds: tuple[float, float] | None = None,
        mirror: Mirror | None = None,
        members: int | None = None,
    ) -> None:
        super().__init__()
        self.mirror = mirror
        self.kind, self.actions, self.squash, self.log_std_bounds = kind, actions, squash, log_std_bounds
        self.members = members
        self._stand_in: Callable[[Tensor], Tensor] | None = None
        outputs = 2 * actions if kind == "state_dependent" else actions
        self.network = perceptron(
            observations, hidden, outputs, activation=activation, layer_norm=layer_norm, members=members
        )
        if kind == "gaussian":
            shape = (actions,) if members is None else (members, actions)
            self.log_std = nn.Parameter(torch.full(shape, initial_log_std))
        elif kind == "state_dependent":
            # Begin with the same deviation everywhere; what the weights add to it is learned.
            last = self.network[-1]
            assert isinstance(last, nn.Linear | MemberLinear)
            with torch.no_grad():
                last.weight[..., actions:, :] = 0
                last.bias[..., actions:] = initial_log_std
        else:
            orthogonal_(self.network)

    def forward(self, observation: Tensor, noise: Tensor | None = None) -> Tensor:
        """The action that standard normal noise leads to; without noise the mean's."""
        mean, log_std = self.distribution(observation)
        if noise is None or log_std is None:
            return squashed(mean, self.squash)
        return squashed(torch.addcmul(mean, log_std.exp(), noise), self.squash)

    def distribution(self, observation: Tensor) -> tuple[Tensor, Tensor | None]:
        """Mean and logarithm of the deviation before they are squashed; None where there is no deviation."""
        output = self._output(observation)
        if self.kind == "gaussian":
            return output, self.log_std if self.members is None else self.log_std.unsqueeze(1)
        if self.kind == "state_dependent":
            mean, log_std = torch.split(output, self.actions, dim=-1)
            return mean, log_std if self.log_std_bounds is None else log_std.clamp(*self.log_std_bounds)
        return output, None

    def _output(self, observation: Tensor) -> Tensor:
        network = self._stand_in or self.network
        if self.mirror is None:
            return network(observation)
        both = (observation, observation @ mirror_matrix(self.mirror.observation, observation))
        # One call for both. Members' networks take rows alone.
        if self.members is None:
            straight, mirrored = network(torch.stack(both)).unbind()
        else:
            straight, mirrored = network(torch.cat(both, dim=-2)).chunk(2, dim=-2)
        places = self.mirror.action
        if self.kind == "state_dependent":
            # Behind the means there are deviations, which have no sign.
            places = (*places, *(self.actions + abs(place) for place in places))
        return (straight + mirrored @ mirror_matrix(places, straight)) / 2

    @contextlib.contextmanager
    def standing_in(self, network: Callable[[Tensor], Tensor] | None) -> Iterator[None]:
        """Inside, this computes what the policy's network would; with None the network itself does."""
        self._stand_in = network
        try:
            yield
        finally:
            self._stand_in = None


def squashed(sample: Tensor, squash: Squash) -> Tensor:
    """Into [-1, 1]."""
    return torch.tanh(sample) if squash == "tanh" else sample.clamp(-1, 1)


class Critic(nn.Module):
    """Normalised observations to the discounted return that is still to come."""

    def __init__(
        self,
        observations: int,
        hidden: tuple[int, ...],
        *,
        activation: Activation = "elu",
        members: int | None = None,
    ) -> None:
        super().__init__()
        self.network = perceptron(observations, hidden, 1, activation=activation, members=members)
        orthogonal_(self.network)

    def forward(self, observation: Tensor) -> Tensor:
        value: Tensor = self.network(observation)
        return value.squeeze(-1)


class Critics(nn.Module):
    """Several critics that begin apart from each other and learn the same; their mean, and what each of them says.

    Networks of their own, not members: their parameters keep the axis of those who learn side by side in front.
    """

    def __init__(
        self,
        count: int,
        observations: int,
        hidden: tuple[int, ...],
        *,
        activation: Activation = "elu",
        members: int | None = None,
    ) -> None:
        super().__init__()
        self.critics = nn.ModuleList(
            Critic(observations, hidden, activation=activation, members=members) for _ in range(count)
        )

    def forward(self, observation: Tensor) -> Tensor:
        return self.each(observation).mean(dim=-1)

    def each(self, observation: Tensor) -> Tensor:
        """What each of them says, (..., critics)."""
        return torch.stack([critic(observation) for critic in self.critics], dim=-1)


def move_towards(target: nn.Module, source: nn.Module, keep: float) -> None:
    """Each parameter of the target keeps this share of itself and takes the rest from the source."""
    move_weights_towards(target.parameters(), source.parameters(), keep)


@torch.no_grad()
def move_weights_towards(target: Iterable[Tensor], source: Iterable[Tensor], keep: float) -> None:
    """The same for these weights."""
    foreach_lerp_(in_pieces(target), in_pieces(source), 1 - keep)
