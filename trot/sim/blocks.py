"""The blocks of a kernel on the CPU, shared by threads. A block's numbers do not depend on who takes it."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import torch
import warp as wp
from torch import Tensor

from trot.sim import crew
from trot.sim.arguments import address
from trot.sim.build import Kernel, start_warp
from trot.sim.recorded_launches import RecordedLaunches
from trot.sim.threads import Job, run_together

CPU = torch.device("cpu")


class SharedBlocks:
    """Runs kernels whose argument `first` is a block's number, and `scratch`, if there, what a thread works in."""

    def __init__(self, scratch_bytes: int, first: str, recorded: RecordedLaunches) -> None:
        self._scratch_bytes, self._first, self._recorded = scratch_bytes, first, recorded
        start_warp()
        self._device = wp.device_from_torch(CPU)
        self._shared: dict[wp.Kernel, crew.Shared] = {}
        # Scratch is apart for each thread that calls.
        self._own = threading.local()

    def run(self, kernel: Kernel, packed: Any, blocks: int, threads: int) -> None:
        """All blocks, on at most so many threads, with what Packer made of the other arguments."""
        threads = max(1, min(threads, blocks))
        if threads == 1:
            self._give_scratch(packed, 1)
            self._recorded.command(kernel, 0, packed, blocks, None, self._device).launch()
        elif crew.HAS_CREW:
            helping = crew.of_this_process()
            rows = helping.rows(threads)
            self._give_scratch(packed, rows)
            helping.run(self._shared_kernel(kernel), packed, blocks, threads, rows, self._scratch_bytes)
        else:
            self._run_in_python(kernel, packed, blocks, threads)

    def _run_in_python(self, kernel: Kernel, packed: Any, blocks: int, threads: int) -> None:
        """Each thread launches the kernel on a range of blocks."""
        self._give_scratch(packed, threads)
        bounds = [blocks * i // threads for i in range(threads + 1)]
        jobs: list[Job] = []
        for slot, (first, end) in enumerate(pairwise(bounds)):
            # The same call, but for where it works and on what.
            own = type(packed).from_buffer_copy(packed)
            if self._scratch_bytes:
                own.scratch += slot * self._scratch_bytes
            setattr(own, self._first, first)
            jobs.append(self._recorded.command(kernel, slot, own, end - first, None, self._device).launch)
        # Everything that needs the interpreter happened before, so that the other threads only run kernels.
        run_together(jobs)

    def _give_scratch(self, packed: Any, rows: int) -> None:
        """The first of so many rows, one for each thread."""
        if not self._scratch_bytes:
            return
        found: Tensor | None = getattr(self._own, "scratch", None)
        if found is None or len(found) < rows:
            found = self._own.scratch = torch.empty(rows, self._scratch_bytes, dtype=torch.uint8)
        packed.scratch = address("scratch", found, (len(found), self._scratch_bytes), torch.uint8, CPU)

    def _shared_kernel(self, kernel: Kernel) -> crew.Shared:
        found = self._shared.get(kernel.compiled)
        if found is None:
            found = self._shared[kernel.compiled] = crew.Shared.of(kernel, self._first)
        return found
