"""Memory of trajectories, used again from window to window.

Large pieces that PyTorch frees go back to the system, which hands them out anew page by page, and clears each page.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch import Tensor

WORTH_KEEPING = 2**18
"""Bytes from which on PyTorch gives memory back to the system."""

_Idle = deque[np.ndarray]


class _Loan(np.ndarray):
    """Memory that comes home when PyTorch lets go of it."""

    home: _Idle
    memory: np.ndarray

    def __del__(self) -> None:
        # In whatever thread, perhaps in the middle of take(): so that takes no lock.
        self.home.append(self.memory)


class TrajectoryMemory:
    """Keeps memory of the size that was asked for last, as much as was ever lent of it at once."""

    def __init__(self) -> None:
        self._idle: tuple[int, _Idle] = (0, deque())

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor on the CPU with anything in it, as torch.empty() makes it."""
        size = int(np.prod(shape)) * dtype.itemsize
        if size < WORTH_KEEPING:
            return torch.empty(shape, dtype=dtype)
        if self._idle[0] != size:
            # What is still lent of another size comes home to where nobody looks.
            self._idle = (size, deque())
        idle = self._idle[1]
        try:
            memory = idle.pop()
        except IndexError:
            memory = torch.empty(size, dtype=torch.uint8).numpy()
        loan = memory.view(_Loan)
        loan.home, loan.memory = idle, memory
        return torch.from_numpy(loan).view(dtype).view(shape)
