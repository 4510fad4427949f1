"""Running the compiled kernels of a model: on all cores, or on PyTorch's current CUDA stream."""

from __future__ import annotations

import functools
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor

from trot.sim import crew
from trot.sim.arguments import address
from trot.sim.blocks import SharedBlocks
from trot.sim.build import Kernels, Variant, build_lock, compile_kernels
from trot.sim.layout import kernel_layout
from trot.sim.model import Model
from trot.sim.programs import BACKWARD, FORWARD, Program
from trot.sim.recorded_launches import RecordedLaunches
from trot.sim.threads import get_num_threads
from trot.sim.trajectory_memory import TrajectoryMemory

CUDA_LANES = 32
"""Lanes that share one world there: a warp."""

BESIDE_A_BLOCK = 2 * 1024
"""Bytes of shared memory that CUDA and Warp take for each block."""

KEPT_WINDOW = 32
"""Control steps that SHAC takes before it goes back through them."""
KEPT_SHARE = 1 / 4
"""Of a GPU's memory, at most so much may such a window keep for its backward pass where less would do."""

WORTH_A_THREAD, WORTH_A_PYTHON_THREAD = 100, 500
"""Dofs times substeps times blocks below which handing work to another thread costs more than it saves: to one of the
crew, and to one that wakes up in Python."""


class Launcher:
    """Kernels of one model on one device, its constants there, and the scratch they work in."""

    def __init__(self, model: Model, variant: Variant, device: torch.device, programs: tuple[Program, ...]) -> None:
        self.lanes = CUDA_LANES if device.type == "cuda" else 1
        layout = kernel_layout(model, self.lanes)
        self.device = device
        self.variant = variant
        self.dtype = variant.dtype
        self.num_dofs = model.num_dofs
        self.kernels: Kernels = compile_kernels(layout, variant, device, self.lanes, programs)
        self.warp_device = wp.device_from_torch(device)
        scalar = np.float32 if variant.dtype == torch.float32 else np.float64
        self.constants = torch.from_numpy(layout.pack(scalar)).to(device)
        sizes = self.kernels.sizes
        self.cycles = torch.zeros(sizes.stages, dtype=torch.int64, device=device)
        self._sizes: dict[str, float] = {
            **layout.sizes,
            "record": sizes.record,
            "worlds_per_block": sizes.worlds_per_block,
        }
        self._model_address = address("model", self.constants, (sizes.model,), torch.uint8, device)
        self._cycles_address = address("cycles", self.cycles, (sizes.stages,), torch.int64, device)
        self._recorded = RecordedLaunches()
        self._trajectories = TrajectoryMemory()
        self._blocks = SharedBlocks(sizes.workspace, "first_block", self._recorded)

    def num_blocks(self, num_worlds: int) -> int:
        """Blocks of worlds: 16 to a block on the CPU, 8 in double precision, and one on CUDA."""
        return -(-num_worlds // self.kernels.sizes.worlds_per_block)

    def rounds(self, num_worlds: int, model_in_shared: bool) -> int:
        """In how many a GPU steps so many worlds, by the room in its shared memory for their backward pass."""
        return -(-num_worlds // self._at_once[model_in_shared])

    @functools.cached_property
    def _gpu(self) -> Any:
        return torch.cuda.get_device_properties(self.device)

    @functools.cached_property
    def _at_once(self) -> dict[bool, int]:
        """Worlds that find room in a GPU's shared memory, with the robot's constants beside each and without."""
        gpu, sizes = self._gpu, self.kernels.sizes
        each = {shared: sizes.workspace + BESIDE_A_BLOCK + (sizes.model if shared else 0) for shared in (True, False)}
        return {
            shared: gpu.multi_processor_count * max(1, gpu.shared_memory_per_multiprocessor // size)
            for shared, size in each.items()
        }

    def kept_bytes(self, substeps: int) -> int:
        """What a world keeps of a control step for the backward pass."""
        return substeps * self.kernels.sizes.record * self.dtype.itemsize

    def may_keep(self, num_worlds: int, substeps: int) -> bool:
        """Whether a window of so many worlds leaves enough of a GPU's memory to others."""
        memory: int = self._gpu.total_memory
        return KEPT_WINDOW * num_worlds * self.kept_bytes(substeps) <= KEPT_SHARE * memory

    def new_trajectory(self, num_worlds: int, substeps: int) -> Tensor:
        """Memory for what the backward pass needs of every substep."""
        sizes = self.kernels.sizes
        shape = (substeps, self.num_blocks(num_worlds), sizes.record, sizes.worlds_per_block)
        if self.device.type == "cpu":
            return self._trajectories.take(shape, self.dtype)
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def launch(
        self, program: Program, numbers: dict[str, float], tensors: dict[str, Tensor | None], num_blocks: int,
        substeps: int,
    ) -> None:  # fmt: skip
        """Run a program on so many blocks of worlds, with the arguments that are not its WORK."""
        kernel = self.kernels.programs[program]
        numbers = self._sizes | numbers
        if self.device.type == "cuda":
            # A robot too large for shared memory works in device memory.
            needed = 0 if self.kernels.sizes.fits_shared else num_blocks * self.kernels.sizes.workspace
            scratch = torch.empty(needed, dtype=torch.uint8, device=self.device)
            place = address("scratch", scratch, (needed,), torch.uint8, self.device)
            packed = kernel.packer.pack(numbers, tensors, self._work(place))
            self._recorded.command(kernel, 0, packed, num_blocks * self.lanes, self.lanes, self.warp_device).launch(
                stream=warp_stream(self.device)
            )
            return
        worth = WORTH_A_THREAD if crew.HAS_CREW else WORTH_A_PYTHON_THREAD
        worthwhile = max(1, num_blocks * substeps * self.num_dofs // worth)
        packed = kernel.packer.pack(numbers, tensors, self._work(0))
        self._blocks.run(kernel, packed, num_blocks, min(get_num_threads(), worthwhile))

    def _work(self, scratch: int) -> tuple[int, int, int, int]:
        """The numbers of WORK, in its order."""
        return self._model_address, scratch, self._cycles_address, 0


_streams: dict[tuple[int | None, int], wp.Stream] = {}


def warp_stream(device: torch.device) -> wp.Stream:
    """Warp's view of PyTorch's current stream: what was queued there comes first, and a graph capture sees us."""
    current = torch.cuda.current_stream(device)
    key = (device.index, current.cuda_stream)
    if key not in _streams:
        _streams[key] = wp.stream_from_torch(current)  # type: ignore[no-untyped-call]
    return _streams[key]


_Key = tuple[Variant, torch.device, tuple[Program, ...]]
_launchers: weakref.WeakKeyDictionary[Model, dict[_Key, Launcher]] = weakref.WeakKeyDictionary()


def launcher(
    model: Model, variant: Variant, device: torch.device, programs: tuple[Program, ...] = (FORWARD, BACKWARD)
) -> Launcher:
    """The launcher of a model, made on first use."""
    key = (variant, device, programs)
    found = _launchers.get(model, {}).get(key)
    if found is None:
        with build_lock:
            made = _launchers.setdefault(model, {})
            found = made[key] = made.get(key) or Launcher(model, variant, device, programs)
    return found


def launcher_for(model: Model, variant: Variant, device: torch.device, num_worlds: int, substeps: int) -> Launcher:
    """The launcher of a step of so many worlds, built so that it is fast there.

    A GPU reads back sooner what it would have to compute again, as long as there is memory for it. A robot's constants
    are read faster from shared memory, unless the worlds then take more rounds.
    """
    if device.type == "cpu":
        return launcher(model, variant, device)
    variant = replace(variant, store_factor=True, store_motion=True)
    found = launcher(model, variant, device)
    if not found.may_keep(num_worlds, substeps):
        variant = replace(variant, store_motion=False)
    if found.rounds(num_worlds, True) != found.rounds(num_worlds, False):
        variant = replace(variant, model_in_shared=False)
    return launcher(model, variant, device)
