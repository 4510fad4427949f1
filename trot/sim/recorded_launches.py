"""Launches that are kept and get other arguments: Warp takes longer to make one than a small robot to step."""

from __future__ import annotations

import threading
from typing import Any

import warp as wp

from trot.sim.build import Kernel, build_lock, quiet_warp, record_launch
from trot.unpromised import set_argument


class RecordedLaunches(threading.local):
    """Those of some kernels, apart for each thread that calls."""

    def __init__(self) -> None:
        self._commands: dict[tuple[wp.Kernel, int, str], tuple[wp.Launch, int]] = {}

    def command(
        self, kernel: Kernel, slot: int, packed: Any, dim: int, block_dim: int | None, device: wp.Device
    ) -> wp.Launch:
        """A launch with these arguments. Launches of one kernel that run at once need slots of their own."""
        key = (kernel.compiled, slot, device.alias)
        if key not in self._commands:
            # The first launch of a kernel loads it, and Warp would tell.
            with build_lock, quiet_warp():
                self._commands[key] = (record_launch(kernel, dim, block_dim, device), dim)
        command, recorded_dim = self._commands[key]
        if dim != recorded_dim:
            command.set_dim(dim)
            self._commands[key] = (command, dim)
        set_argument(command, packed)
        return command
