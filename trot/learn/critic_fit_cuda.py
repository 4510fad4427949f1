"""The fit of a critic on CUDA as one kernel: PyTorch's operations are some thousands of small ones.

What it computes is what `Shac.fit_critic` writes out in PyTorch, to rounding; `kernels/critic_fit_cuda.h` has it, and
`kernels/critic_tile.h` the network and its adjoint. A kernel is built for the widths of a network. The bits depend
neither on the number of thread blocks nor on the other members.

A critic stays with PyTorch where not enough rows of its layers fit into a block's shared memory (`tile_rows`: two
hidden layers of 64, 128 or 256 fit, 400, 200 and 100 do not), and where its batches are so large that PyTorch's
operations fill the whole GPU (`MOST_WORK`).

Blocks wait for each other, so all of a launch must find room: on one GPU, one fit may run at a time.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
import warp as wp
from torch import Tensor, nn

from trot.learn.critic_fit import PerceptronShape
from trot.learn.optimizer import Adam, MemberAdam
from trot.learn.parameter_places import KnownPlaces, addresses, member_strides
from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.build import C_NAMES, Kernel, build_lock, define_programs, start_warp
from trot.sim.launch import warp_stream
from trot.sim.recorded_launches import RecordedLaunches

HEADERS = Path(__file__).parent / "kernels"
THREADS, WARP, CHUNK_FOURS, ARRIVALS_APART = 256, 32, 256, 32
SHARED_BYTES = 47 * 1024
"""Of a block: 48 KiB without the 1 KiB that Warp takes for itself."""
TILE_ROWS = {torch.float32: (64, 32, 16), torch.float64: (64, 32, 16, 8)}
"""Rows that a block may take through the network at once. With 8, half of the threads have nothing to do: that is for
float64, where tests need it."""
MOST_SLOTS = 16
"""Gradients that are summed apart: so many blocks can share a batch."""
MOST_WORK = 70_000_000
"""Operations of a block on a batch. At some 200 GFLOP/s that is 0.35 ms, by counting: with more, PyTorch's operations
are no longer small, and all multiprocessors share them."""
SHARE = 4
"""One in so many multiprocessors has a block. Blocks of a member wait for each other, and a multiprocessor has room for
one: so the physics beside keeps most of the GPU, and several programs that share it find room for all their blocks."""

FIT = ArgumentGroup(
    "Fit",
    (
        Argument("inputs", "const Scalar*", "of all batches, one member after the other", ("rows", "width")),
        Argument("targets", "const Scalar*", "likewise", ("rows",)),
        Argument("parameters", "long long*", "their addresses, the first member's", ("num_parameters",)),
        Argument("means", "long long*", "addresses of Adam's moments", ("num_parameters",)),
        Argument("squares", "long long*", "likewise", ("num_parameters",)),
        Argument("strides", "long long*", "numbers from one member's to the next one's", ("num_parameters",)),
        Argument("rate", "const Scalar*", "of each member", ("members",)),
        Argument("largest", "const Scalar*", "norm of a gradient", ("members",)),
        Argument("steps", "const Scalar*", "that were taken before", ("members",)),
        Argument("loss", "Scalar*", "mean over the last pass", ("members",)),
        Argument("weights", "Scalar*", "padded copies, as they lie and transposed", ("groups", "weight_numbers")),
        Argument("gradients", "Scalar*", "of each slot", ("groups", "gradient_numbers")),
        Argument("squares_of_parts", "Scalar*", "of the gradient", ("groups", "part_numbers")),
        Argument("arrivals", "int*", "of blocks at their barrier", ("groups", "arrivals_apart")),
        Argument("scratch", "Scalar*", "a tile, where there is no shared memory", ("scratch_numbers",)),
        Argument("members", "int", "critics to fit"),
        Argument("groups", "int", "of blocks; each fits a member at a time"),
        Argument("blocks", "int", "of a group, a power of two"),
        Argument("slots", "int", "that a batch's tiles are dealt out to"),
        Argument("batch_rows", "int", "rows of a batch"),
        Argument("batches", "int", "of a pass"),
        Argument("passes", "int", "over all batches"),
        Argument("beta1", "Scalar", "share of itself that Adam's mean keeps"),
        Argument("beta2", "Scalar", "and the mean of squares"),
        Argument("epsilon", "Scalar", "of the normalisation"),
    ),
)
PROGRAM = "fit_critic"
_recorded = RecordedLaunches()


def _fours(numbers: int) -> int:
    return -(-numbers // 4) * 4


def _power_of_two(most: int) -> int:
    """The largest that is not above."""
    return 1 << (max(1, most).bit_length() - 1)


@dataclass(frozen=True)
class TileLayout:
    """What critic_tile.h and critic_fit_cuda.h count, where they are compiled: they compare."""

    widths: tuple[int, ...]
    rows: int
    """Of a tile."""

    @property
    def tile(self) -> int:
        """Numbers of a tile of rows, with what is noted of them."""
        inputs = self.widths[:-2]
        hidden = self.widths[1:-1]
        notes = (2 * len(hidden) + 1) * self.rows // 4
        return max(sum(inputs) + max(hidden), notes) * (self.rows + 4)

    @property
    def parameters(self) -> int:
        """Numbers of the padded parameters of one member."""
        weights = sum(outputs * _fours(inputs) for inputs, outputs in pairwise(self.widths))
        # Bias, scale and shift of the hidden layers, a bias of the last one.
        return weights + 3 * sum(_fours(width) for width in self.widths[1:-1]) + 4

    @property
    def weights(self) -> int:
        """With the transposed weights behind them."""
        hidden = self.widths[:-1]
        return self.parameters + sum(inputs * _fours(outputs) for inputs, outputs in pairwise(hidden))

    @property
    def slot(self) -> int:
        """A gradient, and an error behind it."""
        return self.parameters + 4

    @property
    def chunks(self) -> int:
        return -(-self.parameters // (4 * CHUNK_FOURS))

    def constants(self, dtype: torch.dtype) -> str:
        """C++ that stands before the headers."""
        numbers = {
            "LAYERS": len(self.widths) - 1,
            "ROWS": self.rows,
            "BLOCK_THREADS": THREADS,
            "CHUNK_FOURS": CHUNK_FOURS,
            "HOST_TILE": self.tile,
            "HOST_SLOT": self.slot,
            "HOST_WEIGHTS": self.weights,
            "HOST_CHUNKS": self.chunks,
            "HOST_ARRIVALS": ARRIVALS_APART,
        }
        declared = "".join(f"constexpr int {name} = {number};\n" for name, number in numbers.items())
        widths = ", ".join(str(width) for width in self.widths)
        return f"using Scalar = {C_NAMES[dtype]};\nconstexpr int WIDTHS[] = {{{widths}}};\n{declared}"


def tile_rows(widths: tuple[int, ...], dtype: torch.dtype) -> int | None:
    """Rows that a block takes at once: as many as fit; None where these are too few, or no layer is hidden."""
    if len(widths) < 3:
        return None
    fitting = (rows for rows in TILE_ROWS[dtype] if TileLayout(widths, rows).tile * dtype.itemsize <= SHARED_BYTES)
    return next(fitting, None)


@functools.cache
def kernel_of(layout: TileLayout, dtype: torch.dtype, device: torch.device) -> Kernel:
    """Compiled on its first launch, or found in Warp's cache."""
    with build_lock:
        start_warp()
        block, tile, fit = (
            (HEADERS / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
            for name in ("block.h", "critic_tile.h", "critic_fit_cuda.h")
        )
        constants = layout.constants(dtype)
        text = f"namespace trot {{\n{constants}{block}{tile}{FIT.declaration()}{fit}}}  // namespace trot\n"
        body = f"{FIT.unpacking()}    trot::{PROGRAM}(fit, thread);\n"
        return define_programs(text, {PROGRAM: ((FIT,), body)}, dtype, device)[PROGRAM]


class CudaCriticFit:
    """Fits a critic, or each member's, with Adam. On the CPU it is one slow thread, for tests."""

    def __init__(
        self, parameters: list[Tensor], shape: PerceptronShape, optimizer: Adam | MemberAdam, rows: int | None = None,
        blocks: int | None = None,
    ) -> None:  # fmt: skip
        """Rows of a tile and blocks that share a member, a power of two, are chosen unless they are given."""
        self.parameters, self.shape, self.optimizer = parameters, shape, optimizer
        self.members = len(optimizer.steps) if optimizer.steps.dim() else None
        self.device, self.dtype = parameters[0].device, parameters[0].dtype
        rows = tile_rows(shape.widths, self.dtype) if rows is None else rows
        if rows is None:
            raise ValueError(f"too few rows of layers {shape.widths} in {self.dtype} fit into {SHARED_BYTES} bytes")
        self.layout = TileLayout(shape.widths, rows)
        self._blocks = blocks
        self._known = KnownPlaces(self.device)
        self._scratch: dict[int, dict[str, Tensor]] = {}

    @classmethod
    def of(cls, network: nn.Module, optimizer: Adam | MemberAdam, batch_rows: int) -> CudaCriticFit | None:
        """None where PyTorch is to fit it: see above, or because network or optimiser is none that the kernel knows."""
        parameters: list[Tensor] = list(network.parameters())
        shape = PerceptronShape.of(network) if parameters[0].device.type == "cuda" else None
        if shape is None or optimizer.decay or tile_rows(shape.widths, parameters[0].dtype) is None:
            return None
        fit = cls(parameters, shape, optimizer)
        _, blocks = fit.grid(fit.slots(batch_rows))
        return fit if 6 * shape.multiplications * batch_rows <= blocks * MOST_WORK else None

    def __call__(
        self, inputs: Tensor, targets: Tensor, batches: int, passes: int, max_grad_norm: float | Tensor
    ) -> Tensor:  # fmt: skip
        """Passes over batches of consecutive rows. The last pass's mean squared error, or each member's.

        inputs are (..., width) and targets (...), behind an axis of members where there are some.
        """
        optimizer, dtype, device, members = self.optimizer, self.dtype, self.device, self.members or 1
        batch_rows, left = divmod(targets.numel() // members, batches)
        if left:
            raise ValueError(f"{targets.numel() // members} rows do not split into {batches} batches")
        slots = self.slots(batch_rows)
        groups, blocks = self.grid(slots)
        numbers: dict[str, float] = {
            "rows": targets.numel(),
            "width": self.shape.widths[0],
            "num_parameters": len(self.parameters),
            "members": members,
            "groups": groups,
            "blocks": blocks,
            "slots": slots,
            "weight_numbers": self.layout.weights,
            "gradient_numbers": slots * self.layout.slot,
            "part_numbers": self.layout.chunks * (THREADS // WARP),
            "arrivals_apart": ARRIVALS_APART,
            "scratch_numbers": 0 if device.type == "cuda" else self.layout.tile,
            "batch_rows": batch_rows,
            "batches": batches,
            "passes": passes,
            "beta1": optimizer.betas[0],
            "beta2": optimizer.betas[1],
            "epsilon": self.shape.epsilon,
        }
        loss = torch.empty(members, dtype=dtype, device=device)
        tensors: dict[str, Tensor | None] = {
            "inputs": inputs.reshape(-1, self.shape.widths[0]),
            "targets": targets.reshape(-1),
            "rate": optimizer.rate.to(dtype).reshape(members),
            "largest": self._largest(max_grad_norm, members),
            "steps": optimizer.steps.to(dtype).reshape(members),
            "loss": loss,
            **self._places(),
            **self._workspace(numbers),
        }
        kernel = kernel_of(self.layout, dtype, device)
        packed = kernel.packer.pack(numbers, tensors)
        on_cuda = device.type == "cuda"
        threads = groups * blocks * (THREADS if on_cuda else 1)
        command = _recorded.command(
            kernel, 0, packed, threads, THREADS if on_cuda else None, wp.device_from_torch(device)
        )  # fmt: skip
        command.launch(stream=warp_stream(device) if on_cuda else None)
        optimizer.count(batches * passes)
        return loss.view(optimizer.steps.shape)

    def slots(self, batch_rows: int) -> int:
        """Gradients that a batch is summed in, a power of two."""
        return _power_of_two(min(-(-batch_rows // self.layout.rows), MOST_SLOTS))

    def grid(self, slots: int) -> tuple[int, int]:
        """Groups of blocks, and blocks of each."""
        if self.device.type != "cuda":
            return 1, 1
        most = max(1, torch.cuda.get_device_properties(self.device).multi_processor_count // SHARE)
        members = self.members or 1
        blocks = _power_of_two(min(slots, most // members if self._blocks is None else self._blocks, most))
        return min(members, most // blocks), blocks

    def _largest(self, norm: float | Tensor, members: int) -> Tensor:
        if isinstance(norm, Tensor):
            return norm.to(self.device, self.dtype).expand(members).contiguous()
        # Not from a number of the host's: a captured graph could not copy it.
        return torch.full((members,), norm, dtype=self.dtype, device=self.device)

    def _places(self) -> dict[str, Tensor]:
        """Addresses of parameters and moments."""
        means, squares = self.optimizer.moments()
        found = {
            name: addresses(tensors, self.parameters, self.members, self.dtype)
            for name, tensors in (("parameters", self.parameters), ("means", means), ("squares", squares))
        }
        return self._known.tensors({**found, "strides": member_strides(self.parameters, self.members)})

    def _workspace(self, numbers: dict[str, float]) -> dict[str, Tensor]:
        """What the blocks work in: made once, as a captured graph goes on with it. Padding must be zeros."""
        slots = int(numbers["slots"])
        if slots not in self._scratch:
            shapes = {a.name: [int(numbers[size]) for size in a.shape] for a in FIT.arguments if a.is_tensor}
            self._scratch[slots] = {
                name: torch.zeros(shapes[name], dtype=self.dtype, device=self.device)
                for name in ("weights", "gradients", "squares_of_parts", "scratch")
            } | {"arrivals": torch.zeros(shapes["arrivals"], dtype=torch.int32, device=self.device)}
        return self._scratch[slots]
