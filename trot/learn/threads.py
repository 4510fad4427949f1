"""How many threads PyTorch uses on the CPU, beside those of the physics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

WIDE_LAYER = 200
"""From this width on, matrix products are large enough for a second thread to help."""


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """The same bits on any number of cores, and for small work the quickest way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fitting_torch_threads(layers: tuple[int, ...]) -> contextlib.AbstractContextManager[None]:
    """One thread for small networks: PyTorch's others would only take the cores from the physics."""
    return one_torch_thread() if max(layers, default=0) < WIDE_LAYER else contextlib.nullcontext()
