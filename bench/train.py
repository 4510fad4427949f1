"""Time of one learning iteration, split as in the paper's table: rollout, backward, critic, other.

python -m bench.train                     all tasks, on the GPU where there is one
python -m bench.train --tasks ant --device cpu
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path

import torch
import tyro

from bench.report import describe_machine, gpu_name, markdown_table
from trot.envs.registry import TASKS, make_env
from trot.learn.algorithms.shac import Shac
from trot.learn.capture import fast_phases
from trot.learn.settings import resolve
from trot.learn.torch_threads import one_torch_thread
from trot.learn.train import choose_device

H200_NEED = {"ant": 40, "half_cheetah": 35, "humanoid": 90, "muscle_humanoid": 100, "hopper": 40}
"""Milliseconds per iteration at the tuned number of worlds."""
CPU_NEED = {"ant": 150, "humanoid": 400, "muscle_humanoid": 600}
"""The same on two cores."""
WARM_UP = 3
"""Iterations that do not count."""
PROGRAM_OF_2022 = {"ant": 880, "half_cheetah": 704, "humanoid": 2360, "muscle_humanoid": 2390, "hopper": 975}
"""What the program released with the paper takes on an H200."""


@dataclass(frozen=True)
class TrainBenchSettings:
    """What to measure."""

    tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks by name, or path/to/file.py:Class."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    worlds: int | None = None
    """Instead of the tuned number."""
    iterations: int = 12
    """Of which the medians are printed."""
    json: Path | None = None
    """Write every figure to this file too."""


@dataclass(frozen=True)
class IterationTime:
    """Milliseconds, medians over iterations."""

    task: str
    device: str
    worlds: int
    horizon: int
    rollout: float
    backward: float
    critic: float
    other: float

    @property
    def total(self) -> float:
        return self.rollout + self.backward + self.critic + self.other

    @property
    def steps_per_second(self) -> float:
        return self.worlds * self.horizon / self.total * 1e3


def measure_training(task: str, device: str, worlds: int | None, iterations: int) -> IterationTime:
    """Train a little, with the settings tuned for the task."""
    settings = resolve(task)
    if worlds is not None:
        settings = replace(settings, num_worlds=worlds)
    shac = Shac(make_env(task, settings.num_worlds, device), settings)
    with one_torch_thread():
        phases = fast_phases(shac)
        moments = [Moment(shac.device)]
        for _ in range(WARM_UP + iterations):
            for phase in phases.values():
                phase()
                moments.append(Moment(shac.device))
    times: dict[str, list[float]] = {name: [] for name in phases}
    for name, begin, end in zip(cycle(phases), moments[:-1], moments[1:], strict=False):
        times[name].append(begin.milliseconds_to(end))
    medians = {name: statistics.median(values[WARM_UP:]) for name, values in times.items()}
    return IterationTime(task, shac.device.type, settings.num_worlds, settings.horizon, **medians)


class Moment:
    """On the GPU nobody waits for it, as in training; what runs beside counts as far as it is waited for."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        if self.on_gpu:
            self.event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self.event.record(torch.cuda.current_stream(device))
        else:
            self.seconds = time.perf_counter()

    def milliseconds_to(self, later: Moment) -> float:
        if not self.on_gpu:
            return (later.seconds - self.seconds) * 1e3
        later.event.synchronize()
        return float(self.event.elapsed_time(later.event))


def run_train_bench(settings: TrainBenchSettings) -> None:
    """Measure and print."""
    device = choose_device(settings.device)
    gpu = gpu_name() if device.startswith("cuda") else None
    print(describe_machine(gpu), flush=True)
    measured = []
    for task in settings.tasks:
        print(f"{task}, {device}", file=sys.stderr, flush=True)
        measured.append(measure_training(task, device, settings.worlds, settings.iterations))
    print(f"\n### One learning iteration, ms\n\n{_table(measured)}", flush=True)
    needs = _needs(measured, gpu)
    if needs:
        print(f"\n### Requirements\n\n{markdown_table(['task', 'need, ms', 'measured', 'ok'], needs)}", flush=True)
    if settings.json is not None:
        settings.json.write_text(json.dumps([asdict(row) for row in measured], indent=2) + "\n")


def _table(measured: list[IterationTime]) -> str:
    head = [
        "task",
        "worlds",
        "rollout",
        "backward",
        "critic",
        "other",
        "iteration",
        "steps/s",
        "the 2022 program, H200",
    ]
    rows = []
    for row in measured:
        parts = [f"{ms:.1f}" for ms in (row.rollout, row.backward, row.critic, row.other, row.total)]
        peer = PROGRAM_OF_2022.get(row.task)
        rows.append(
            [row.task, str(row.worlds), *parts, f"{row.steps_per_second:,.0f}", "" if peer is None else str(peer)]
        )
    return markdown_table(head, rows)


def _needs(measured: list[IterationTime], gpu: str | None) -> list[list[str]]:
    """Promised for an H200 and for two cores; on other machines they say nothing."""
    if (os.cpu_count() != 2) if gpu is None else ("H200" not in gpu):
        return []
    need = CPU_NEED if gpu is None else H200_NEED
    return [
        [row.task, f"≤ {need[row.task]}", f"{row.total:.1f}", "yes" if row.total <= need[row.task] else "NO"]
        for row in measured
        if row.task in need and row.worlds == resolve(row.task).num_worlds
    ]


if __name__ == "__main__":
    description = (__doc__ or "").partition("\n")[0]
    run_train_bench(tyro.cli(TrainBenchSettings, prog="python -m bench.train", description=description))
