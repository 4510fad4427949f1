"""A few threads that wait for work. Kernels release the interpreter's lock, so they run side by side."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

Job = Callable[[], None]


@functools.cache
def cores() -> int:
    """The cores this process may use, where the system tells; else all there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_num_threads = cores()
_crew: _Crew | None = None
_crew_lock = threading.Lock()


def set_num_threads(count: int) -> None:
    """How many CPU threads share the worlds of a step; all cores unless set. Results do not depend on it."""
    global _num_threads
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"the number of threads must be a whole number of at least 1, not {count}")
    _num_threads = count


def get_num_threads() -> int:
    """How many CPU threads share the worlds of a step."""
    return _num_threads


class _Crew:
    """Threads with one inbox each. A thread pool's futures cost more than a small robot's step."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.size = 0
        self.idle: list[_Inbox] = []

    def take(self, count: int) -> list[_Inbox]:
        """Threads that have nothing to do, as many as there are of `count`; new ones until the crew is so large."""
        while self.size < count:
            self.add()
        return [self.idle.pop() for _ in range(min(count, len(self.idle)))]

    def add(self) -> None:
        """One more, which has nothing to do yet."""
        inbox: _Inbox = SimpleQueue()
        threading.Thread(target=_serve, args=(inbox, self.idle), name="trot", daemon=True).start()
        self.size += 1
        self.idle.append(inbox)


class _Outcomes:
    """How the jobs of one call ended: an error or None each."""

    def __init__(self) -> None:
        self.ended: list[BaseException | None] = []
        self.news: SimpleQueue[None] = SimpleQueue()

    def add(self, error: BaseException | None) -> None:
        self.ended.append(error)
        self.news.put(None)

    def wait(self, count: int) -> KeyboardInterrupt | None:
        """Wait for so many jobs, whatever happens; a Ctrl-C meanwhile is returned."""
        interrupt = None
        while True:
            try:
                while len(self.ended) < count:
                    # Ctrl-C may swallow a piece of news on its way, so look at the list again now and then.
                    with contextlib.suppress(Empty):
                        self.news.get(timeout=0.1)
                return interrupt
            except KeyboardInterrupt as error:
                interrupt = error

    def raise_first(self) -> None:
        """The first error, if there is one."""
        for error in self.ended:
            if error is not None:
                raise error


_Inbox = SimpleQueue[tuple[Job, _Outcomes]]


def _serve(inbox: _Inbox, idle: list[_Inbox]) -> None:
    while True:
        job, outcomes = inbox.get()
        error: BaseException | None = None
        try:
            job()
        except BaseException as raised:
            error = raised
        # The job holds memory of the caller, who may wait for it to be given back.
        del job
        idle.append(inbox)
        outcomes.add(error)


def _take(count: int, *, at_least_one: bool = False) -> list[_Inbox]:
    """Threads of the crew that have nothing to do, at most so many."""
    global _crew
    with _crew_lock:
        # A forked process inherits the object but not the threads.
        if _crew is None or _crew.pid != os.getpid():
            _crew = _Crew()
        if at_least_one and not _crew.idle:
            _crew.add()
        return _crew.take(count)


def run_together(jobs: list[Job]) -> None:
    """Run the jobs side by side, the first in the calling thread, and return when all are done.

    Those that find the whole crew at work, because another job runs beside, are the caller's too.
    """
    first, *others = jobs
    if not others:
        first()
        return
    taken = _take(len(others))
    outcomes = _Outcomes()
    for inbox, job in zip(taken, others, strict=False):
        inbox.put((job, outcomes))
    try:
        first()
        for job in others[len(taken) :]:
            job()
    finally:
        # Also after a Ctrl-C: the jobs write into memory that the caller owns.
        interrupt = outcomes.wait(len(taken))
    if interrupt is not None:
        raise interrupt
    outcomes.raise_first()


def busy_threads() -> int:
    """Threads of the crew that are at work."""
    return 0 if _crew is None else _crew.size - len(_crew.idle)


def run_beside(job: Job) -> Job:
    """Begin a job in a thread of the crew. What is returned waits for its end, and raises what it raised."""
    (inbox,) = _take(1, at_least_one=True)
    outcomes = _Outcomes()
    inbox.put((job, outcomes))

    def wait() -> None:
        interrupt = outcomes.wait(1)
        if interrupt is not None:
            raise interrupt
        outcomes.raise_first()

    return wait
