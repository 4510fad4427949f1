"""Time of one learning iteration, split into the algorithm's phases; SHAC's are rollout, backward, critic and other.

python -m bench.train                     all tasks, on the GPU where there is one
python -m bench.train --tasks ant --device cpu
python -m bench.train --algo bptt --tasks cartpole
python -m bench.train --compare           beside the program released with the SHAC paper, on an H200
"""

from __future__ import annotations

import json
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
from trot.learn.algorithms import find_algorithm
from trot.learn.capture import fast_phases
from trot.learn.torch_threads import one_torch_thread
from trot.learn.train import DEFAULT_ALGORITHM, choose_device

WARM_UP = 3
"""Iterations that do not count."""
LATE = 10**9
"""Number of an iteration by which nothing is left of how a training begins, such as random actions."""
PROGRAM_OF_2022 = {"ant": 880, "half_cheetah": 704, "humanoid": 2360, "muscle_humanoid": 2390, "hopper": 975}
"""What the program released with the paper takes for an iteration of SHAC on an H200, ms."""


@dataclass(frozen=True)
class TrainBenchSettings:
    """What to measure."""

    tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks by name, or path/to/file.py:Class."""
    algo: str = DEFAULT_ALGORITHM
    """One of `trot algorithms`, or path/to/file.py:NAME."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    worlds: int | None = None
    """Instead of the tuned number."""
    iterations: int = 12
    """Of which the medians are printed."""
    compare: bool = False
    """Add what the program released with the SHAC paper takes on an H200, which says something beside an H200 only."""
    json: Path | None = None
    """Write every figure to this file too."""


@dataclass(frozen=True)
class IterationTime:
    """Milliseconds, medians over iterations."""

    task: str
    device: str
    worlds: int
    steps: int
    """Environment steps of an iteration, all worlds together."""
    updates: int
    """Steps of the optimiser in an iteration; 0 where that says little."""
    phases: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.phases.values())

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.total * 1e3

    @property
    def updates_per_second(self) -> float:
        return self.updates / self.total * 1e3


def measure_training(task: str, algo: str, device: str, worlds: int | None, iterations: int) -> IterationTime:
    """Train a little, with the settings tuned for the task."""
    algorithm = find_algorithm(algo)
    settings = algorithm.resolve(task)
    if worlds is not None:
        settings = replace(settings, num_worlds=worlds)
    learner = algorithm.learner(make_env(task, settings.num_worlds, device), settings, 0)
    with one_torch_thread():
        phases = fast_phases(learner)
        moments = [Moment(learner.device)]
        for iteration in [0, *range(LATE, LATE + WARM_UP + iterations - 1)]:
            for phase in phases.values():
                phase(iteration)
                moments.append(Moment(learner.device))
    times: dict[str, list[float]] = {name: [] for name in phases}
    for name, begin, end in zip(cycle(phases), moments[:-1], moments[1:], strict=False):
        times[name].append(begin.milliseconds_to(end))
    medians = {name: statistics.median(values[WARM_UP:]) for name, values in times.items()}
    steps = round(int(learner.steps) / (WARM_UP + iterations))
    return IterationTime(task, learner.device.type, settings.num_worlds, steps, learner.updates_per_iteration, medians)


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
    if settings.compare and settings.algo != DEFAULT_ALGORITHM:
        raise ValueError(f"--compare knows figures of {DEFAULT_ALGORITHM} alone, not of {settings.algo}")
    device = choose_device(settings.device)
    print(describe_machine(gpu_name() if device.startswith("cuda") else None), flush=True)
    measured = []
    for task in settings.tasks:
        print(f"{task}, {settings.algo}, {device}", file=sys.stderr, flush=True)
        measured.append(measure_training(task, settings.algo, device, settings.worlds, settings.iterations))
    print(f"\n### One learning iteration, ms\n\n{_table(measured, settings.compare)}", flush=True)
    if settings.json is not None:
        settings.json.write_text(json.dumps([asdict(row) for row in measured], indent=2) + "\n")


def _table(measured: list[IterationTime], compare: bool) -> str:
    head = ["task", "worlds", *measured[0].phases, "iteration", "steps/s"]
    rows = []
    for row in measured:
        parts = [f"{ms:.1f}" for ms in (*row.phases.values(), row.total)]
        rows.append([row.task, str(row.worlds), *parts, f"{row.steps_per_second:,.0f}"])
    if any(row.updates for row in measured):
        head.append("updates/s")
        for cells, row in zip(rows, measured, strict=True):
            cells.append(f"{row.updates_per_second:,.0f}")
    if compare:
        head.append("the 2022 program, H200")
        for cells, row in zip(rows, measured, strict=True):
            cells.append(str(PROGRAM_OF_2022.get(row.task, "")))
    return markdown_table(head, rows)


if __name__ == "__main__":
    description = (__doc__ or "").partition("\n")[0]
    run_train_bench(tyro.cli(TrainBenchSettings, prog="python -m bench.train", description=description))
