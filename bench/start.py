"""How long a program waits for its kernels: compiled for the first time, and found in the cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.robots import ROOT, Robot


@dataclass(frozen=True)
class StartTime:
    """Seconds before the first step of a fresh process."""

    robot: str
    place: str
    import_seconds: float
    """Torch, Warp and trot, and on CUDA the driver's own start."""
    first_build_seconds: float
    """Forward and backward kernels with an empty cache."""
    cached_start_seconds: float
    """The same once they are in the cache."""


def measure_start(robot: Robot, device: str) -> StartTime:
    """Two fresh processes with a cache of their own, one after the other."""
    with tempfile.TemporaryDirectory() as cache:
        _, first_build = _run_child(robot, device, cache)
        imports, cached_start = _run_child(robot, device, cache)
    return StartTime(robot.name, device.upper(), imports, first_build, cached_start)


def _run_child(robot: Robot, device: str, cache: str) -> tuple[float, float]:
    # The driver has a cache too, and a first-ever build finds it empty.
    environment = {
        **os.environ,
        "WARP_CACHE_PATH": str(Path(cache, "warp")),
        "CUDA_CACHE_PATH": str(Path(cache, "cuda")),
    }
    command = [sys.executable, "-m", "bench.start_child", str(robot.file), device]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {result.returncode}:\n{result.stderr[-2000:]}")
    imports, kernels = json.loads(result.stdout.splitlines()[-1])
    return float(imports), float(kernels)
