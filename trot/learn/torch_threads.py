"""How many threads PyTorch uses on the CPU, beside those of the physics.

Steps of many small operations are quickest on one thread: others would only take the cores from the physics. Matrix
products over a whole window use all of them where the networks are wide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

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


def depends_on_threads(networks: nn.Module, device: torch.device) -> bool:
    """Whether learning gives other bits on another number of threads: those share the sums of wide layers."""
    return device.type == "cpu" and any(
        weight.dim() > 0 and len(weight) >= WIDE_LAYER for weight in networks.parameters()
    )


def note_other_threads(networks: nn.Module, device: torch.device, began_on: int | None) -> None:
    """Say so where a run goes on with another number of threads than it began on, and that changes its bits."""
    threads = get_num_threads()
    if began_on not in (None, threads) and depends_on_threads(networks, device):
        print(
            f"The run began with {began_on} threads and goes on with {threads}: its layers are {WIDE_LAYER} wide or "
            "more, so that its numbers are not to the bit those of a run that never stopped",
            flush=True,
        )
