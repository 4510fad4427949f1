"""Time of one learning iteration, split into the algorithm's phases; SHAC's are rollout, backward, critic and other.

python -m bench.train                     all tasks, on the GPU where there is one
python -m bench.train --tasks ant --device cpu
python -m bench.train --algo bptt --tasks cartpole
python -m bench.train --tasks ant --members 16    sixteen seeds in one batch
python -m bench.train --tasks ant --worlds 16 --horizon 128
python -m bench.train --tasks ant --preset gpu --members 40    what 8 candidates for each of five seeds take
python -m bench.train --compare           beside the program released with the SHAC paper, on an H200

What it takes to be ready, kernels built or loaded and on CUDA graphs captured, stands in the last column.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import tyro

from bench.report import describe_machine, gpu_name, markdown_table
from trot.envs.device import existing_device
from trot.envs.registry import TASKS, make_task
from trot.learn.algorithms import DEFAULT_ALGORITHM, find_algorithm
from trot.learn.iteration_time import IterationTime, measure_iterations
from trot.learn.train import choose_device

PROGRAM_OF_2022 = {"ant": 880, "half_cheetah": 704, "humanoid": 2360, "muscle_humanoid": 2390, "hopper": 975}
"""What the program released with the paper takes for an iteration of SHAC on an H200, ms."""


@dataclass(frozen=True)
class TrainBenchSettings:
    """What to measure."""

    tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks by name, or path/to/file.py:Class."""
    algo: str = DEFAULT_ALGORITHM
    """One of `trot algorithms`, or path/to/file.py:NAME."""
    preset: str | None = None
    """Whose settings, by name. Without it those of the paper, where the algorithm has them."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    worlds: int | None = None
    """Instead of the tuned number."""
    horizon: int | None = None
    """Steps of an iteration, instead of the tuned number."""
    members: int | None = None
    """So many seeds in one batch, each with these worlds, as by `trot train --seeds`."""
    iterations: int = 12
    """Of which the medians are printed."""
    compare: bool = False
    """Add what the program released with the SHAC paper takes on an H200, which says something beside an H200 only."""
    json: Path | None = None
    """Write every figure to this file too."""


def measure_training(task: str, device: str, asked: TrainBenchSettings) -> IterationTime:
    """With the preset's settings for the task, but for what is asked."""
    algorithm = find_algorithm(asked.algo)
    settings = algorithm.resolve(task, asked.preset) if asked.preset else algorithm.paper_settings(task)
    changes = {"num_worlds": asked.worlds, "horizon": asked.horizon}
    settings = replace(settings, **{name: value for name, value in changes.items() if value is not None})
    return measure_iterations(algorithm, task, settings, device, asked.iterations, asked.members)


def run_train_bench(settings: TrainBenchSettings) -> None:
    """Measure and print."""
    if settings.compare and (settings.algo != DEFAULT_ALGORITHM or settings.members is not None):
        raise ValueError(f"--compare knows figures of {DEFAULT_ALGORITHM} alone, and of one seed at a time")
    if settings.members is not None and settings.members < 1:
        raise ValueError(f"members must be at least 1, not {settings.members}")
    device = choose_device(settings.device)
    # A mistake ends it before the first minute is spent.
    existing_device(device)
    for task in settings.tasks:
        make_task(task)
    print(describe_machine(gpu_name() if device.startswith("cuda") else None), flush=True)
    measured = []
    for task in settings.tasks:
        print(f"{task}, {settings.algo}, {device}", file=sys.stderr, flush=True)
        measured.append(measure_training(task, device, settings))
    print(f"\n### One learning iteration, ms\n\n{_table(measured, settings.compare)}", flush=True)
    if settings.json is not None:
        settings.json.write_text(json.dumps([asdict(row) for row in measured], indent=2) + "\n")


def _table(measured: list[IterationTime], compare: bool) -> str:
    head = ["task", "worlds", *measured[0].phases, "iteration", "steps/s", "ready, s"]
    rows = []
    for row in measured:
        parts = [f"{ms:.1f}" for ms in (*row.phases.values(), row.total)]
        worlds = str(row.worlds) if row.members is None else f"{row.members} x {row.worlds}"
        rows.append([row.task, worlds, *parts, f"{row.steps_per_second:,.0f}", f"{row.ready:.1f}"])
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
