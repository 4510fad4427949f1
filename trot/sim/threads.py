"""A few threads that wait for work. Kernels release the interpreter's lock, so they run side by side."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], None]

_num_threads = os.cpu_count() or 1
_crew: _Crew | None = None
_crew_lock = threading.Lock()


def set_num_threads(count: int) -> None:
    """How many CPU threads share the worlds of a step; all cores unless set. Results do not depend on it."""
    global _num_threads
    if count < 1:
        raise ValueError(f"the number of threads must be at least 1, not {count}")
    _num_threads = count


def get_num_threads() -> int:
    """How many CPU threads share the worlds of a step."""
    return _num_threads


class _Crew:
    """Threads with one inbox each. A thread pool's futures cost more than a small robot's step."""

    def __init__(self, count: int) -> None:
        self.pid = os.getpid()
        self.inboxes: list[SimpleQueue[tuple[Job, SimpleQueue[BaseException | None]]]] = []
        for _ in range(count):
            inbox: SimpleQueue[tuple[Job, SimpleQueue[BaseException | None]]] = SimpleQueue()
            threading.Thread(target=_serve, args=(inbox,), name="trot", daemon=True).start()
            self.inboxes.append(inbox)


def _serve(inbox: SimpleQueue[tuple[Job, SimpleQueue[BaseException | None]]]) -> None:
    while True:
        job, done = inbox.get()
        try:
            job()
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)


def _crew_of(count: int) -> _Crew:
    global _crew
    with _crew_lock:
        # A forked process inherits the object but not the threads.
        if _crew is None or len(_crew.inboxes) < count or _crew.pid != os.getpid():
            _crew = _Crew(count)
        return _crew


def run_together(jobs: list[Job]) -> None:
    """Run the jobs side by side, the first in the calling thread, and return when all are done."""
    first, *others = jobs
    if not others:
        first()
        return
    done: SimpleQueue[BaseException | None] = SimpleQueue()
    for inbox, job in zip(_crew_of(len(others)).inboxes, others, strict=False):
        inbox.put((job, done))
    try:
        first()
    finally:
        # Wait in every case: the jobs write into memory that the caller owns.
        errors = [error for error in (done.get() for _ in others) if error is not None]
    if errors:
        raise errors[0]
