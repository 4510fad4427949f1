"""The fit of a critic on the CPU by kernels: PyTorch's small operations take two to five times as long.

What it computes is what `Shac.fit_critic` writes out in PyTorch, to rounding; `kernels/critic_fit.h` has it, and
`kernels/perceptron.h` the network and its adjoint. The bits do not depend on the number of threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path

import torch
import warp as wp
from torch import Tensor, nn

from trot.envs.ranks import Ranks
from trot.learn.networks import MemberLayerNorm, MemberLinear
from trot.learn.optimizer import Adam, MemberAdam
from trot.learn.parameter_places import addresses, member_strides
from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.blocks import SharedBlocks
from trot.sim.build import C_NAMES, SCALARS, Kernel, build_lock, define_programs, start_warp
from trot.sim.recorded_launches import RecordedLaunches
from trot.sim.threads import get_num_threads

HEADERS = Path(__file__).parent / "kernels"
CPU = torch.device("cpu")
LANES, BLOCK_ROWS, MOST_PARAMETERS, SUMS = 16, 64, 64, 16
"""As perceptron.h and critic_fit.h have them."""
WORTH_A_THREAD = 10_000_000
"""Operations below which handing a part of a batch to another thread costs more than it saves."""

SHAPE = ArgumentGroup(
    "Shape",
    (
        Argument("layers", "int", "linear ones"),
        Argument("widths", "int*", "of inputs, hidden layers, outputs", ("num_widths",)),
        Argument("epsilon", "Scalar", "of the normalisation"),
        Argument("parameters", "long long*", "their addresses, the first member's", ("num_parameters",)),
        Argument("strides", "long long*", "numbers from one member's to the next one's", ("num_parameters",)),
    ),
)
FIT = ArgumentGroup(
    "Fit",
    (
        Argument("inputs", "const Scalar*", "of all batches, one member after the other", ("rows", "width")),
        Argument("targets", "const Scalar*", "likewise", ("rows",)),
        Argument("means", "long long*", "addresses of Adam's moments", ("num_parameters",)),
        Argument("squares", "long long*", "likewise", ("num_parameters",)),
        Argument("rate", "const Scalar*", "of each member", ("members",)),
        Argument("largest", "const Scalar*", "norm of a gradient", ("members",)),
        Argument("steps", "const Scalar*", "that were taken before", ("members",)),
        Argument("loss", "Scalar*", "mean over the last pass", ("members",)),
        Argument("blocks", "Scalar*", "gradients of a batch's blocks of rows", ("block_numbers",)),
        Argument("scratch", "Scalar*", "what one thread works in", ("scratch_numbers",)),
        Argument("batch_rows", "int", "rows of a batch"),
        Argument("batches", "int", "of a pass"),
        Argument("passes", "int", "over all batches"),
        Argument("beta1", "Scalar", "share of itself that Adam's mean keeps"),
        Argument("beta2", "Scalar", "and the mean of squares"),
        Argument("first", "int", "member, block of rows or part of the sum, of this launch"),
        Argument("batch", "int", "of a pass that is taken in parts"),
        Argument("taken", "int", "steps of this fit, where it is taken in parts"),
        Argument("parts", "int", "blocks of rows that a batch is taken in"),
    ),
)
PROGRAMS = ("fit_critic", "fit_block", "fit_sum", "fit_step")

Numbers = Mapping[str, float]
Tensors = Mapping[str, Tensor | None]
_recorded = RecordedLaunches()


@functools.cache
def _shared_blocks(scratch_bytes: int) -> SharedBlocks:
    return SharedBlocks(scratch_bytes, "first", _recorded)


def perceptron_source(dtype: torch.dtype, block_rows: int) -> str:
    """perceptron.h for blocks of so many rows, behind what the build defines."""
    header = (HEADERS / "perceptron.h").read_text(encoding="utf-8").replace("#pragma once\n", "")
    return f"using Scalar = {C_NAMES[dtype]};\nconstexpr int VECTORS = {block_rows // LANES};\n{header}"


@functools.cache
def _kernels(dtype: torch.dtype) -> dict[str, Kernel]:
    with build_lock:
        start_warp()
        network = perceptron_source(dtype, BLOCK_ROWS)
        fit = (HEADERS / "critic_fit.h").read_text(encoding="utf-8").replace("#pragma once\n", "")
        declared = SHAPE.declaration() + FIT.declaration()
        text = f"namespace trot {{\n{network}{declared}{fit}}}  // namespace trot\n"
        unpacked = SHAPE.unpacking() + FIT.unpacking()
        programs = {
            name: ((SHAPE, FIT), f"{unpacked}    trot::{name}(shape, fit, thread);\n") for name in PROGRAMS
        }  # fmt: skip
        return define_programs(text, programs, dtype, CPU)


def _launch(program: str, dtype: torch.dtype, numbers: Numbers, tensors: Tensors, count: int) -> None:
    kernel = _kernels(dtype)[program]
    packed = kernel.packer.pack(numbers, tensors)
    _recorded.command(kernel, 0, packed, count, None, wp.device_from_torch(CPU)).launch()


@dataclass(frozen=True)
class PerceptronShape:
    """What the kernels must know of a perceptron before its weights."""

    widths: tuple[int, ...]
    epsilon: float

    @classmethod
    def of(cls, network: nn.Module) -> PerceptronShape | None:
        """None where the kernels do not know a network like this."""
        parameters = list(network.parameters())
        weight = parameters[0]
        if not isinstance(network, nn.Sequential) or weight.dtype not in SCALARS:
            return None
        layers = list(network)
        kinds = [nn.Linear | MemberLinear, nn.ELU, nn.LayerNorm | MemberLayerNorm]
        known = len(layers) % len(kinds) == 1 and all(
            isinstance(layer, kind) for layer, kind in zip(layers, cycle(kinds), strict=False)
        )
        if not known or any(isinstance(layer, nn.ELU) and layer.alpha != 1 for layer in layers):
            return None
        if len(parameters) > MOST_PARAMETERS:
            return None
        outputs = [layer.weight.shape[-2] for layer in layers if isinstance(layer, nn.Linear | MemberLinear)]
        epsilons = {layer.eps for layer in layers if isinstance(layer, nn.LayerNorm | MemberLayerNorm)}
        shape = cls((weight.shape[-1], *outputs), min(epsilons, default=0.0))
        members = len(weight) if weight.dim() == 3 else 1
        # A layer without a bias, or a normalisation without a scale, would have others read in its place.
        sizes = [one.numel() for one in parameters]
        if len(epsilons) > 1 or sizes != [members * size for size in shape.sizes]:
            return None
        return shape

    @property
    def sizes(self) -> list[int]:
        """Numbers in each parameter of one member: Network in perceptron.h."""
        found = []
        for inputs, outputs in pairwise(self.widths):
            found += [inputs * outputs, outputs, outputs, outputs]
        # The last layer is not normalised.
        return found[:-2]

    @property
    def multiplications(self) -> int:
        """Of one row on its way through the layers."""
        return sum(before * after for before, after in pairwise(self.widths))

    def workspace(self, rows: int, spare: int = 0) -> int:
        """Numbers that a block of so many rows is worked on in: Workspace in perceptron.h, and so many layers more."""
        return rows * ((4 + spare) * _padded(max(self.widths)) + sum(3 * width + 1 for width in self.widths[1:-1]))


def _padded(numbers: int) -> int:
    """Up to whole vectors."""
    return -(-numbers // LANES) * LANES


class CriticFit:
    """Fits a critic, or each member's, with Adam."""

    def __init__(
        self,
        parameters: list[Tensor],
        shape: PerceptronShape,
        optimizer: Adam | MemberAdam,
        ranks: Ranks | None = None,
    ) -> None:
        self.parameters, self.shape, self.optimizer, self.ranks = parameters, shape, optimizer, ranks
        self.members = len(optimizer.steps) if optimizer.steps.dim() else None

    @classmethod
    def of(cls, network: nn.Module, optimizer: Adam | MemberAdam, ranks: Ranks | None = None) -> CriticFit | None:
        """None where the network or the optimiser is none that the kernels know, or not on the CPU."""
        parameters: list[Tensor] = list(network.parameters())
        shape = PerceptronShape.of(network) if parameters[0].device == CPU else None
        known = shape is not None and shape.widths[-1] == 1 and not optimizer.decay
        return None if shape is None or not known else cls(parameters, shape, optimizer, ranks)

    def __call__(
        self, inputs: Tensor, targets: Tensor, batches: int, passes: int, max_grad_norm: float | Tensor
    ) -> Tensor:  # fmt: skip
        """Passes over batches of consecutive rows. The last pass's mean squared error, or each member's.

        inputs are (..., width) and targets (...), behind an axis of members where there are some. Ranks have each their
        share of every batch's rows, and as many of them.
        """
        optimizer, dtype, members = self.optimizer, inputs.dtype, self.members or 1
        batch_rows, left = divmod(targets.numel() // members, batches)
        if left:
            raise ValueError(f"{targets.numel() // members} rows do not split into {batches} batches")
        blocks = -(-batch_rows // BLOCK_ROWS)
        threads = self._threads(batch_rows, blocks)
        in_parts = threads > 1 or self.ranks is not None
        # Each parameter's part begins at a whole vector, and a block's error stands behind them.
        gradient = sum(_padded(one.numel() // members) for one in self.parameters)
        loss = torch.empty(members, dtype=dtype)
        means, squares = optimizer.moments()
        numbers: dict[str, float] = {
            "layers": len(self.shape.widths) - 1,
            "num_widths": len(self.shape.widths),
            "epsilon": self.shape.epsilon,
            "num_parameters": len(self.parameters),
            "rows": targets.numel(),
            "width": self.shape.widths[0],
            "members": members,
            "block_numbers": blocks * (gradient + LANES) if in_parts else 0,
            "scratch_numbers": self.shape.workspace(BLOCK_ROWS) + gradient,
            "batch_rows": batch_rows,
            "batches": batches,
            "passes": passes,
            "beta1": optimizer.betas[0],
            "beta2": optimizer.betas[1],
            "first": 0,
            "batch": 0,
            "taken": 0,
            "parts": blocks,
        }
        tensors: dict[str, Tensor | None] = {
            "widths": torch.tensor(self.shape.widths, dtype=torch.int32),
            "parameters": torch.tensor(addresses(self.parameters, self.parameters, self.members, dtype)),
            "strides": torch.tensor(member_strides(self.parameters, self.members)),
            "inputs": inputs.reshape(-1, self.shape.widths[0]),
            "targets": targets.reshape(-1),
            "means": torch.tensor(addresses(means, self.parameters, self.members, dtype)),
            "squares": torch.tensor(addresses(squares, self.parameters, self.members, dtype)),
            "rate": optimizer.rate.to(dtype).reshape(members),
            "largest": torch.as_tensor(max_grad_norm, dtype=dtype).expand(members).contiguous(),
            "steps": optimizer.steps.to(dtype).reshape(members),
            "loss": loss,
            "blocks": torch.empty(int(numbers["block_numbers"]), dtype=dtype),
            "scratch": torch.empty(int(numbers["scratch_numbers"]), dtype=dtype),
        }
        if in_parts:
            _fit_in_parts(numbers, tensors, dtype, threads, self._mean_over_ranks(tensors["blocks"], gradient + LANES))
        else:
            _launch("fit_critic", dtype, numbers, tensors, members)
        optimizer.count(batches * passes)
        return loss.view(optimizer.steps.shape)

    def _threads(self, batch_rows: int, blocks: int) -> int:
        """That share a batch. Half of them at most where the backward pass runs beside, as it does without ranks."""
        if self.members is not None:
            return 1
        operations = 6 * self.shape.multiplications * batch_rows
        free = get_num_threads() // 2 if self.ranks is None else get_num_threads()
        return max(1, min(free, blocks, operations // WORTH_A_THREAD))

    def _mean_over_ranks(self, blocks: Tensor | None, length: int) -> Callable[[], None]:
        """Makes a batch's gradient and error, which begin the blocks, those of all ranks' rows."""

        def reduce() -> None:
            if self.ranks is not None and blocks is not None:
                (mean,) = self.ranks.mean([blocks[:length]])
                blocks[:length] = mean

        return reduce


def _fit_in_parts(
    numbers: dict[str, float], tensors: Tensors, dtype: torch.dtype, threads: int, reduce: Callable[[], None]
) -> None:
    """Batch by batch: blocks of rows are shared by threads and added up, then a step is taken."""
    scratch = tensors["scratch"]
    assert scratch is not None
    shared = _shared_blocks(scratch.nbytes)
    fit_block, fit_sum = (_kernels(dtype)[name] for name in ("fit_block", "fit_sum"))
    taken = 0
    for _ in range(int(numbers["passes"])):
        for batch in range(int(numbers["batches"])):
            now = {**numbers, "batch": batch, "taken": taken}
            shared.run(fit_block, fit_block.packer.pack(now, tensors), int(numbers["parts"]), threads)
            shared.run(fit_sum, fit_sum.packer.pack(now, tensors), SUMS, threads)
            reduce()
            _launch("fit_step", dtype, now, tensors, 1)
            taken += 1
