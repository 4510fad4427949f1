"""Where the parameters of a network lie, for kernels that read and move them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trot.sim.arguments import address


def addresses(tensors: Sequence[Tensor], like: Sequence[Tensor], members: int | None, dtype: torch.dtype) -> list[int]:
    """Of tensors that lie as these do; with members, of the first one's part, and the others' are as far apart."""
    places = []
    for tensor, other in zip(tensors, like, strict=True):
        tensor, other = tensor.detach(), other.detach()
        if members is not None:
            if len(tensor) != members or tensor.stride(0) != other.stride(0):
                raise ValueError(
                    f"a tensor of {len(tensor)} members, {tensor.stride(0)} numbers apart, does not lie as one of "
                    f"{members}, {other.stride(0)} numbers apart"
                )
            tensor, other = tensor[0], other[0]
        places.append(address("a parameter", tensor, other.shape, dtype, like[0].device))
    return places


def member_strides(parameters: Sequence[Tensor], members: int | None) -> list[int]:
    """Numbers from one member's part of each parameter to the next one's."""
    return [0 if members is None else one.stride(0) for one in parameters]


class KnownPlaces:
    """Lists of places as tensors on a device, brought there when they are others than before.

    A captured graph goes on reading them, and cannot wait for the host.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lists: dict[str, list[int]] = {}
        self._tensors: dict[str, Tensor] = {}

    def tensors(self, lists: Mapping[str, list[int]]) -> dict[str, Tensor]:
        if lists != self._lists:
            self._lists = dict(lists)
            self._tensors = {name: torch.tensor(given, device=self._device) for name, given in lists.items()}
        return self._tensors
