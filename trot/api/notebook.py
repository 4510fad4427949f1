"""What differs where Python runs in a notebook: lines that redraw themselves, and pages inside of the page."""

from __future__ import annotations

import contextlib
import html
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

PLAYER_HEIGHT = 420
"""Pixels of a page in a notebook."""


def in_notebook() -> bool:
    """Whether a kernel runs this program, rather than a terminal or a script."""
    # Not imported for the question: where no one has, there is no notebook.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextlib.contextmanager
def progress_shown() -> Iterator[None]:
    """In a notebook, progress is one line that redraws itself, as on a terminal, and not on red ground."""
    if not in_notebook():
        yield
        return
    with contextlib.redirect_stderr(_Redrawn(sys.stdout)):
        yield


def nothing_displayed() -> contextlib.AbstractContextManager[object]:
    """In a notebook, what libraries display on their own is left out: viser shows the address of every server."""
    if not in_notebook():
        return contextlib.nullcontext()
    capturing: contextlib.AbstractContextManager[object] = importlib.import_module(
        "IPython.utils.capture"
    ).capture_output()
    return capturing


class _Redrawn:
    """A notebook's output, which knows the carriage return as terminals do and does not say so."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        # A kernel's own leads to the terminal that it was started from, whose width is not the notebook's.
        raise OSError("a notebook's output is no file")

    def write(self, text: str) -> int:
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


class InlinePage:
    """A page that plays by itself: inside of a notebook, or in a file that any browser opens."""

    def __init__(self, text: str, title: str, frames: int, height: int = PLAYER_HEIGHT) -> None:
        self.text, self.title, self.frames, self.height = text, title, frames, height

    def __repr__(self) -> str:
        return f"InlinePage({self.title}, {self.frames} frames, {len(self.text) / 1e6:.1f} MB)"

    def _repr_html_(self) -> str:
        # The frame is a world of its own: neither does the page see the notebook, nor the other way round.
        frame = f'<iframe srcdoc="{html.escape(self.text)}" sandbox="allow-scripts" title="{html.escape(self.title)}"'
        return f'<div>{frame} width="100%" height="{self.height}" style="border: 1px solid #ccc"></iframe></div>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page, whole or not at all."""
        from trot.atomic import check_destination, replacing

        target = Path(path)
        check_destination(target)
        with replacing(target) as file:
            file.write(self.text.encode())
