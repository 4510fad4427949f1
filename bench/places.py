"""Where windows are measured: one core, all cores, CUDA as a user calls it, CUDA graphs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import warp as wp

from trot.sim.build import start_warp

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


def find_places(cpu: bool = True, cuda: bool = True, all_cores: bool = True) -> list[Place]:
    """Those that this machine has, of the wanted ones; ends the program where that leaves none."""
    places = list(_places(cpu, cuda, all_cores))
    if not places:
        raise SystemExit("nothing to measure: the CPU (Warp's compiler for it) and CUDA are missing or switched off")
    return places


def _places(cpu: bool, cuda: bool, all_cores: bool) -> Iterator[Place]:
    start_warp()
    if cpu and wp.is_cpu_available():
        device, cores = torch.device("cpu"), os.cpu_count() or 1
        yield Place(ONE_CORE, device)
        if cores > 1 and all_cores:
            yield Place(f"CPU, {cores} threads", device, threads=cores)
    if cuda and torch.cuda.is_available():
        device = torch.device("cuda", 0)
        yield Place(CUDA, device)
        yield Place(CUDA_GRAPH, device, graph=True)
