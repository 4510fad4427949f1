"""What a kernel is called with: one list from which its C++ structs, its Warp argument and its packing come.

A kernel gets addresses and cannot look at what lies there. So every tensor passes `address` on its way to one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

Numbers = Mapping[str, float]
Shape = tuple[int, ...]

_DTYPES = {
    "int*": torch.int32,
    "long long*": torch.int64,
    "const long long*": torch.int64,
    "bool*": torch.bool,
    "const bool*": torch.bool,
    "char*": torch.uint8,
    "const Model*": torch.uint8,
}
"""Of pointers that do not have the kernel's own precision."""


@dataclass(frozen=True)
class Argument:
    """One member of a C++ struct: a number, or the address of a tensor."""

    name: str
    kind: str
    """As C++ writes it."""
    meaning: str
    shape: tuple[str, ...] = ()
    """Names of the sizes that a tensor must have."""
    optional: bool = False
    """Whether the address may be null."""

    @property
    def is_tensor(self) -> bool:
        return self.kind.endswith("*")


@dataclass(frozen=True, eq=False)
class ArgumentGroup:
    """Arguments that C++ sees as one struct."""

    name: str
    arguments: tuple[Argument, ...]

    def declaration(self) -> str:
        """The struct as C++ writes it."""
        members = "".join(f"    {a.kind} {a.name};  // {a.meaning}\n" for a in self.arguments)
        return f"struct {self.name} {{\n{members}}};\n"

    def unpacking(self) -> str:
        """C++ that fills a variable, called like the struct in small letters, from Warp's struct `call`."""
        here = self.name.lower()
        lines = [f"{here}.{a.name} = (decltype({here}.{a.name}))call.{a.name};" for a in self.arguments]
        return "".join(f"    {line}\n" for line in (f"trot::{self.name} {here};", *lines))


def address(name: str, tensor: Tensor, shape: Shape, dtype: torch.dtype, device: torch.device) -> int:
    """The address of a tensor that is exactly what a kernel will take it for; anything else is refused."""
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device != device or not tensor.is_contiguous():
        rows = "" if tensor.is_contiguous() else ", its rows not one after the other"
        raise ValueError(
            f"{name} is {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}{rows}; the kernel reads {shape} "
            f"{dtype} on {device}, rows one after the other"
        )
    return tensor.data_ptr()


class Packer:
    """Turns what a kernel is called with into the one structure that it gets, by value."""

    def __init__(
        self, groups: tuple[ArgumentGroup, ...], structure: type[ctypes.Structure], dtype: torch.dtype,
        device: torch.device,
    ) -> None:  # fmt: skip
        arguments = [argument for group in groups for argument in group.arguments]
        self._structure, self._device = structure, device
        self._fields = [(a.name, a.optional, _shape_getter(a), _DTYPES.get(a.kind, dtype)) for a in arguments]
        self._num_tensors = sum(a.is_tensor for a in arguments)

    def pack(self, numbers: Numbers, tensors: Mapping[str, Tensor | None], before: tuple[int, ...] = ()) -> Any:
        """The structure: members of groups that come before these, then these, by name.

        numbers holds the sizes as well that shapes are made of; what else is in it does no harm.
        """
        if len(tensors) != self._num_tensors:
            taken = sorted(name for name, _, shape_of, _ in self._fields if shape_of is not None)
            raise TypeError(f"the kernel takes the tensors {taken}, not {sorted(tensors)}")
        members: list[float] = [*before]
        device = self._device
        for name, optional, shape_of, dtype in self._fields:
            if shape_of is None:
                members.append(numbers[name])
            elif (tensor := tensors[name]) is not None:
                members.append(address(name, tensor, shape_of(numbers), dtype, device))
            elif optional:
                members.append(0)
            else:
                raise TypeError(f"the kernel does not run without {name}")
        return self._structure(*members)


def _shape_getter(argument: Argument) -> Callable[[Numbers], Shape] | None:
    if not argument.is_tensor:
        return None
    if len(argument.shape) == 1:
        (size,) = argument.shape
        return lambda numbers: (int(numbers[size]),)
    return itemgetter(*argument.shape)
