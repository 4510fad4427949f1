"""A perceptron whose weights need no gradient, on the CPU: threads share its rows.

What it computes is what the network's layers do, to rounding; `kernels/shared_network.h` has it. A block is 32 rows,
whatever the number of threads, and the bits do not depend on it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trot.learn.critic_fit import SHAPE, PerceptronShape, perceptron_source
from trot.learn.members import by_members
from trot.learn.parameter_places import addresses, member_strides
from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.blocks import SharedBlocks
from trot.sim.build import Kernel, build_lock, define_programs, start_warp
from trot.sim.recorded_launches import RecordedLaunches
from trot.sim.threads import get_num_threads

HEADERS = Path(__file__).parent / "kernels"
CPU = torch.device("cpu")
BLOCK_ROWS = 32
"""Fewer than the critic's fit takes at once, whose batches are larger, so that more threads find some."""
MOST_WEIGHTS = 2**17
"""Each block of rows reads all of them: with more, they leave the cache in between, and PyTorch is as fast."""
WORTH_A_THREAD = 2_000_000
"""Multiplications below which handing rows to another thread costs more than it saves."""

PLACE = (
    Argument("scratch", "Scalar*", "what one thread works in", ("scratch_numbers",), optional=True),
    Argument("member_rows", "int", "rows of each member"),
    Argument("first", "int", "block of rows"),
)
FORWARD = ArgumentGroup(
    "Forward",
    (
        Argument("inputs", "const Scalar*", "one member after the other", ("rows", "inputs_width")),
        Argument("outputs", "Scalar*", "likewise", ("rows", "outputs_width")),
        *PLACE,
    ),
)
ADJOINT = ArgumentGroup(
    "Adjoint",
    (
        Argument("inputs", "const Scalar*", "one member after the other", ("rows", "inputs_width")),
        Argument("outputs_bar", "const Scalar*", "likewise", ("rows", "outputs_width")),
        Argument("inputs_bar", "Scalar*", "likewise", ("rows", "inputs_width")),
        *PLACE,
    ),
)
PROGRAMS = {"run_rows": FORWARD, "run_rows_adjoint": ADJOINT}


@functools.cache
def _kernels(dtype: torch.dtype) -> dict[str, Kernel]:
    with build_lock:
        start_warp()
        perceptron = perceptron_source(dtype, BLOCK_ROWS)
        network = (HEADERS / "shared_network.h").read_text(encoding="utf-8").replace("#pragma once\n", "")
        declared = "".join(group.declaration() for group in (SHAPE, FORWARD, ADJOINT))
        text = f"namespace trot {{\n{perceptron}{declared}{network}}}  // namespace trot\n"
        programs = {
            name: (
                (SHAPE, group),
                f"{SHAPE.unpacking()}{group.unpacking()}    trot::{name}(shape, {group.name.lower()}, thread);\n",
            )
            for name, group in PROGRAMS.items()
        }
        return define_programs(text, programs, dtype, CPU)


class SharedNetwork:
    """A perceptron, or each member's. Weights may change, but not between a call and the way back through it."""

    def __init__(self, network: nn.Module, shape: PerceptronShape) -> None:
        self.shape = shape
        self.parameters: list[Tensor] = list(network.parameters())
        first = self.parameters[0]
        self.dtype = first.dtype
        self.members = len(first) if first.dim() == 3 else None
        self._blocks = SharedBlocks(shape.workspace(BLOCK_ROWS) * self.dtype.itemsize, "first", RecordedLaunches())
        self._widths = torch.tensor(shape.widths, dtype=torch.int32)
        self.refresh()

    @classmethod
    def of(cls, network: nn.Module) -> SharedNetwork | None:
        """None where PyTorch is to do it: on a GPU, for layers that the kernels do not know, and for large ones."""
        if next(network.parameters()).device != CPU:
            return None
        shape = PerceptronShape.of(network)
        return None if shape is None or shape.multiplications > MOST_WEIGHTS else cls(network, shape)

    def refresh(self) -> None:
        """Look where the weights are; what they are is read in each call."""
        self._places = {
            "widths": self._widths,
            "parameters": torch.tensor(addresses(self.parameters, self.parameters, self.members, self.dtype)),
            "strides": torch.tensor(member_strides(self.parameters, self.members)),
        }

    def __call__(self, inputs: Tensor) -> Tensor:
        """(..., width) to (..., outputs); with members (members, rows, width), or (rows, width) for all of them."""
        return by_members(lambda rows: _SharedRows.apply(self, rows), self.members, inputs)  # type: ignore[no-untyped-call]

    def run(self, program: str, member_rows: int, tensors: Mapping[str, Tensor]) -> None:
        """One of PROGRAMS on all rows."""
        blocks = (self.members or 1) * -(-member_rows // BLOCK_ROWS)
        numbers = {
            "layers": len(self.shape.widths) - 1,
            "num_widths": len(self.shape.widths),
            "epsilon": self.shape.epsilon,
            "num_parameters": len(self.parameters),
            "rows": (self.members or 1) * member_rows,
            "inputs_width": self.shape.widths[0],
            "outputs_width": self.shape.widths[-1],
            "member_rows": member_rows,
            "first": 0,
        }
        kernel = _kernels(self.dtype)[program]
        packed = kernel.packer.pack(numbers, {**self._places, **tensors, "scratch": None})
        worthwhile = blocks * BLOCK_ROWS * self.shape.multiplications // WORTH_A_THREAD
        self._blocks.run(kernel, packed, blocks, max(1, min(get_num_threads(), worthwhile)))


class _SharedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, network: SharedNetwork, inputs: Tensor) -> Tensor:
        inputs = inputs.contiguous()
        members, rows, _ = inputs.shape
        outputs = inputs.new_empty(members, rows, network.shape.widths[-1])
        network.run("run_rows", rows, {"inputs": inputs.flatten(0, 1), "outputs": outputs.flatten(0, 1)})
        ctx.network = network
        # The weights too, so that PyTorch notices when they have changed.
        ctx.save_for_backward(inputs, *network.parameters)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outputs_bar: Tensor) -> tuple[None, Tensor]:
        inputs, *_ = ctx.saved_tensors
        inputs_bar = torch.empty_like(inputs)
        tensors = {"inputs": inputs, "outputs_bar": outputs_bar.contiguous(), "inputs_bar": inputs_bar}
        ctx.network.run("run_rows_adjoint", inputs.shape[1], {name: one.flatten(0, 1) for name, one in tensors.items()})
        return None, inputs_bar
