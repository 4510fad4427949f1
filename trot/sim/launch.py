"""Running the compiled kernels of a model: on all cores, or on PyTorch's current CUDA stream."""

from __future__ import annotations

import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import torch
import warp as wp
from torch import Tensor

from trot.sim.build import Kernels, Variant, compile_kernels
from trot.sim.layout import kernel_layout
from trot.sim.model import Model

CUDA_LANES = 32

_num_threads = os.cpu_count() or 1
_pool: ThreadPoolExecutor | None = None


def set_num_threads(count: int) -> None:
    """How many CPU threads share the worlds of a step; all cores unless set. Results do not depend on it."""
    global _num_threads, _pool
    if count < 1:
        raise ValueError(f"the number of threads must be at least 1, not {count}")
    _num_threads, _pool = count, None


def get_num_threads() -> int:
    """How many CPU threads share the worlds of a step."""
    return _num_threads


def _threads() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        # The calling thread works too, so the pool is one smaller.
        _pool = ThreadPoolExecutor(max(_num_threads - 1, 1), thread_name_prefix="trot")
    return _pool


class Launcher:
    """The kernels of one model on one device, its constants there, and the scratch they work in."""

    def __init__(self, model: Model, variant: Variant, device: torch.device) -> None:
        layout = kernel_layout(model, columns_per_entry=1 if device.type == "cuda" else 4)
        self.device = device
        self.dtype = variant.dtype
        self.kernels: Kernels = compile_kernels(layout, variant, device)
        self.warp_device = wp.device_from_torch(device)
        scalar = np.float32 if variant.dtype == torch.float32 else np.float64
        self.constants = torch.from_numpy(layout.pack(scalar)).to(device)
        self.cycles = torch.zeros(self.kernels.sizes.stages, dtype=torch.int64, device=device)
        self._scratch = threading.local()

    def num_blocks(self, num_worlds: int) -> int:
        """Blocks of worlds: 16 worlds to a block on the CPU, one on CUDA."""
        return -(-num_worlds // self.kernels.sizes.worlds_per_block)

    def new_trajectory(self, num_worlds: int, substeps: int) -> Tensor:
        """Memory for what the backward pass needs of every substep."""
        sizes = self.kernels.sizes
        shape = (substeps, self.num_blocks(num_worlds), sizes.record, sizes.worlds_per_block)
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def forward(self, arguments: list[Any], num_blocks: int) -> None:
        """Launch the forward kernel; arguments as the kernel lists them after `scratch`, up to `dt`."""
        self._launch(self.kernels.forward, [*arguments, num_blocks, self.cycles.data_ptr()], num_blocks)

    def backward(self, arguments: list[Any], num_blocks: int) -> None:
        """Launch the backward kernel; arguments as the kernel lists them after `scratch`, up to `tangent`."""
        self._launch(self.kernels.backward, [*arguments, self.cycles.data_ptr()], num_blocks)

    def _launch(self, kernel: wp.Kernel, arguments: list[Any], num_blocks: int) -> None:
        if self.device.type == "cuda":
            self._launch_cuda(kernel, arguments, num_blocks)
            return
        threads = min(_num_threads, num_blocks)
        bounds = [num_blocks * i // threads for i in range(threads + 1)]
        others = [
            _threads().submit(self._launch_cpu, kernel, arguments, bounds[i], bounds[i + 1]) for i in range(1, threads)
        ]
        try:
            self._launch_cpu(kernel, arguments, bounds[0], bounds[1])
        finally:
            wait(others)
        for other in others:
            other.result()

    def _launch_cpu(self, kernel: wp.Kernel, arguments: list[Any], first: int, end: int) -> None:
        scratch = getattr(self._scratch, "memory", None)
        if scratch is None:
            scratch = torch.empty(self.kernels.sizes.workspace, dtype=torch.uint8)
            self._scratch.memory = scratch
        inputs = [self.constants.data_ptr(), scratch.data_ptr(), *arguments, first]
        wp.launch(kernel, dim=end - first, inputs=inputs, device=self.warp_device, record_tape=False)

    def _launch_cuda(self, kernel: wp.Kernel, arguments: list[Any], num_blocks: int) -> None:
        shared_bytes = self.constants.numel() + self.kernels.sizes.workspace
        # A robot too large for shared memory works in device memory (kernels/entry.h decides by the same rule).
        scratch_bytes = 0 if shared_bytes <= 47 * 1024 else num_blocks * self.kernels.sizes.workspace
        scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device=self.device)
        wp.launch(
            kernel,
            dim=num_blocks * CUDA_LANES,
            inputs=[self.constants.data_ptr(), scratch.data_ptr(), *arguments, 0],
            device=self.warp_device,
            stream=_warp_stream(self.device),
            block_dim=CUDA_LANES,
            record_tape=False,
        )


_streams: dict[int, wp.Stream] = {}


def _warp_stream(device: torch.device) -> wp.Stream:
    """Warp's view of PyTorch's current stream: what was queued there comes first, and a graph capture sees us."""
    current = torch.cuda.current_stream(device)
    if current.cuda_stream not in _streams:
        _streams[current.cuda_stream] = wp.stream_from_torch(current)
    return _streams[current.cuda_stream]


_launchers: weakref.WeakKeyDictionary[Model, dict[tuple[Variant, torch.device], Launcher]] = weakref.WeakKeyDictionary()


def launcher(model: Model, variant: Variant, device: torch.device) -> Launcher:
    """The launcher of a model, made on first use."""
    made = _launchers.setdefault(model, {})
    key = (variant, device)
    if key not in made:
        made[key] = Launcher(model, variant, device)
    return made[key]
