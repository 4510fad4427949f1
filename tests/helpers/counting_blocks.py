"""A kernel that counts how often each of its blocks was run, and notices where two threads had the same scratch."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.blocks import SharedBlocks
from trot.sim.build import Kernel, build_lock, define_programs, start_warp
from trot.sim.recorded_launches import RecordedLaunches

COUNTING = ArgumentGroup(
    "Counting",
    (
        Argument("ran", "int*", "how often a block was run", ("blocks",)),
        Argument("scratch", "char*", "what a thread works in", ("bytes",), optional=True),
        Argument("first", "int", "block"),
        Argument("delay", "int", "rounds that a block takes"),
    ),
)
TEXT = f"""namespace trot {{
{COUNTING.declaration()}
inline void count(const Counting& counting, int thread) {{
    const int block = counting.first + thread;
    volatile int* mine = (volatile int*)counting.scratch;
    *mine = block;
    for (int k = 0; k < counting.delay; ++k) mine[1] = k;
    counting.ran[block] += *mine == block ? 1 : 1000000;
}}
}}  // namespace trot
"""


@functools.cache
def _shared() -> tuple[Kernel, SharedBlocks]:
    with build_lock:
        start_warp()
        body = f"{COUNTING.unpacking()}    trot::count(counting, thread);\n"
        programs = define_programs(TEXT, {"count": ((COUNTING,), body)}, torch.float32, torch.device("cpu"))
        return programs["count"], SharedBlocks(64, "first", RecordedLaunches())


def count_blocks(blocks: int, threads: int, delay: int = 10, ran: Tensor | None = None) -> Tensor:
    """How often each block was run by so many threads, on top of what `ran` has."""
    ran = torch.zeros(blocks, dtype=torch.int32) if ran is None else ran
    kernel, shared = _shared()
    numbers = {"blocks": blocks, "first": 0, "delay": delay}
    shared.run(kernel, kernel.packer.pack(numbers, {"ran": ran, "scratch": None}), blocks, threads)
    return ran
