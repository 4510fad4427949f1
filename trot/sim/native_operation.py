"""Small differentiable operations of their own, from a C++ header: one row of numbers per world in, one out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.build import SCALARS
from trot.sim.native_rows import RowKernels, RowProgram

Numbers = dict[str, float]


class RowOperation:
    """The operation NAME of a header, on inputs A, B, ...: each is (num_worlds, its own width).

    The header defines two functions. All lanes of a world call them, and share the work as they like:

        NAME(settings, A, B, ..., result, lane, lanes)
        NAME_adjoint(settings, A, B, ..., result_bar, A_bar, B_bar, ..., lane, lanes)

    where the others are pointers to the world's rows, and settings is a struct `Settings` that stands before the
    header: A_width, B_width, ..., result_width, and what `settings` lists.
    """

    def __init__(self, header: Path, name: str, inputs: tuple[str, ...], settings: tuple[Argument, ...]) -> None:
        self.name, self.inputs = name, inputs
        self._all = "both" if len(inputs) == 2 else "all"
        widths = tuple(Argument(f"{given}_width", "int", "numbers in a row") for given in (*inputs, "result"))
        self._settings = ArgumentGroup("Settings", (*widths, *settings))
        bars = tuple(f"{one}_bar" for one in inputs)
        groups = {
            name: _rows_group("Rows", inputs, ("result",)),
            f"{name}_adjoint": _rows_group("RowsAdjoint", (*inputs, "result_bar"), bars),
        }
        self._kernels = RowKernels(
            header,
            {key: RowProgram((self._settings, group), _call(key, group)) for key, group in groups.items()},
        )

    def __call__(self, inputs: tuple[Tensor, ...], width: int, settings: Numbers) -> Tensor:
        """The result, (num_worlds, width); gradients flow to the inputs. Settings are given by name."""
        self._check(inputs)
        result: Tensor = _Rows.apply(self, width, settings, *inputs)  # type: ignore[no-untyped-call]
        return result

    def launch(self, which: str, tensors: dict[str, Tensor], width: int, settings: Numbers) -> None:
        """Run NAME or NAME_adjoint on every row; tensors by the names that the functions above give them."""
        first = tensors[self.inputs[0]]
        widths = {f"{name}_width": tensors[name].shape[1] for name in self.inputs}
        numbers = {"result_width": width, **settings, **widths}
        self._kernels.launch(which, first, first.shape[0], numbers, tensors)

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
    return ArgumentGroup(name, tuple(tensors))


def _call(function: str, group: ArgumentGroup) -> str:
    here = group.name.lower()
    rows = [f"{here}.{argument.name} + row * settings.{argument.shape[1]}" for argument in group.arguments]
    return f"trot::{function}(settings, {', '.join(rows)}, lane, lanes)"


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
