"""A perceptron on the CPU whose rows are shared by threads.

What it computes is what the network's layers do, to rounding; `kernels/shared_network.h` has it. A block is 32 rows,
whatever the number of threads, and the bits do not depend on it. Gradients of the weights are added up over parts of
the rows, as many as their number alone says.
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
SPARE = 3
"""Layers that a policy's block is worked on in besides: PolicyBlock in kernels/shared_policy.h."""
LEAST_PART, MOST_PARTS = 4, 16
"""Blocks that one thread adds a gradient up over, at least; and parts that a member's rows are taken in, at most."""

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
BY_WEIGHTS = ArgumentGroup(
    "ByWeights",
    (
        Argument("inputs", "const Scalar*", "one member after the other", ("rows", "inputs_width")),
        Argument("outputs_bar", "const Scalar*", "likewise", ("rows", "outputs_width")),
        Argument("sums", "Scalar*", "of each part: the parameters' one after the other", ("parts", "part_numbers")),
        *PLACE[:-1],
        Argument("member_parts", "int", "of each member's rows"),
        Argument("part_blocks", "int", "of rows, in each but the last"),
        Argument("part_numbers", "int", "a member's parameters, as one sum has them"),
        Argument("first", "int", "part"),
    ),
)
AROUND = (
    Argument("shift", "const Scalar*", "what is subtracted from observations", ("members", "inputs_width")),
    Argument("scale", "const Scalar*", "and what they are then multiplied by", ("members", "inputs_width")),
    Argument("mirrored_observation", "int*", "null: no mirror", ("inputs_width",), optional=True),
    Argument("mirrored_action", "int*", "likewise", ("outputs_width",), optional=True),
)
ACT = ArgumentGroup(
    "Act",
    (
        Argument("observations", "const Scalar*", "one member after the other", ("rows", "inputs_width")),
        Argument("noise", "const Scalar*", "standard normal", ("rows", "outputs_width")),
        Argument("actions", "Scalar*", "samples", ("rows", "outputs_width")),
        Argument("deviation", "const Scalar*", "of the samples", ("members", "outputs_width")),
        *AROUND,
        *PLACE,
    ),
)
ACT_ADJOINT = ArgumentGroup(
    "ActAdjoint",
    (
        Argument("observations", "const Scalar*", "one member after the other", ("rows", "inputs_width")),
        Argument("actions", "const Scalar*", "samples by run_policy", ("rows", "outputs_width")),
        Argument("actions_bar", "const Scalar*", "likewise", ("rows", "outputs_width")),
        Argument("observations_bar", "Scalar*", "likewise", ("rows", "inputs_width")),
        *AROUND,
        *PLACE,
    ),
)
PROGRAMS = {
    "run_rows": FORWARD,
    "run_rows_adjoint": ADJOINT,
    "run_rows_by_weights": BY_WEIGHTS,
    "run_policy": ACT,
    "run_policy_adjoint": ACT_ADJOINT,
}


@functools.cache
def _kernels(dtype: torch.dtype) -> dict[str, Kernel]:
    with build_lock:
        start_warp()
        perceptron = perceptron_source(dtype, BLOCK_ROWS)
        network, policy = (
            (HEADERS / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
            for name in ("shared_network.h", "shared_policy.h")
        )
        declared = "".join(group.declaration() for group in (SHAPE, *PROGRAMS.values()))
        text = f"namespace trot {{\n{perceptron}{declared}{network}{policy}}}  // namespace trot\n"
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
        self._blocks = SharedBlocks(
            shape.workspace(BLOCK_ROWS, SPARE) * self.dtype.itemsize, "first", RecordedLaunches()
        )
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
        weighed = torch.is_grad_enabled() and any(one.requires_grad for one in self.parameters)
        weights = self.parameters if weighed else ()
        return by_members(lambda rows: _SharedRows.apply(self, rows, *weights), self.members, inputs)  # type: ignore[no-untyped-call]

    def run(self, program: str, member_rows: int, tensors: Mapping[str, Tensor | None], passes: int = 1) -> None:
        """A program over all rows, which takes each so many times through the network."""
        blocks = (self.members or 1) * _blocks(member_rows)
        multiplications = passes * blocks * BLOCK_ROWS * self.shape.multiplications
        self._launch(program, member_rows, {}, tensors, blocks, multiplications)

    def by_weights(self, inputs: Tensor, outputs_bar: Tensor) -> list[Tensor]:
        """The derivative by each parameter, of inputs and what came of them, (members, rows, width)."""
        members, rows, _ = inputs.shape
        part_blocks = max(LEAST_PART, -(-_blocks(rows) // MOST_PARTS))
        parts = -(-_blocks(rows) // part_blocks)
        sizes = self.shape.sizes
        sums = inputs.new_empty(members * parts, sum(sizes))
        numbers = {
            "member_parts": parts,
            "part_blocks": part_blocks,
            "parts": members * parts,
            "part_numbers": sum(sizes),
        }
        tensors = {"inputs": inputs.flatten(0, 1), "outputs_bar": outputs_bar.flatten(0, 1), "sums": sums}
        multiplications = 3 * members * rows * self.shape.multiplications
        self._launch("run_rows_by_weights", rows, numbers, tensors, members * parts, multiplications)
        of_members = torch.split(sums.view(members, parts, -1).sum(dim=1), sizes, dim=1)
        return [part.reshape(one.shape) for part, one in zip(of_members, self.parameters, strict=True)]

    def _launch(
        self,
        program: str,
        member_rows: int,
        more: Mapping[str, float],
        tensors: Mapping[str, Tensor | None],
        shares: int,
        multiplications: int,
    ) -> None:
        numbers = {
            "layers": len(self.shape.widths) - 1,
            "num_widths": len(self.shape.widths),
            "epsilon": self.shape.epsilon,
            "num_parameters": len(self.parameters),
            "members": self.members or 1,
            "rows": (self.members or 1) * member_rows,
            "inputs_width": self.shape.widths[0],
            "outputs_width": self.shape.widths[-1],
            "member_rows": member_rows,
            "first": 0,
            **more,
        }
        kernel = _kernels(self.dtype)[program]
        packed = kernel.packer.pack(numbers, {**self._places, **tensors, "scratch": None})
        worthwhile = multiplications // WORTH_A_THREAD
        self._blocks.run(kernel, packed, shares, max(1, min(get_num_threads(), worthwhile)))


def _blocks(rows: int) -> int:
    return -(-rows // BLOCK_ROWS)


class _SharedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, network: SharedNetwork, inputs: Tensor, *weights: Tensor) -> Tensor:
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
    def backward(ctx: Any, outputs_bar: Tensor) -> tuple[Tensor | None, ...]:
        inputs, *_ = ctx.saved_tensors
        outputs_bar, inputs_bar = outputs_bar.contiguous(), None
        _, for_inputs, *for_weights = ctx.needs_input_grad
        if for_inputs:
            inputs_bar = torch.empty_like(inputs)
            tensors = {"inputs": inputs, "outputs_bar": outputs_bar, "inputs_bar": inputs_bar}
            ctx.network.run(
                "run_rows_adjoint", inputs.shape[1], {name: one.flatten(0, 1) for name, one in tensors.items()}
            )
        return None, inputs_bar, *(ctx.network.by_weights(inputs, outputs_bar) if for_weights else ())
