"""Where windows are measured: one core, all cores, CUDA as a user calls it, CUDA graphs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import warp as wp

from trot.sim.build import start_warp
from trot.sim.threads import cores

ONE_CORE = "CPU, 1 thread"
CUDA = "CUDA"
CUDA_GRAPH = "CUDA graph"


@dataclass(frozen=True)
class Place:
    """Where and how a window runs."""

    name: str
    device: torch.device
    threads: int = 1
    graph: bool = False
    """Captured in CUDA graphs and replayed."""


def up_to_all_cores() -> tuple[int, ...]:
    """1, 2, 4 and so on, and all cores of this process."""
    return tuple(dict.fromkeys([*(2**k for k in range(cores().bit_length())), cores()]))


def find_places(cpu: bool = True, cuda: bool = True, all_cores: bool = True) -> list[Place]:
    """Those that this machine has, of the wanted ones; ends the program where that leaves none."""
    places = list(_places(cpu, cuda, all_cores))
    if not places:
        raise SystemExit("nothing to measure: the CPU (Warp's compiler for it) and CUDA are missing or switched off")
    return places


def _places(cpu: bool, cuda: bool, all_cores: bool) -> Iterator[Place]:
    start_warp()
    if cpu and wp.is_cpu_available():
        device, count = torch.device("cpu"), os.cpu_count() or 1
        yield Place(ONE_CORE, device)
        if count > 1 and all_cores:
            yield Place(f"CPU, {count} threads", device, threads=count)
    if cuda and torch.cuda.is_available():
        device = torch.device("cuda", 0)
        yield Place(CUDA, device)
        yield Place(CUDA_GRAPH, device, graph=True)
