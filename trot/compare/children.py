"""Child processes side by side: each a trot command with a log file. One that fails does not end the others."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from types import TracebackType
from typing import Self

from trot.interruption import Interruption

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Job:
    """A command of trot to run."""

    name: str
    command: tuple[str, ...]
    log: Path
    """What it prints is added here."""


class Children:
    """Some jobs at a time, until none is left. Inside a `with` block, whose end leaves no process behind.

    Args:
        jobs: In the order in which they begin.
        at_once: How many at most.
        share_cores: Whether each gets cores of its own, where the system can do that.
    """

    def __init__(self, jobs: Sequence[Job], at_once: int, share_cores: bool) -> None:
        self.waiting = list(jobs)
        self.ended: dict[str, int] = {}
        """Exit codes by name."""
        self._running: dict[Job, tuple[subprocess.Popen[bytes], int]] = {}
        """With the place that each has."""
        self._places = list(range(at_once))
        self._cores = _shares(at_once) if share_cores else {}
        # What PyTorch's threads would gain in one process they take from the others; who has set it knows better.
        self._environment = ({"OMP_NUM_THREADS": "1"} if at_once > 1 else {}) | dict(os.environ)

    @property
    def running(self) -> list[str]:
        return [job.name for job in self._running]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, _ in self._running.values():
            process.kill()
            process.wait()

    def advance(self) -> bool:
        """See which have ended and begin others in their places; False when all is done."""
        for job, (process, place) in list(self._running.items()):
            code = process.poll()
            if code is not None:
                self.ended[job.name] = code
                self._places.append(place)
                del self._running[job]
        while self.waiting and self._places:
            self._begin(self.waiting.pop(0), self._places.pop(0))
        return bool(self._running)

    def stop(self) -> None:
        """Begin no more, and ask those that run to save and end."""
        self.waiting.clear()
        for process, _ in self._running.values():
            process.terminate()

    def _begin(self, job: Job, place: int) -> None:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as log:
            log.write(f"$ trot {shlex.join(job.command)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                [sys.executable, "-m", "trot", *job.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )
        self._running[job] = process, place
        if place in self._cores and hasattr(os, "sched_setaffinity"):
            # Long before it has imported what starts threads: they inherit this.
            os.sched_setaffinity(process.pid, self._cores[place])


def run_side_by_side(
    jobs: Sequence[Job], at_once: int, share_cores: bool, watch: Callable[[Children], None]
) -> tuple[dict[str, int], Interruption]:
    """Run the jobs; exit codes by name of those that have ended, and whether a signal stopped them.

    A first Ctrl-C or a SIGTERM is passed on, and waited for; one more Ctrl-C ends everything at once.
    """
    with Interruption() as interruption, Children(jobs, at_once, share_cores) as children:
        while children.advance() and not interruption:
            watch(children)
            sleep(POLL_SECONDS)
        if interruption:
            children.stop()
            while children.advance():
                sleep(POLL_SECONDS)
        else:
            watch(children)
    return children.ended, interruption


def last_line(log: Path) -> str:
    """What a program said at its end."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def _shares(at_once: int) -> dict[int, set[int]]:
    """The cores of each place; none where there are too few of them, or the system does not tell."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if at_once == 1 or at_once > len(cores):
        return {}
    return {place: set(cores[place::at_once]) for place in range(at_once)}
