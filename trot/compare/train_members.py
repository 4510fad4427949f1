"""The runs of a comparison are trained side by side, from wherever each of them is, and read."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from trot.compare.children import Children, Job, last_line, run_side_by_side
from trot.compare.plan import Member, task_title
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


def train_members(members: Sequence[Member], device: str, parallel: int | None, again: str) -> list[str]:
    """Train what is not finished. Returns the failures, in words, and has printed them.

    Args:
        members: All in one folder.
        device: cpu or cuda.
        parallel: Runs at a time; default_parallel() without it.
        again: The command that goes on where this is interrupted.
    """
    to_train = [member for member in members if not member.finished]
    if not to_train:
        return []
    folder = members[0].folder.parent
    logs = {member.name: folder / LOGS / f"{member.name}.log" for member in to_train}
    at_once = min(parallel or default_parallel(device), len(to_train))
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
            values[f"{self._title(member)}:"] = f"{self.shares[name]:.0%}{reached}"
        failed = sum(code != 0 for code in children.ended.values())
        done = 100 * sum(self.shares.values()) / len(self.shares)
        self.progress.update(round(done, 1), values, f"{failed} failed" if failed else None)

    def _title(self, member: Member) -> str:
        several = len({one.asked.task for one in self.members.values()}) > 1
        task = f"{task_title(member.asked.task)} " if several else ""
        return f"{task}{member.variant.name} {member.seed}"


def finished_runs(members: Sequence[Member], minutes: float | None) -> tuple[list[LoadedRun], list[str]]:
    """What was learned within so many minutes, and sentences on those that are left out."""
    finished = [member for member in members if member.finished]
    if not finished:
        raise ValueError(f"no run of the comparison in '{members[0].folder.parent}' is finished")
    runs = load_runs([member.folder for member in finished], CURVE_COLUMNS)
    runs = with_episodes(runs if minutes is None else [up_to(run, 60 * minutes) for run in runs])
    names = [run.name for run in runs]
    return runs, [f"Left out: {member.name}, {_lack(member)}." for member in members if member.name not in names]


def _lack(member: Member) -> str:
    return "which has finished no episode" if member.finished else "which is not finished"
