"""Gradients over many rows on the CPU, shared by threads without a word between them until they are done.

PyTorch's own threads meet in every small operation, and wait there by spinning. Beside another busy program one of
them is always late, and learning gets several times slower. Here each thread takes whole blocks of rows through the
network and back. Blocks depend on the rows alone, so that the bits are the same on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from trot.learn.torch_threads import one_torch_thread
from trot.sim.threads import get_num_threads, run_together
from trot.unpromised import foreach_add_

WIDE_LAYER = 200
"""From this width on, a block's work outweighs the hand-over to another thread."""
BLOCK_ROWS = 256

Work = Callable[..., list[Tensor]]
"""Blocks of some tensors' rows to sums over these rows."""


def sum_over_rows(work: Work, *tensors: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """What `work` gives for all rows of these tensors, the first (..., width), through layers of these widths."""
    blocks = _blocks(tensors, widths)
    if len(blocks) == 1:
        return work(*tensors)
    sums: list[list[Tensor]] = [[] for _ in blocks]

    def share(first: int, stride: int) -> Callable[[], None]:
        def run() -> None:
            with one_torch_thread():
                for index in range(first, len(blocks), stride):
                    sums[index] = work(*blocks[index])

        return run

    threads = min(get_num_threads(), len(blocks))
    run_together([share(first, threads) for first in range(threads)])
    total, *others = sums
    for other in others:
        foreach_add_(total, other)
    return total


def mean_over_rows(work: Work, *tensors: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """The same where `work` gives means over its rows."""

    def weighted(*block: Tensor) -> list[Tensor]:
        part = len(block[0]) / len(tensors[0])
        return [mean * part for mean in work(*block)] if part < 1 else work(*block)

    return sum_over_rows(weighted, *tensors, widths=widths)


def _blocks(tensors: Sequence[Tensor], widths: Sequence[int]) -> list[tuple[Tensor, ...]]:
    """Along the first dimension, of about BLOCK_ROWS rows; all in one where sharing would not pay."""
    rows = tensors[0].shape[:-1]
    shared = tensors[0].device.type == "cpu" and max(widths, default=0) >= WIDE_LAYER
    count = max(rows.numel() // BLOCK_ROWS, 1) if shared else 1
    return list(zip(*(tensor.tensor_split(min(count, rows[0])) for tensor in tensors), strict=True))
