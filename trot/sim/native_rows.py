"""Small kernels of their own, from a C++ header, over tensors with one row per world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import warp as wp
from torch import Tensor

from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.blocks import SharedBlocks
from trot.sim.build import C_NAMES, Kernel, build_lock, define_programs, start_warp
from trot.sim.launch import CUDA_LANES, warp_stream
from trot.sim.recorded_launches import RecordedLaunches
from trot.sim.threads import get_num_threads

WORTH_A_THREAD = 32
"""Rows below which handing some to another thread costs more than it saves."""
_SHARING = ArgumentGroup(
    "Sharing", (Argument("lanes", "int", "that share a row"), Argument("first", "int", "row of this launch"))
)


@dataclass(frozen=True)
class RowProgram:
    """What a kernel is called with, and what one of the lanes that share a row runs."""

    groups: tuple[ArgumentGroup, ...]
    call: str
    """C++ that sees the groups' structs, called like these in small letters, and `row`, `lane` and `lanes`."""


@dataclass(frozen=True)
class _Place:
    """The kernels in one precision and on one device."""

    kernels: dict[str, Kernel]
    lanes: int
    warp_device: wp.Device


class RowKernels:
    """Kernels by name, built for a precision and a device where they are first called there.

    The header is written in terms of `Scalar`, and sees the structs of all groups.
    """

    def __init__(
        self, header: Path, programs: Mapping[str, RowProgram], before: str = "", most_lanes: int = CUDA_LANES
    ) -> None:  # fmt: skip
        """`before` is C++ that stands in front of the header; on the CPU a row has one lane in any case."""
        self.header, self.programs, self.before, self._most_lanes = header, programs, before, most_lanes
        self._places: dict[tuple[torch.dtype, torch.device], _Place] = {}
        self._recorded = RecordedLaunches()
        self._shared: SharedBlocks | None = None

    def launch(
        self, which: str, like: Tensor, rows: int, numbers: Mapping[str, float], tensors: Mapping[str, Tensor | None]
    ) -> None:
        """Run one on so many rows, where `like` lies and in its precision. Numbers hold the sizes of tensors too."""
        place = self._place(like.dtype, like.device)
        kernel, lanes = place.kernels[which], place.lanes
        packed = kernel.packer.pack({**numbers, "rows": rows, "lanes": lanes, "first": 0}, tensors)
        if like.is_cuda:
            command = self._recorded.command(kernel, 0, packed, rows * lanes, None, place.warp_device)
            command.launch(stream=warp_stream(like.device))
            return
        self._shared = self._shared or SharedBlocks(0, "first", self._recorded)
        self._shared.run(kernel, packed, rows, min(get_num_threads(), rows // WORTH_A_THREAD))

    def _place(self, dtype: torch.dtype, device: torch.device) -> _Place:
        key = (dtype, device)
        if key not in self._places:
            with build_lock:
                start_warp()
                lanes = self._most_lanes if device.type == "cuda" else 1
                self._places[key] = _Place(self._define(dtype, device), lanes, wp.device_from_torch(device))
        return self._places[key]

    def _define(self, dtype: torch.dtype, device: torch.device) -> dict[str, Kernel]:
        header = self.header.read_text(encoding="utf-8").replace("#pragma once\n", "")
        groups = dict.fromkeys(group for program in self.programs.values() for group in program.groups)
        declared = "".join(group.declaration() for group in (_SHARING, *groups))
        scalar = f"using Scalar = {C_NAMES[dtype]};\n"
        text = f"{self.before}namespace trot {{\n{scalar}{declared}{header}}}  // namespace trot\n"
        programs = {
            name: ((_SHARING, *program.groups), _body(program)) for name, program in self.programs.items()
        }  # fmt: skip
        return define_programs(text, programs, dtype, device)


def _body(program: RowProgram) -> str:
    unpacking = "".join(group.unpacking() for group in (_SHARING, *program.groups))
    return (
        f"{unpacking}    const int lanes = sharing.lanes, lane = thread % lanes;\n"
        f"    const long long row = sharing.first + thread / lanes;\n    {program.call};\n"
    )
