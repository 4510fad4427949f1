"""The runs of a comparison are trained side by side, from wherever each of them is, and read."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from trot.compare.children import Children, Job, last_line, run_side_by_side
from trot.compare.plan import Member, Variant, task_title
from trot.compare.together import Training, trainings
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


def check_parallel(parallel: int | None) -> None:
    """Raise where it is no number of runs at a time."""
    if parallel is not None and parallel < 1:
        raise ValueError(f"--parallel must be at least 1, not {parallel}")


@contextlib.contextmanager
def only_here(folder: Path) -> Iterator[None]:
    """Make the folder of a comparison, and keep other processes from training there at the same time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = RunLock(folder)
    except OSError as error:
        raise ValueError(f"cannot write into '{folder}': {error.strerror}") from None
    try:
        yield
    finally:
        lock.release()


def train_members(
    members: Sequence[Member], device: str, parallel: int | None, again: str, together: bool = False
) -> list[str]:  # fmt: skip
    """Train what is not finished. Returns the failures, in words, and has printed them.

    Args:
        members: All in one folder.
        device: cpu or cuda.
        parallel: Runs at a time, or batches of seeds; default_parallel() without it.
        again: The command that goes on where this is interrupted.
        together: Seeds of one variant learn in one batch, where its algorithm can do that.
    """
    to_train = [member for member in members if not member.finished]
    if not to_train:
        return []
    folder = members[0].folder.parent
    processes = {training.name: training for training in trainings(to_train, together)}
    logs = {name: folder / LOGS / f"{name}.log" for name in processes}
    at_once = min(parallel or default_parallel(device), len(processes))
    begun = sum(member.exists for member in to_train)
    batches = "" if len(processes) == len(to_train) else f" in {len(processes)} batches"
    print(
        f"{len(members)} runs: {len(members) - len(to_train)} finished, {begun} to go on with, "
        f"{len(to_train) - begun} to begin{batches}; {at_once} at a time on {device}. Folder: {folder}",
        flush=True,
    )
    jobs = [Job(name, tuple(training.command()), logs[name]) for name, training in processes.items()]
    share_cores = torch.device(device).type == "cpu"
    with Progress(100, interval=SECONDS_BETWEEN_LINES, unit=" %") as progress:
        watch = _Watch(members, processes, progress)
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

    def __init__(self, members: Sequence[Member], processes: dict[str, Training], progress: Progress) -> None:
        self.processes, self.progress = processes, progress
        self.several_tasks = len({member.asked.task for member in members}) > 1
        self.shares = {member.name: member.share_done() for member in members}
        self.looked = -SECONDS_BETWEEN_LOOKS

    def __call__(self, children: Children) -> None:
        if children.running and time.monotonic() - self.looked < SECONDS_BETWEEN_LOOKS:
            return
        self.looked = time.monotonic()
        for name in children.ended:
            # An ended one that has failed is over, too.
            self.shares |= dict.fromkeys((member.name for member in self.processes[name].members), 1.0)
        values = {self._title(self.processes[name]): self._reached(self.processes[name]) for name in children.running}
        failed = sum(code != 0 for code in children.ended.values())
        done = 100 * sum(self.shares.values()) / len(self.shares)
        self.progress.update(round(done, 1), values, f"{failed} failed" if failed else None)

    def _reached(self, training: Training) -> str:
        shares = {member.name: member.share_done() for member in training.members}
        self.shares |= shares
        bests = [member.summary().best_return for member in training.members if member.exists]
        best = max((best for best in bests if best is not None), default=None)
        return f"{sum(shares.values()) / len(shares):.0%}" + ("" if best is None else f", best {short(best)}")

    def _title(self, training: Training) -> str:
        first = training.members[0]
        task = f"{task_title(first.asked.task)} " if self.several_tasks else ""
        seeds = " ".join(str(member.seed) for member in training.members)
        return f"{task}{first.variant.name} {seeds}:"


def finished_runs(members: Sequence[Member], minutes: float | None) -> tuple[list[LoadedRun], list[str]]:
    """What was learned within so many minutes, and sentences on those that are left out."""
    finished = [member for member in members if member.finished]
    if not finished:
        raise ValueError(f"no run of the comparison in '{members[0].folder.parent}' is finished")
    loaded = load_runs([member.folder for member in finished], CURVE_COLUMNS)
    runs = [_labelled(run, member.variant) for run, member in zip(loaded, finished, strict=True)]
    runs = with_episodes(runs if minutes is None else [up_to(run, 60 * minutes) for run in runs])
    names = [run.name for run in runs]
    return runs, [f"Left out: {member.name}, {_lack(member)}." for member in members if member.name not in names]


def _labelled(run: LoadedRun, variant: Variant) -> LoadedRun:
    """In tables and figures a variant stands where an algorithm does."""
    return replace(run, algo=variant.name, label=variant.label)


def batch_notes(members: Sequence[Member], together: bool) -> list[str]:
    """What a reader of seconds must know where seeds learned in one batch."""
    joined = together and any(len(training.members) > 1 for training in trainings(members, together))
    return ["Seeds of one variant learned in one batch: the seconds are the batch's."] if joined else []


def _lack(member: Member) -> str:
    return "which has finished no episode" if member.finished else "which is not finished"
