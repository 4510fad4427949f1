"""Small differentiable operations of their own, from a C++ header: one row of numbers per world in, one out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import warp as wp
from torch import Tensor
from torch.autograd.function import once_differentiable

from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.blocks import SharedBlocks
from trot.sim.build import C_NAMES, SCALARS, Kernel, build_lock, define_programs, start_warp
from trot.sim.launch import CUDA_LANES, warp_stream
from trot.sim.recorded_launches import RecordedLaunches
from trot.sim.threads import get_num_threads

Numbers = dict[str, float]

WORTH_A_THREAD = 32
"""Rows below which handing some to another thread costs more than it saves."""


@dataclass(frozen=True)
class _Place:
    """The kernels of an operation in one precision and on one device."""

    kernels: dict[str, Kernel]
    lanes: int
    warp_device: wp.Device


class RowOperation:
    """The operation NAME of a header, on inputs A, B, ...: each is (num_worlds, its own width).

    The header defines two functions. All lanes of a world call them, and share the work as they like:

        NAME(settings, A, B, ..., result, lane, lanes)
        NAME_adjoint(settings, A, B, ..., result_bar, A_bar, B_bar, ..., lane, lanes)

    where the others are pointers to the world's rows, and settings is a struct `Settings` that stands before the
    header: A_width, B_width, ..., result_width, and what `settings` lists.
    """

    def __init__(self, header: Path, name: str, inputs: tuple[str, ...], settings: tuple[Argument, ...]) -> None:
        self.header, self.name, self.inputs = header, name, inputs
        self._all = "both" if len(inputs) == 2 else "all"
        widths = tuple(Argument(f"{given}_width", "int", "numbers in a row") for given in (*inputs, "result"))
        self._settings = ArgumentGroup("Settings", (*widths, *settings))
        self._places: dict[tuple[torch.dtype, torch.device], _Place] = {}
        self._recorded = RecordedLaunches()
        self._shared: SharedBlocks | None = None

    def __call__(self, inputs: tuple[Tensor, ...], width: int, settings: Numbers) -> Tensor:
        """The result, (num_worlds, width); gradients flow to the inputs. Settings are given by name."""
        self._check(inputs)
        result: Tensor = _Rows.apply(self, width, settings, *inputs)  # type: ignore[no-untyped-call]
        return result

    def launch(self, which: str, tensors: dict[str, Tensor], width: int, settings: Numbers) -> None:
        """Run NAME or NAME_adjoint on every row; tensors by the names that the functions above give them."""
        first = tensors[self.inputs[0]]
        place = self._place(first.dtype, first.device)
        rows = first.shape[0]
        numbers = {"rows": rows, "result_width": width, "first": 0, "lanes": place.lanes, **settings}
        for name in self.inputs:
            numbers[f"{name}_width"] = tensors[name].shape[1]
        kernel = place.kernels[which]
        packed = kernel.packer.pack(numbers, tensors)
        if not first.is_cuda:
            self._shared = self._shared or SharedBlocks(0, "first", self._recorded)
            self._shared.run(kernel, packed, rows, max(1, min(get_num_threads(), rows // WORTH_A_THREAD)))
            return
        command = self._recorded.command(kernel, 0, packed, rows * place.lanes, None, place.warp_device)
        command.launch(stream=warp_stream(first.device))

    def _place(self, dtype: torch.dtype, device: torch.device) -> _Place:
        key = (dtype, device)
        if key not in self._places:
            with build_lock:
                start_warp()
                lanes = CUDA_LANES if device.type == "cuda" else 1
                self._places[key] = _Place(self._define(dtype, device), lanes, wp.device_from_torch(device))
        return self._places[key]

    def _define(self, dtype: torch.dtype, device: torch.device) -> dict[str, Kernel]:
        header = self.header.read_text(encoding="utf-8").replace("#pragma once\n", "")
        scalar = f"using Scalar = {C_NAMES[dtype]};\n"
        bars = tuple(f"{name}_bar" for name in self.inputs)
        groups = {
            self.name: _rows_group("Rows", self.inputs, ("result",)),
            f"{self.name}_adjoint": _rows_group("RowsAdjoint", (*self.inputs, "result_bar"), bars),
        }
        declared = "".join(group.declaration() for group in (self._settings, *groups.values()))
        text = f"namespace trot {{\n{scalar}{declared}{header}}}  // namespace trot\n"
        programs = {key: ((self._settings, group), self._body(key, group)) for key, group in groups.items()}
        return define_programs(text, programs, dtype, device)

    def _body(self, function: str, group: ArgumentGroup) -> str:
        here = group.name.lower()
        rows = [
            f"{here}.{argument.name} + row * settings.{argument.shape[1]}"
            for argument in group.arguments
            if argument.is_tensor
        ]
        return (
            f"{self._settings.unpacking()}{group.unpacking()}"
            f"    const long long row = {here}.first + thread / {here}.lanes;\n"
            f"    trot::{function}(settings, {', '.join(rows)}, thread % {here}.lanes, {here}.lanes);\n"
        )

    def _check(self, inputs: tuple[Tensor, ...]) -> None:
        """Kernels see addresses only: what does not fit must be told before, in the caller's words."""
        first = inputs[0]
        rows, dtype, device = first.shape[:1], first.dtype, first.device
        for tensor in inputs:
            shape = tensor.shape
            if len(shape) != 2 or shape[:1] != rows:
                found = self._described(inputs, "shape")
                raise ValueError(f"{self._all} must have one row per world: {found}")
            if tensor.dtype != dtype or tensor.device != device or dtype not in SCALARS:
                found = self._described(inputs, "dtype", "device")
                raise ValueError(f"{self._all} must be float32 or {self._all} float64, on one device: {found}")

    def _described(self, inputs: tuple[Tensor, ...], *properties: str) -> str:
        return ", ".join(
            f"{name} is {' on '.join(str(_plain(getattr(tensor, what))) for what in properties)}"
            for name, tensor in zip(self.inputs, inputs, strict=True)
        )


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, torch.Size) else value


def _rows_group(name: str, read: tuple[str, ...], written: tuple[str, ...]) -> ArgumentGroup:
    """Tensors with one row per world; a derivative is as wide as what it belongs to."""
    tensors = [
        Argument(tensor, kind, meaning, ("rows", f"{tensor.removesuffix('_bar')}_width"))
        for names, kind, meaning in ((read, "const Scalar*", "read"), (written, "Scalar*", "written"))
        for tensor in names
    ]
    rows = (Argument("first", "int", "row of this launch"), Argument("lanes", "int", "that share a row"))
    return ArgumentGroup(name, (*tensors, *rows))


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operation: RowOperation, width: int, settings: Numbers, *inputs: Tensor) -> Tensor:
        inputs = tuple(tensor.contiguous() for tensor in inputs)
        ctx.save_for_backward(*inputs)
        ctx.operation, ctx.settings = operation, settings
        result = inputs[0].new_empty(len(inputs[0]), width)
        tensors = dict(zip(operation.inputs, inputs, strict=True))
        operation.launch(operation.name, {**tensors, "result": result}, width, settings)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, result_bar: Tensor) -> tuple[Tensor | None, ...]:
        operation: RowOperation = ctx.operation
        tensors = dict(zip(operation.inputs, ctx.saved_tensors, strict=True))
        bars = {f"{name}_bar": torch.empty_like(tensor) for name, tensor in tensors.items()}
        given = {**tensors, "result_bar": result_bar.contiguous(), **bars}
        operation.launch(f"{operation.name}_adjoint", given, result_bar.shape[1], ctx.settings)
        return None, None, None, *bars.values()
