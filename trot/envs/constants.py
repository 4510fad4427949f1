"""Fixed numbers as tensors, copied to a device once: a step never waits for them, and a CUDA graph may be captured."""

from __future__ import annotations

import functools

import torch
from torch import Tensor


def constant(values: tuple[float, ...], like: Tensor) -> Tensor:
    """These numbers with the dtype and on the device of `like`. The tensor is shared: do not write to it."""
    return _constant(values, like.dtype, like.device)


@functools.cache
def _constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)
