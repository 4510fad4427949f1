"""What bench.peers runs in a fresh process: one simulator and one case; writes what it finds as it finds it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.peer import Case, Peer, version
from bench.peer_check import compare
from bench.peer_list import PEERS, Listed


class Findings:
    """Facts that outlive the process that found them, however it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: dict[str, Any] = {}

    def tell(self, **facts: Any) -> None:
        self.facts |= facts
        self.path.write_text(json.dumps(self.facts))


def run(
    peer: str, case: str, findings: str, gradient: bool, check: bool, repeats: int, seconds: float
) -> None:  # fmt: skip
    """Measure, or compare gradients with differences where `check` asks for it."""
    found, listed = Findings(Path(findings)), PEERS[peer]
    if missing := [module for module in listed.modules if not _is_there(module)]:
        found.tell(missing=missing)
        return
    loaded = Case.load(Path(case))
    simulator = find_class(listed)(loaded)
    if check:
        found.tell(**compare(simulator, loaded.controls))
        return
    found.tell(version=version(listed.packages[0].partition("[")[0]), settings=simulator.settings())
    wall, core = median_ms(simulator, simulator.forward, repeats, seconds)
    finite = np.isfinite(simulator.positions()).all(axis=1)
    heights = simulator.heights()[finite]
    found.tell(
        forward_ms=wall, forward_core_ms=core, finite_worlds=int(finite.sum()),
        height=float(np.median(heights)) if len(heights) else None,
    )  # fmt: skip
    if gradient and listed.differentiable:
        wall, core = median_ms(simulator, simulator.gradient, repeats, seconds)
        finite = np.isfinite(simulator.control_gradient()).all(axis=(0, 2))
        found.tell(gradient_ms=wall, gradient_core_ms=core, gradient_finite_worlds=int(finite.sum()))


def find_class(listed: Listed) -> type[Peer]:
    """Imports its package."""
    module, _, name = listed.where.partition(":")
    found: type[Peer] = getattr(importlib.import_module(module), name)
    return found


def median_ms(peer: Peer, action: Callable[[], None], repeats: int, seconds: float) -> tuple[float, float]:
    """By the clock, and of all cores together; of fewer repetitions where they take longer, but of one at least."""
    # The first one builds and loads; it is not counted.
    action()
    times: list[tuple[float, float]] = []
    begin = time.perf_counter()
    while not times or (len(times) < repeats and time.perf_counter() - begin < seconds):
        peer.synchronize()
        wall, core = time.perf_counter(), time.process_time()
        action()
        peer.synchronize()
        times.append((1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - core)))
    walls, cores = zip(*times, strict=True)
    return statistics.median(walls), statistics.median(cores)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # The package that it would be a part of.
        return False


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
