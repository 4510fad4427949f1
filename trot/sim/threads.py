"""A few threads that wait for work. Kernels release the interpreter's lock, so they run side by side."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

Job = Callable[[], None]


def _cores() -> int:
    """The cores this process may use, where the system tells; else all there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_num_threads = _cores()
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
        self.inboxes: list[SimpleQueue[tuple[Job, _Outcomes]]] = []

    def grow(self, count: int) -> None:
        while len(self.inboxes) < count:
            inbox: SimpleQueue[tuple[Job, _Outcomes]] = SimpleQueue()
            threading.Thread(target=_serve, args=(inbox,), name="trot", daemon=True).start()
            self.inboxes.append(inbox)


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


def _serve(inbox: SimpleQueue[tuple[Job, _Outcomes]]) -> None:
    while True:
        job, outcomes = inbox.get()
        try:
            job()
        except BaseException as error:
            outcomes.add(error)
        else:
            outcomes.add(None)


def _crew_of(count: int) -> _Crew:
    global _crew
    with _crew_lock:
        # A forked process inherits the object but not the threads.
        if _crew is None or _crew.pid != os.getpid():
            _crew = _Crew()
        _crew.grow(count)
        return _crew


def run_together(jobs: list[Job]) -> None:
    """Run the jobs side by side, the first in the calling thread, and return when all are done."""
    first, *others = jobs
    if not others:
        first()
        return
    outcomes = _Outcomes()
    for inbox, job in zip(_crew_of(len(others)).inboxes, others, strict=False):
        inbox.put((job, outcomes))
    try:
        first()
    finally:
        # Also after a Ctrl-C: the jobs write into memory that the caller owns.
        interrupt = outcomes.wait(len(others))
    if interrupt is not None:
        raise interrupt
    for error in outcomes.ended:
        if error is not None:
            raise error
