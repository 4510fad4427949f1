"""PyTorch on one thread: operations are small, and its other threads would only take the cores from ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """PyTorch works with this many threads inside."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_torch_thread() -> contextlib.AbstractContextManager[None]:
    """For steps; and for what must give the same bits on any number of cores."""
    return torch_threads(1)
