"""`trot compare`: algorithms side by side on a task, as curves and a table. What is missing is trained first."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro

from trot.command_line import parse
from trot.compare.children import Children, Job, last_line, run_side_by_side
from trot.compare.plan import Member, make_members
from trot.compare.report import make_report, write_report
from trot.envs.device import existing_device
from trot.learn.train import choose_device
from trot.progress import Progress, short
from trot.runs.lock import RunLock
from trot.sim.threads import get_num_threads
from trot.view.plots.curves import CURVE_COLUMNS, LoadedRun, load_runs, up_to
from trot.view.plots.plot import with_episodes

LOGS = "logs"
GPU_MEMORY_OF_A_RUN = 8 * 2**30
"""Bytes, more than most runs take."""
CORES_OF_A_GPU_RUN = 2
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_BETWEEN_LINES = 30.0
"""Where the progress goes into a file."""


@dataclass
class CompareSettings:
    """What to compare, on which task, for how long."""

    task: tyro.conf.Positional[str]
    """One of `trot tasks`, or path/to/file.py:Class."""
    algos: tuple[str, ...]
    """Some of `trot algorithms`, or path/to/file.py:NAME. The others are measured by shac, or by the first."""
    seeds: tuple[int, ...] = (0, 1, 2)
    minutes: float | None = None
    """Of training, at most; a run that had fewer goes on."""
    iterations: int | None = None
    """Of every run, instead of those tuned for task and algorithm."""
    preset: str | None = None
    """Of every run; each algorithm's first preset unless given."""
    changes: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="[ALGO.]NAME=VALUE...")] = ()
    """Other settings of `trot train`: num_worlds=128 for all, shac.actor_hidden=64,64 for one."""
    thresholds: tuple[float, ...] = ()
    """Returns to measure samples and seconds to; chosen between the worst and the best unless given."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    parallel: int | None = None
    """Runs at a time; one on the CPU and some on a GPU unless given."""
    runs: Path = Path("runs")
    """Where the folder of the comparison is made."""
    name: str | None = None
    """Of that folder; compare-TASK without it."""


def compare_command(arguments: list[str]) -> int:
    """Train a task by several algorithms and seeds, and draw and tabulate returns against samples and seconds.

    Runs that are there are not trained again, and those that were interrupted go on.
    """
    settings = parse(CompareSettings, "trot compare", compare_command.__doc__, arguments)
    if settings.parallel is not None and settings.parallel < 1:
        raise ValueError(f"--parallel must be at least 1, not {settings.parallel}")
    device = choose_device(settings.device)
    existing_device(device)
    folder = settings.runs / (settings.name or f"compare-{settings.task.rpartition(':')[2]}")
    members = _members(settings, folder, device)
    for member in members:
        member.check()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = RunLock(folder)
    except OSError as error:
        raise ValueError(f"cannot write into '{folder}': {error.strerror}") from None
    try:
        failures = _train(members, settings, device, again=f"trot compare {shlex.join(arguments)}")
        _report(members, settings, folder, device)
    finally:
        lock.release()
    return 1 if failures else 0


def _members(settings: CompareSettings, folder: Path, device: str) -> list[Member]:
    options = [] if settings.iterations is None else ["--iterations", str(settings.iterations)]
    options += [] if settings.preset is None else ["--preset", settings.preset]
    return make_members(
        settings.task,
        settings.algos,
        settings.seeds,
        folder,
        device,
        settings.minutes,
        options,
        settings.changes,
    )


def _train(members: Sequence[Member], settings: CompareSettings, device: str, again: str) -> list[str]:
    """Train what is not finished. Returns the failures, in words, and has printed them."""
    to_train = [member for member in members if not member.finished]
    if not to_train:
        return []
    folder = members[0].folder.parent
    logs = {member.name: folder / LOGS / f"{member.name}.log" for member in to_train}
    at_once = min(settings.parallel or default_parallel(device), len(to_train))
    begun = sum(member.exists for member in to_train)
    print(
        f"{len(members)} runs: {len(members) - len(to_train)} finished, {begun} to go on with, "
        f"{len(to_train) - begun} to begin; {at_once} at a time on {device}. Folder: {folder}",
        flush=True,
    )
    jobs = [Job(member.name, tuple(member.command()), logs[member.name]) for member in to_train]
    share_cores = torch.device(device).type == "cpu"
    with Progress(100, interval=SECONDS_BETWEEN_LINES, unit=" %") as progress:
        watch = _Watch(members, progress)
        codes, interruption = run_side_by_side(jobs, at_once, share_cores, watch)
    finished = sum(member.finished for member in members)
    interruption.end(f"Stopped; {finished} of {len(members)} runs are finished. Go on: {again}")
    failed = {name: code for name, code in codes.items() if code}
    failures = [
        f"{name} failed with exit code {code}: {last_line(logs[name])} (log: {logs[name]})"
        for name, code in failed.items()
    ]
    for failure in failures:
        print(failure, file=sys.stderr, flush=True)
    return failures


def default_parallel(device: str) -> int:
    """Runs at a time. Side by side on a GPU they take longer each, and less in all; on the CPU one takes all cores."""
    if torch.device(device).type == "cpu":
        return 1
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(1, min(get_num_threads() // CORES_OF_A_GPU_RUN, memory // GPU_MEMORY_OF_A_RUN))


class _Watch:
    """Shows how far the runs are, from their folders."""

    def __init__(self, members: Sequence[Member], progress: Progress) -> None:
        self.members, self.progress = {member.name: member for member in members}, progress
        self.shares = {member.name: member.share_done() for member in members}
        self.looked = -SECONDS_BETWEEN_LOOKS

    def __call__(self, children: Children) -> None:
        if children.running and time.monotonic() - self.looked < SECONDS_BETWEEN_LOOKS:
            return
        self.looked = time.monotonic()
        # An ended one that has failed is over, too.
        self.shares |= dict.fromkeys(children.ended, 1.0)
        values = {}
        for name in children.running:
            member = self.members[name]
            self.shares[name] = member.share_done()
            best = member.summary().best_return if member.exists else None
            reached = "" if best is None else f", best {short(best)}"
            values[f"{member.algorithm} {member.seed}:"] = f"{self.shares[name]:.0%}{reached}"
        failed = sum(code != 0 for code in children.ended.values())
        done = 100 * sum(self.shares.values()) / len(self.shares)
        self.progress.update(round(done, 1), values, f"{failed} failed" if failed else None)


def _report(members: Sequence[Member], settings: CompareSettings, folder: Path, device: str) -> None:
    """Print and write what the finished runs came to."""
    finished = [member for member in members if member.finished]
    if not finished:
        raise ValueError(f"no run of the comparison in '{folder}' is finished")
    runs = with_episodes(_loaded(finished, settings.minutes))
    names = [run.name for run in runs]
    notes = [f"Left out: {member.name}, {_lack(member)}." for member in members if member.name not in names]
    length = "" if settings.minutes is None else f", at most {settings.minutes:g} minutes"
    title = f"{settings.task}: seeds {', '.join(map(str, dict.fromkeys(settings.seeds)))}{length}, on {device}"
    report = make_report(title, runs, settings.thresholds, notes)
    print(report.text)
    for path in write_report(report, runs, folder):
        print(path)


def _loaded(members: Sequence[Member], minutes: float | None) -> list[LoadedRun]:
    runs = load_runs([member.folder for member in members], CURVE_COLUMNS)
    return runs if minutes is None else [up_to(run, 60 * minutes) for run in runs]


def _lack(member: Member) -> str:
    return "which has finished no episode" if member.finished else "which is not finished"
