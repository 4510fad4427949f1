"""A perceptron whose weights need no gradient, on CUDA as one kernel each way, where PyTorch has fifteen and more.

What it computes is what the network's layers do, to rounding; `kernels/frozen_network.h` has it. A kernel is built for
the widths of a network and for the rows of a tile, which a block of threads takes through all layers. The bits are the
same run after run; they depend on the rows of a tile, which are chosen by how many rows there are in all.

Weights are read from a copy that lies as the products need them, as it is and transposed: `refresh` makes it, one small
kernel for all calls of a window. Forward keeps two numbers for each hidden feature of a row: to compute them again
would take half of the adjoint's time, and PyTorch keeps as many.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import torch
import warp as wp
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trot.learn.members import by_members
from trot.learn.networks import MemberLayerNorm, MemberLinear, Policy
from trot.learn.parameter_places import KnownPlaces, addresses, member_strides
from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.build import C_NAMES, SCALARS, Kernel, build_lock, define_programs, start_warp
from trot.sim.launch import warp_stream
from trot.sim.recorded_launches import RecordedLaunches

HEADERS = Path(__file__).parent / "kernels"
THREADS, WARP, MOST_SLICES = 256, 32, 16
TILE_ROWS = (4, 8, 16, 32)
SHARED_BYTES = 47 * 1024
"""Of a block: 48 KiB without the 1 KiB that Warp takes for itself."""
MOST_BYTES = 2 * 1024 * 1024
"""Of weights that a multiprocessor reads in one call. Each block reads all of them, at some 50 bytes a nanosecond, by
counting: with more, PyTorch's products are faster, because their blocks share the weights."""
ACTIVATIONS: dict[type[nn.Module], int] = {nn.ELU: 0, nn.ReLU: 1, nn.SiLU: 2}
"""As frozen_network.h numbers them."""

SCRATCH = Argument("scratch", "Scalar*", "a tile, where there is no shared memory", ("scratch_numbers",))
PACKED = Argument("packed", "const Scalar*", "weights of each member", ("members", "packed_numbers"))
ROWS = Argument("member_rows", "int", "rows of each member")
SCALE = Argument("scale", "const Scalar*", "likewise", ("members", "inputs_width"), optional=True)
RUN = ArgumentGroup(
    "Run",
    (
        Argument("inputs", "const Scalar*", "one member after the other", ("rows", "inputs_width")),
        PACKED,
        Argument("outputs", "Scalar*", "likewise", ("rows", "outputs_width")),
        Argument("kept", "Scalar*", "for the adjoint", ("tiles", "kept_numbers"), optional=True),
        Argument("shift", "const Scalar*", "of inputs; null: as they are", ("members", "inputs_width"), optional=True),
        SCALE,
        Argument("deviation", "const Scalar*", "null: no sample", ("members", "outputs_width"), optional=True),
        Argument("noise", "const Scalar*", "standard normal", ("rows", "outputs_width"), optional=True),
        SCRATCH,
        ROWS,
        Argument("epsilon", "Scalar", "of the normalisation"),
    ),
)
BACK = ArgumentGroup(
    "Back",
    (
        Argument("outputs_bar", "const Scalar*", "one member after the other", ("rows", "outputs_width")),
        PACKED,
        Argument("kept", "const Scalar*", "by forward", ("tiles", "kept_numbers")),
        Argument("inputs_bar", "Scalar*", "likewise", ("rows", "inputs_width")),
        SCALE,
        Argument("actions", "const Scalar*", "samples by forward", ("rows", "outputs_width"), optional=True),
        SCRATCH,
        ROWS,
    ),
)
PACK = ArgumentGroup(
    "Pack",
    (
        Argument("parameters", "long long*", "their addresses, the first member's", ("num_parameters",)),
        Argument("strides", "long long*", "numbers from one member's to the next one's", ("num_parameters",)),
        Argument("packed", "Scalar*", "weights of each member", ("members", "packed_numbers")),
    ),
)
PROGRAMS = {"run_network": RUN, "run_network_adjoint": BACK, "pack_weights": PACK}
_recorded = RecordedLaunches()


def _parts(numbers: int, part: int) -> int:
    return -(-numbers // part)


def _fours(numbers: int) -> int:
    return 4 * _parts(numbers, 4)


@dataclass(frozen=True)
class NetworkShape:
    """What a kernel is built for, but for the tile."""

    widths: tuple[int, ...]
    activation: int
    normalized: bool
    epsilon: float

    @classmethod
    def of(cls, network: nn.Module) -> NetworkShape | None:
        """None where the kernels do not know a network like this."""
        if not isinstance(network, nn.Sequential):
            return None
        layers = list(network)
        linear = [layer for layer in layers if isinstance(layer, nn.Linear | MemberLinear)]
        norms = [layer for layer in layers if isinstance(layer, nn.LayerNorm | MemberLayerNorm)]
        activation = type(layers[1]) if len(layers) > 1 else nn.ELU
        kinds: list[Any] = [nn.Linear | MemberLinear, activation, *([nn.LayerNorm | MemberLayerNorm] if norms else [])]
        if activation not in ACTIVATIONS or len(layers) % len(kinds) != 1:
            return None
        if not all(isinstance(layer, kind) for layer, kind in zip(layers, cycle(kinds), strict=False)):
            return None
        epsilons = {layer.eps for layer in norms}
        if len(epsilons) > 1 or any(isinstance(layer, nn.ELU) and layer.alpha != 1 for layer in layers):
            return None
        outputs = [layer.weight.shape[-2] for layer in linear]
        shape = cls(
            (linear[0].weight.shape[-1], *outputs), ACTIVATIONS[activation], bool(norms), min(epsilons, default=0.0)
        )
        parameters = list(network.parameters())
        members = len(linear[0].weight) if linear[0].weight.dim() == 3 else 1
        # A layer without a bias, or a normalisation without a scale, would have others read in its place.
        if [one.numel() for one in parameters] != [members * size for size in shape.sizes]:
            return None
        same = {(one.dtype, one.device) for one in parameters}
        return shape if len(same) == 1 and parameters[0].dtype in SCALARS else None

    @property
    def sizes(self) -> list[int]:
        """Numbers in each parameter of one member."""
        found = []
        for inputs, outputs in pairwise(self.widths):
            found += [inputs * outputs, outputs, *([outputs, outputs] if self.normalized else [])]
        # The last layer is not normalised.
        return found[:-2] if self.normalized else found

    @property
    def multiplications(self) -> int:
        """Of one row on its way through the layers."""
        return sum(before * after for before, after in pairwise(self.widths))


@dataclass(frozen=True)
class FrozenLayout:
    """What frozen_network.h counts, where it is compiled: it compares."""

    shape: NetworkShape
    rows: int
    """Of a tile."""
    threads: int = THREADS
    """Of a block."""

    @property
    def tile(self) -> int:
        """Numbers of a tile of rows, and of the sums over its rows."""
        products = [both for pair in pairwise(self.shape.widths) for both in (pair, pair[::-1])]
        return max(self._product(*product) for product in products) + 2 * self.threads // WARP * self.rows

    def _product(self, factors: int, width: int) -> int:
        columns = _parts(width, 4)
        slices = max(1, min(self.threads // (columns * self.rows // 4), MOST_SLICES, factors))
        return max(factors, slices * 4 * columns) * self.rows

    @property
    def packed(self) -> int:
        """Numbers of a member's copy of the weights."""
        numbers = sum(
            inputs * _fours(outputs) + outputs * _fours(inputs) + _fours(outputs)
            for inputs, outputs in pairwise(self.shape.widths)
        )
        return numbers + (2 * sum(_fours(width) for width in self.shape.widths[1:-1]) if self.shape.normalized else 0)

    @property
    def kept(self) -> int:
        """Numbers that forward keeps of a row."""
        return sum(self.shape.widths[1:-1]) * (2 if self.shape.normalized else 1)

    def constants(self, dtype: torch.dtype) -> str:
        """C++ that stands before the headers."""
        numbers = {
            "LAYERS": len(self.shape.widths) - 1,
            "ROWS": self.rows,
            "BLOCK_THREADS": self.threads,
            "ACTIVATION": self.shape.activation,
            "HOST_TILE": self.tile,
            "HOST_PACKED": self.packed,
            "HOST_KEPT": self.kept,
        }
        declared = "".join(f"constexpr int {name} = {number};\n" for name, number in numbers.items())
        widths = ", ".join(str(width) for width in self.shape.widths)
        return (
            f"using Scalar = {C_NAMES[dtype]};\nconstexpr int WIDTHS[] = {{{widths}}};\n{declared}"
            f"constexpr bool NORMALIZED = {str(self.shape.normalized).lower()};\n"
        )


def fitting_rows(shape: NetworkShape, dtype: torch.dtype, threads: int = THREADS) -> list[int]:
    """Rows that a tile may have: as many as find room in a block's shared memory."""
    return [
        rows for rows in TILE_ROWS if FrozenLayout(shape, rows, threads).tile * dtype.itemsize <= SHARED_BYTES
    ]  # fmt: skip


def choose_layout(
    shape: NetworkShape, dtype: torch.dtype, members: int, rows: int, processors: int
) -> FrozenLayout | None:
    """Tiles of as few rows as give a multiprocessor one block, or else as many as fit; None where it does not pay."""

    def blocks_each(tile: int) -> int:
        return _parts(members * _parts(rows, tile), processors)

    fitting = fitting_rows(shape, dtype)
    if not fitting:
        return None
    tile = next((tile for tile in fitting if blocks_each(tile) == 1), fitting[-1])
    bytes_read = blocks_each(tile) * shape.multiplications * dtype.itemsize
    return FrozenLayout(shape, tile) if bytes_read <= MOST_BYTES else None


@functools.cache
def kernels_of(layout: FrozenLayout, dtype: torch.dtype, device: torch.device) -> dict[str, Kernel]:
    """Compiled on their first launch, or found in Warp's cache."""
    with build_lock:
        start_warp()
        block, network = (
            (HEADERS / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
            for name in ("block.h", "frozen_network.h")
        )
        declared = "".join(group.declaration() for group in PROGRAMS.values())
        text = f"namespace trot {{\n{layout.constants(dtype)}{block}{declared}{network}}}  // namespace trot\n"
        programs = {
            name: ((group,), f"{group.unpacking()}    trot::{name}({group.name.lower()}, thread);\n")
            for name, group in PROGRAMS.items()
        }
        return define_programs(text, programs, dtype, device)


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What stands before and behind a policy's network, a row for each member: constants of a window."""

    shift: Tensor
    """What is subtracted from observations."""
    scale: Tensor
    """And what they are then multiplied by."""
    deviation: Tensor
    """Of the samples."""

    @classmethod
    def of(cls, policy: Policy, shift: Tensor, scale: Tensor, knows_mirrors: bool = False) -> Surroundings | None:
        """None where the kernels do not know what a policy does, or where observations are not normalised."""
        known = policy.kind == "gaussian" and policy.squash == "tanh" and (knows_mirrors or policy.mirror is None)
        if not known or not shift.dim():
            return None
        members = policy.members or 1
        deviation = policy.log_std.detach().exp()
        return cls(*(part.reshape(members, -1).contiguous() for part in (shift, scale, deviation)))


class FrozenNetwork:
    """A perceptron, or each member's, as it was at the last `refresh`. On the CPU it is one slow thread, for tests."""

    def __init__(self, network: nn.Module, layout: FrozenLayout) -> None:
        self.layout = layout
        self._parameters: list[Tensor] = list(network.parameters())
        first = self._parameters[0]
        self.members = len(first) if first.dim() == 3 else None
        self.device, self.dtype = first.device, first.dtype
        self._known = KnownPlaces(self.device)
        # Made once, as a captured graph goes on with it.
        self.packed = torch.empty(self.members or 1, layout.packed, dtype=self.dtype, device=self.device)
        self._scratch = torch.empty(0 if first.is_cuda else layout.tile, dtype=self.dtype, device=self.device)

    @classmethod
    def of(cls, network: nn.Module, rows: int) -> FrozenNetwork | None:
        """For about so many rows of each member.

        None where PyTorch is to do it: on the CPU, for layers that the kernels do not know, and where they do not pay.
        """
        weight = next(network.parameters())
        shape = NetworkShape.of(network) if weight.is_cuda else None
        if shape is None:
            return None
        members = len(weight) if weight.dim() == 3 else 1
        processors = torch.cuda.get_device_properties(weight.device).multi_processor_count
        layout = choose_layout(shape, weight.dtype, members, rows, processors)
        return None if layout is None else cls(network, layout)

    def refresh(self) -> None:
        """Copy the weights. Whoever wants to go back through a call must do so before the next copy."""
        # Autograd is told that what it may have kept is another now.
        torch.autograd.graph.increment_version(self.packed)
        numbers = {"num_parameters": len(self._parameters)}
        self._launch("pack_weights", self.packed.numel(), numbers, {**self._places(), "packed": self.packed})

    def __call__(self, inputs: Tensor) -> Tensor:
        """(..., width) to (..., outputs); with members (members, rows, width), or (rows, width) for all of them."""
        return by_members(lambda rows: _Frozen.apply(self, rows, None, None), self.members, inputs)  # type: ignore[no-untyped-call]

    def act(self, observations: Tensor, noise: Tensor, around: Surroundings) -> Tensor:
        """The tanh of a sample around the outputs, of inputs normalised first: (rows, width) to (rows, outputs).

        With members (members, rows, width) to (members, rows, outputs), and so is the noise.
        """
        shape = (self.members or 1, -1)
        outputs: Tensor = _Frozen.apply(  # type: ignore[no-untyped-call]
            self, observations.reshape(*shape, observations.shape[-1]), noise.reshape(*shape, noise.shape[-1]), around
        )
        return outputs.view_as(noise)

    def forward(
        self, inputs: Tensor, keep: bool, noise: Tensor | None = None, around: Surroundings | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Outputs, and what the adjoint needs."""
        members, rows, _ = inputs.shape
        outputs = inputs.new_empty(members, rows, self.layout.shape.widths[-1])
        kept = inputs.new_empty(self._tiles(rows), self.layout.kept * self.layout.rows) if keep else None
        tensors = {
            "inputs": inputs.flatten(0, 1),
            "outputs": outputs.flatten(0, 1),
            "kept": kept,
            "shift": None if around is None else around.shift,
            "scale": None if around is None else around.scale,
            "deviation": None if around is None else around.deviation,
            "noise": None if noise is None else noise.flatten(0, 1),
        }
        self._run("run_network", rows, tensors)
        return outputs, kept

    def adjoint(
        self, outputs_bar: Tensor, kept: Tensor, actions: Tensor | None = None, around: Surroundings | None = None
    ) -> Tensor:
        """The derivative by the inputs."""
        members, rows, _ = outputs_bar.shape
        inputs_bar = outputs_bar.new_empty(members, rows, self.layout.shape.widths[0])
        tensors = {
            "outputs_bar": outputs_bar.flatten(0, 1),
            "inputs_bar": inputs_bar.flatten(0, 1),
            "kept": kept,
            "scale": None if around is None else around.scale,
            "actions": None if actions is None else actions.flatten(0, 1),
        }
        self._run("run_network_adjoint", rows, tensors)
        return inputs_bar

    def _tiles(self, member_rows: int) -> int:
        return (self.members or 1) * _parts(member_rows, self.layout.rows)

    def _run(self, program: str, member_rows: int, tensors: Mapping[str, Tensor | None]) -> None:
        tiles, layout = self._tiles(member_rows), self.layout
        numbers = {
            "rows": (self.members or 1) * member_rows,
            "member_rows": member_rows,
            "inputs_width": layout.shape.widths[0],
            "outputs_width": layout.shape.widths[-1],
            "tiles": tiles,
            "kept_numbers": layout.kept * layout.rows,
            "scratch_numbers": len(self._scratch),
            "epsilon": layout.shape.epsilon,
        }
        threads = tiles * (layout.threads if self.packed.is_cuda else 1)
        self._launch(program, threads, numbers, {**tensors, "packed": self.packed, "scratch": self._scratch})

    def _launch(
        self, program: str, threads: int, numbers: Mapping[str, float], tensors: Mapping[str, Tensor | None]
    ) -> None:  # fmt: skip
        kernel = kernels_of(self.layout, self.dtype, self.device)[program]
        sizes = {"members": self.members or 1, "packed_numbers": self.layout.packed}
        packed = kernel.packer.pack({**numbers, **sizes}, tensors)
        on_cuda = self.packed.is_cuda
        command = _recorded.command(
            kernel, 0, packed, threads, self.layout.threads if on_cuda else None, wp.device_from_torch(self.device)
        )  # fmt: skip
        command.launch(stream=warp_stream(self.device) if on_cuda else None)

    def _places(self) -> dict[str, Tensor]:
        """Addresses of the weights."""
        return self._known.tensors({
            "parameters": addresses(self._parameters, self._parameters, self.members, self.dtype),
            "strides": member_strides(self._parameters, self.members),
        })  # fmt: skip


class _Frozen(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        network: FrozenNetwork,
        inputs: Tensor,
        noise: Tensor | None = None,
        around: Surroundings | None = None,
    ) -> Tensor:
        noise = None if noise is None else noise.contiguous()
        outputs, kept = network.forward(inputs.contiguous(), ctx.needs_input_grad[1], noise, around)
        ctx.network, ctx.around = network, around
        # The copy of the weights too, so that PyTorch notices when there is a newer one.
        ctx.save_for_backward(kept, network.packed, None if around is None else outputs)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outputs_bar: Tensor) -> tuple[None, Tensor, None, None]:
        kept, _, actions = ctx.saved_tensors
        network: FrozenNetwork = ctx.network
        return None, network.adjoint(outputs_bar.contiguous(), kept, actions, ctx.around), None, None
