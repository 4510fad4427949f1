"""How many threads PyTorch uses on the CPU, beside those of the physics.

Steps of many small operations are quickest on one thread: others would only take the cores from the physics. Matrix
products over a whole window use all of them where the networks are wide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from trot.sim.threads import get_num_threads

WIDE_LAYER = 200
"""From this width on, a product over a window's rows is large enough to share."""


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


def threads_for_batches(layers: tuple[int, ...]) -> contextlib.AbstractContextManager[None]:
    """For passes over a whole window through layers of these widths."""
    return torch_threads(get_num_threads() if max(layers, default=0) >= WIDE_LAYER else 1)
