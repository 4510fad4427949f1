"""Several members that learn side by side: how their tensors lie, and how one member's state is cut out and put back.

Whatever a learner keeps has a leading axis of members then, and else the shape it has for one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def widened(flag: Tensor, like: Tensor) -> Tensor:
    """One flag, or one per member, with axes of length 1 behind it: it counts for all of `like`, or a member's part."""
    return flag.view(flag.shape + (1,) * (like.dim() - flag.dim()))


def in_rows(network: Callable[..., Tensor], members: int | None, *inputs: Tensor) -> Tensor:
    """What a network makes of inputs with any number of axes, which with members takes (members, rows, width) alone."""
    if members is None:
        output: Tensor = network(*inputs)
        return output
    output = network(*(tensor.flatten(1, -2) for tensor in inputs))
    return output.view(inputs[0].shape[:-1] + output.shape[2:])


def by_members(function: Callable[[Tensor], Tensor], members: int | None, inputs: Tensor) -> Tensor:
    """What a function of (members, rows, width) makes of (..., width), which without members are all one member's rows.

    With members, inputs of two axes are rows for all of them.
    """
    if members is not None:
        return function(inputs.expand(members, -1, -1) if inputs.dim() == 2 else inputs)
    output = function(inputs.reshape(1, -1, inputs.shape[-1]))
    return output.view(*inputs.shape[:-1], output.shape[-1])


def side_by_side(tensors: Iterable[Tensor]) -> Tensor:
    """(members, all numbers of each)."""
    return torch.cat([tensor.flatten(1) for tensor in tensors], dim=1)


def cosine(first: Sequence[Tensor], second: Sequence[Tensor], members: int | None) -> Tensor:
    """Between two gradients in parts, or each member's two."""
    flat = [side_by_side(parts) if members else torch.cat([part.flatten() for part in parts])
            for parts in (first, second)]  # fmt: skip
    return torch.nn.functional.cosine_similarity(flat[0], flat[1], dim=-1)


def views_into(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """What side_by_side() joined, as views with the shapes of `like`."""
    parts = torch.split(flat, [tensor[0].numel() for tensor in like], dim=1)
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


def weights_of(network: nn.Module, members: int | None) -> list[Tensor]:
    """A network's weights: one tensor each, or with members a single one for all, (members, weights).

    The network's parameters become views into that one, so that few operations reach all of them.
    """
    parameters = list(network.parameters())
    if members is None:
        return list(parameters)
    flat = side_by_side(parameter.detach() for parameter in parameters)
    for parameter, view in zip(parameters, views_into(flat, parameters), strict=True):
        parameter.data = view
    return [flat]


def member_of(state: Mapping[str, Any], member: int) -> dict[str, Any]:
    """Of what a learner with members saves, what the member alone would save."""
    return {name: part[member].clone() if isinstance(part, Tensor) else part[member] for name, part in state.items()}


@torch.no_grad()
def put_member(state: Mapping[str, Any], member: int, saved: Mapping[str, Any]) -> None:
    """Overwrite the member's part of a learner's tensors, in place, by what it saved. ValueError where they differ."""
    tensors = {name: part for name, part in state.items() if isinstance(part, Tensor)}
    given = {name: part for name, part in saved.items() if isinstance(part, Tensor)}
    if tensors.keys() != given.keys():
        raise ValueError(f"the saved state differs in {', '.join(sorted(tensors.keys() ^ given.keys())[:3])}")
    for name, tensor in tensors.items():
        if tensor.shape[1:] != given[name].shape:
            raise ValueError(f"{name} is {tuple(given[name].shape)}; it must be {tuple(tensor.shape[1:])}")
    for name, tensor in tensors.items():
        tensor[member].copy_(given[name])
