"""`trot compare`: algorithms side by side on a task, as curves and a table. What is missing is trained first."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from trot.command_line import TaskName, parse
from trot.compare.plan import Member, algorithm_variants, make_members, setting_variants, task_title
from trot.compare.report import make_report, write_report
from trot.compare.train_members import batch_notes, check_parallel, finished_runs, only_here, train_members
from trot.envs.device import existing_device
from trot.learn.train import choose_device


@dataclass
class CompareSettings:
    """What to compare, on which task, for how long."""

    task: TaskName
    """One of `trot tasks`, or path/to/file.py:Class."""
    algos: tuple[str, ...]
    """Some of `trot algorithms`, or path/to/file.py:NAME. The others are measured by shac, or by the first."""
    variants: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME:SETTING=VALUE[:SETTING=VALUE...]...")] = ()
    """The first of these algorithms with other settings, each beside it under a name of its own: long:gamma=0.995
    wide:actor_hidden=400,200,100:critic_lr=2e-3."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Each algorithm is trained once with each."""
    minutes: float | None = None
    """Of training, at most; a run that had fewer goes on."""
    iterations: int | None = None
    """Of every run, instead of those tuned for task and algorithm."""
    preset: str | None = None
    """Of every run; each algorithm's first preset unless given."""
    changes: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="[ALGO.]NAME=VALUE...")] = ()
    """Other settings of `trot train`: worlds=128 for all, but for variants that say otherwise;
    shac.actor_hidden=64,64 for one."""
    thresholds: tuple[float, ...] = ()
    """Returns to measure samples and seconds to; chosen between the worst and the best unless given."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    parallel: int | None = None
    """Runs at a time; one on the CPU and some on a GPU unless given."""
    together: Literal["yes", "no"] = "no"
    """All seeds of an algorithm learn in one batch, where it can do that, as by `trot train --seeds`: they take little
    more time than one on a GPU. Their seconds are the batch's then."""
    runs: Path = Path("runs")
    """Where the folder of the comparison is made."""
    name: str | None = None
    """Of that folder; compare-TASK without it."""


def compare_command(arguments: list[str]) -> int:
    """Train a task by several algorithms and seeds, and draw and tabulate returns against samples and seconds.

    Runs that are there are not trained again, and those that were interrupted go on.
    """
    settings = parse(CompareSettings, "trot compare", compare_command.__doc__, arguments)
    check_parallel(settings.parallel)
    device = choose_device(settings.device)
    existing_device(device)
    folder = settings.runs / (settings.name or f"compare-{task_title(settings.task)}")
    members = _members(settings, folder, device)
    for member in members:
        member.check()
    with only_here(folder):
        again = f"trot compare {shlex.join(arguments)}"
        failures = train_members(members, device, settings.parallel, again, settings.together == "yes")
        _report(members, settings, folder, device)
    return 1 if failures else 0


def _members(settings: CompareSettings, folder: Path, device: str) -> list[Member]:
    options = [] if settings.iterations is None else ["--iterations", str(settings.iterations)]
    options += [] if settings.preset is None else ["--preset", settings.preset]
    return make_members(
        settings.task,
        [*algorithm_variants(settings.algos), *setting_variants(settings.variants, settings.algos[0])],
        settings.seeds,
        folder,
        device,
        settings.minutes,
        options,
        settings.changes,
    )


def _report(members: Sequence[Member], settings: CompareSettings, folder: Path, device: str) -> None:
    """Print and write what the finished runs came to."""
    runs, notes = finished_runs(members, settings.minutes)
    length = "" if settings.minutes is None else f", at most {settings.minutes:g} minutes"
    title = f"{settings.task}: seeds {', '.join(map(str, dict.fromkeys(settings.seeds)))}{length}, on {device}"
    notes += batch_notes(members, settings.together == "yes")
    compared = "variant" if settings.variants else "algorithm"
    report = make_report(title, runs, settings.thresholds, notes, compared)
    print(report.text)
    for path in write_report(report, runs, folder):
        print(path)
