"""Policies around a given one: its weights moved along directions, and the names of single weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Weights = dict[str, Tensor]
"""A policy's parameters by name; with a leading axis, those of many policies."""


@dataclass(frozen=True, eq=False)
class Moves:
    """Policies at weights + sum of shift x direction."""

    weights: Weights
    directions: list[Weights]
    shifts: Tensor
    """(policies, directions)"""

    def __len__(self) -> int:
        return len(self.shifts)

    def part(self, first: int, last: int) -> Moves:
        """Some of the policies."""
        return Moves(self.weights, self.directions, self.shifts[first:last])

    def stacked(self) -> Weights:
        """(policies, ...) the weights of all."""
        return {name: self._moved(name, weight) for name, weight in self.weights.items()}

    def _moved(self, name: str, weight: Tensor) -> Tensor:
        moved = weight.expand(len(self), *weight.shape).clone()
        for k, direction in enumerate(self.directions):
            moved += self.shifts[:, k].view(-1, *[1] * weight.dim()) * direction[name]
        return moved

    def along(self, gradient: Weights) -> Tensor:
        """(policies, directions) the derivative by the shifts, from the gradients by the weights."""
        parts = [
            torch.stack([(gradient[name] * direction[name]).flatten(1).sum(dim=1) for name in gradient]).sum(dim=0)
            for direction in self.directions
        ]
        return torch.stack(parts, dim=1)


def unmoved(weights: Weights, times: int = 1) -> Moves:
    """The policy itself, or several times the same."""
    like = next(iter(weights.values()))
    return Moves(weights, [], like.new_zeros(times, 0))


def one_entry(weights: Weights, entry: str) -> Weights:
    """The direction in which one weight alone moves, given as name[row,column]."""
    given = re.fullmatch(r"\s*([\w.]+)\s*\[([\d\s,]+)\]\s*", entry)
    if given is None:
        raise ValueError(f"a weight is given as name[row,column], such as {example(weights)}, not '{entry}'")
    name, index = given[1], tuple(int(part) for part in given[2].split(",") if part.strip())
    if name not in weights:
        raise ValueError(f"the policy has no weights '{name}'; it has: {', '.join(weights)}")
    shape = tuple(weights[name].shape)
    if len(index) != len(shape) or any(i >= size for i, size in zip(index, shape, strict=True)):
        raise ValueError(f"{entry} is outside of {name}, whose shape is {shape}, counted from 0")
    direction = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    direction[name][index] = 1
    return direction


def example(weights: Weights) -> str:
    """The name of some weight."""
    name, weight = next(iter(weights.items()))
    return f"{name}[{','.join('0' * weight.dim())}]"


def steepest_entry(gradient: Mapping[str, Tensor]) -> str:
    """The weight of a layer with the largest entry in the gradient; biases, scales and deviations are left out."""
    matrices = {name: entries.abs() for name, entries in gradient.items() if entries.dim() == 2}
    name = max(matrices, key=lambda name: float(matrices[name].max()))
    row, column = divmod(int(matrices[name].argmax()), matrices[name].shape[1])
    return f"{name}[{row},{column}]"


def centred_shifts(reach: float, points: int) -> Tensor:
    """(points,) from -reach to reach, an odd number of them: the one in the middle is the policy itself."""
    shifts = torch.linspace(-reach, reach, points, dtype=torch.float64)
    # Exactly, whatever the division gives.
    shifts[points // 2] = 0
    return shifts


def random_direction(weights: Weights, generator: torch.Generator, scaled: bool) -> Weights:
    """Normal numbers; scaled: each of the policy's tensors gets the length of the weights that it moves."""
    direction = {}
    for name, weight in weights.items():
        # On the CPU, so that a seed means the same directions everywhere.
        drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        if scaled:
            drawn *= float(weight.double().norm()) / float(drawn.norm())
        direction[name] = drawn.to(weight)
    return direction


def flat(gradient: Weights) -> Tensor:
    """(policies, all weights) in one row each."""
    return torch.cat([part.flatten(1) for part in gradient.values()], dim=1)
