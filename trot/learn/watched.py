"""Watching a run while it learns: a process of its own shows its newest policy in the browser."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import IO

from trot.runs.folder import RunFolder

VIEWER = "trot.view.play.beside_training"
PATIENCE_SECONDS = 5.0


def require_viewer(seeds: Sequence[str]) -> None:
    """Raise where there would be nothing to see, before any training."""
    if seeds:
        raise ValueError("--view shows one run: give one --seed; trot play RUN --watch shows any of several that learn")
    if importlib.util.find_spec("viser") is None:
        raise ValueError('--view needs viser: pip install "trot[view]" adds it')


@contextlib.contextmanager
def watched(run: RunFolder, view: bool) -> Iterator[None]:
    """While this is entered, a browser shows the run, where that is wanted.

    After a training that came to its end the page stays, on a terminal, until Ctrl-C. The viewer holds on to this
    process by a pipe, so that it ends with it, even with one that is killed.
    """
    if not view:
        yield
        return
    # In a session of its own: Ctrl-C is for the training, which takes its viewer with it.
    process = subprocess.Popen(
        [sys.executable, "-m", VIEWER, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    threading.Thread(target=_pass_on, args=(process.stdout,), daemon=True).start()
    try:
        yield
        if sys.stdin is not None and sys.stdin.isatty() and process.poll() is None:
            print("The page shows the newest policy until Ctrl-C.", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                process.wait()
            print()
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _pass_on(lines: IO[str]) -> None:
    """Print what the viewer says, over the line of progress, which is drawn anew below it."""
    redrawn = sys.stderr.isatty()
    for line in lines:
        print(f"\r{line.rstrip():<79}" if redrawn else line.rstrip(), flush=True)
