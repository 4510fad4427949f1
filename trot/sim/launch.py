"""Running the compiled kernels of a model: on all cores, or on PyTorch's current CUDA stream."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor

from trot.sim.build import Kernels, Variant, compile_kernels, quiet_warp
from trot.sim.layout import kernel_layout
from trot.sim.model import Model
from trot.sim.threads import get_num_threads, run_together

CUDA_LANES = 32
"""Lanes that share one world there: a warp."""

build_lock = threading.RLock()
"""Warp defines and compiles one thing at a time."""

WORTH_A_THREAD = 230
"""Dofs times substeps times blocks below which handing work to another thread costs more than it saves."""


class Launcher:
    """The kernels of one model on one device, its constants there, and the scratch they work in."""

    def __init__(self, model: Model, variant: Variant, device: torch.device) -> None:
        self.lanes = CUDA_LANES if device.type == "cuda" else 1
        layout = kernel_layout(model, self.lanes)
        self.device = device
        self.dtype = variant.dtype
        self.num_dofs = model.num_dofs
        self.kernels: Kernels = compile_kernels(layout, variant, device, self.lanes)
        self.warp_device = wp.device_from_torch(device)
        scalar = np.float32 if variant.dtype == torch.float32 else np.float64
        self.constants = torch.from_numpy(layout.pack(scalar)).to(device)
        self.cycles = torch.zeros(self.kernels.sizes.stages, dtype=torch.int64, device=device)
        self._recorded = RecordedLaunches()
        # Scratch, apart for each thread that calls.
        self._own = threading.local()

    def num_blocks(self, num_worlds: int) -> int:
        """Blocks of worlds: 16 worlds to a block on the CPU, one on CUDA."""
        return -(-num_worlds // self.kernels.sizes.worlds_per_block)

    def new_trajectory(self, num_worlds: int, substeps: int) -> Tensor:
        """Memory for what the backward pass needs of every substep."""
        sizes = self.kernels.sizes
        shape = (substeps, self.num_blocks(num_worlds), sizes.record, sizes.worlds_per_block)
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def forward(self, arguments: list[Any], num_blocks: int, substeps: int) -> None:
        """Launch the forward kernel; arguments as the kernel lists them after `scratch`, up to `substep_dt`."""
        self._launch(self.kernels.forward, [*arguments, num_blocks, self.cycles.data_ptr()], num_blocks, substeps)

    def backward(self, arguments: list[Any], num_blocks: int, substeps: int) -> None:
        """Launch the backward kernel; arguments as the kernel lists them after `scratch`, up to `tangent`."""
        self._launch(self.kernels.backward, [*arguments, self.cycles.data_ptr()], num_blocks, substeps)

    def _launch(self, kernel: wp.Kernel, arguments: list[Any], num_blocks: int, substeps: int) -> None:
        if self.device.type == "cuda":
            self._launch_cuda(kernel, arguments, num_blocks)
            return
        worthwhile = max(1, num_blocks * substeps * self.num_dofs // WORTH_A_THREAD)
        threads = min(get_num_threads(), num_blocks, worthwhile)
        bounds = [num_blocks * i // threads for i in range(threads + 1)]
        # Everything that needs the interpreter happens here, so that the other threads only run kernels.
        run_together([self._cpu_command(kernel, arguments, i, bounds[i], bounds[i + 1]).launch for i in range(threads)])

    def _cpu_command(self, kernel: wp.Kernel, arguments: list[Any], slot: int, first: int, end: int) -> wp.Launch:
        scratch: dict[int, Tensor] = self._own.__dict__.setdefault("scratch", {})
        if slot not in scratch:
            scratch[slot] = torch.empty(self.kernels.sizes.workspace, dtype=torch.uint8)
        inputs = [self.constants.data_ptr(), scratch[slot].data_ptr(), *arguments, first]
        return self._recorded.command(kernel, slot, inputs, end - first, None, self.warp_device)

    def _launch_cuda(self, kernel: wp.Kernel, arguments: list[Any], num_blocks: int) -> None:
        sizes = self.kernels.sizes
        # A robot too large for shared memory works in device memory (kernels/entry.h decides by the same rule).
        fits = self.constants.numel() + sizes.workspace <= sizes.shared
        scratch = torch.empty(0 if fits else num_blocks * sizes.workspace, dtype=torch.uint8, device=self.device)
        inputs = [self.constants.data_ptr(), scratch.data_ptr(), *arguments, 0]
        self._recorded.command(kernel, 0, inputs, num_blocks * self.lanes, self.lanes, self.warp_device).launch(
            stream=warp_stream(self.device)
        )


class RecordedLaunches(threading.local):
    """Launches that are kept and get other arguments, apart for each thread that calls.

    Warp takes longer to pack arguments anew than a small robot to step.
    """

    def __init__(self) -> None:
        self._commands: dict[tuple[wp.Kernel, int, str], wp.Launch] = {}

    def command(
        self, kernel: wp.Kernel, slot: int, inputs: list[Any], dim: int, block_dim: int | None, device: wp.Device
    ) -> wp.Launch:
        """A launch with these arguments. Launches of one kernel that run at once need slots of their own."""
        key = (kernel, slot, device.alias)
        if key not in self._commands:
            # The first launch of a kernel loads it, and Warp would tell.
            with build_lock, quiet_warp():
                self._commands[key] = wp.launch(
                    kernel, dim=dim, inputs=inputs, device=device, block_dim=block_dim, record_cmd=True
                )
        command = self._commands[key]
        command.set_params_from_ctypes(inputs)
        command.set_dim(dim)
        return command


_streams: dict[tuple[int | None, int], wp.Stream] = {}


def warp_stream(device: torch.device) -> wp.Stream:
    """Warp's view of PyTorch's current stream: what was queued there comes first, and a graph capture sees us."""
    current = torch.cuda.current_stream(device)
    key = (device.index, current.cuda_stream)
    if key not in _streams:
        _streams[key] = wp.stream_from_torch(current)  # type: ignore[no-untyped-call]
    return _streams[key]


_launchers: weakref.WeakKeyDictionary[Model, dict[tuple[Variant, torch.device], Launcher]] = weakref.WeakKeyDictionary()


def launcher(model: Model, variant: Variant, device: torch.device) -> Launcher:
    """The launcher of a model, made on first use."""
    key = (variant, device)
    found = _launchers.get(model, {}).get(key)
    if found is None:
        with build_lock:
            made = _launchers.setdefault(model, {})
            found = made[key] = made.get(key) or Launcher(model, variant, device)
    return found
