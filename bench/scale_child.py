"""What bench.scale runs in a fresh process: prints the time of an iteration and the memory that the process took."""

from __future__ import annotations

import json
import math
import resource
import sys
from dataclasses import asdict, replace
from typing import Any

import torch

from trot.envs.device import TooManyWorldsError, memory_bytes
from trot.envs.ranks import follows
from trot.learn.algorithms import find_algorithm
from trot.learn.iteration_time import measure_iterations
from trot.out_of_memory import out_of_memory

SHARE = 0.9
"""Of the machine's memory, for this process."""


def measure(
    task: str, algo: str, device: str, worlds: int, members: int | None, iterations: int
) -> dict[str, Any]:  # fmt: skip
    """Time and bytes; nothing but `fits`, false, where there is not enough memory."""
    if device == "cpu":
        _limit_memory()
    algorithm = find_algorithm(algo)
    settings = replace(algorithm.paper_settings(task), num_worlds=worlds)
    try:
        found = measure_iterations(algorithm, task, settings, device, iterations, members)
    except (MemoryError, RuntimeError, TooManyWorldsError) as error:
        if not isinstance(error, TooManyWorldsError) and not out_of_memory(error):
            raise
        return {"fits": False}
    return {"fits": True, "memory": _memory(device), **asdict(found)}


def _limit_memory() -> None:
    """Let an allocation fail here before the system has none left and ends a program, maybe another one."""
    room = memory_bytes(torch.device("cpu"))
    if math.isfinite(room):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (int(SHARE * room), hard))


def _memory(device: str) -> int:
    """The most bytes that this process has held: of the GPU, or of the machine."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_reserved(device)
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    measured = measure(**json.loads(sys.argv[1]))
    if not follows():
        print(json.dumps(measured))
