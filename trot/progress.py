"""How far long work is: one line redrawn in place on a terminal, a line now and then in a log file."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self, TextIO

SECONDS_BETWEEN_REDRAWS = 0.1
SECONDS_BETWEEN_SAMPLES = 1.0
SAMPLES = 30
"""The time left follows from the rate since the oldest: the first iterations, which compile, are soon forgotten."""
WIDEST_BAR, NARROWEST_BAR = 24, 6


class Progress:
    """Shows the newest of the updates that it is given; whoever works need not care how often that is.

    Args:
        total: Iterations, or frames, of the whole work.
        stream: Where to write; by default stderr.
        interval: Seconds between lines where the stream is no terminal.
        clock: Seconds since any moment.
        unit: Of the total, where it must be said.
    """

    def __init__(
        self,
        total: int,
        stream: TextIO | None = None,
        interval: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "",
    ) -> None:
        self._unit = unit
        self._total, self._stream, self._clock = total, stream or sys.stderr, clock
        self._redraws = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._pause = SECONDS_BETWEEN_REDRAWS if self._redraws else interval
        self._began = clock()
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        self._hidden: tuple[float, list[str], str] | None = None
        """The newest update, if it was not shown yet."""
        self._shown_at = -math.inf
        self._shown_length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def update(self, done: float, values: Mapping[str, float | str], note: str | None = None) -> None:
        """Iterations done, values in the order of their importance, and a warning, if there is one."""
        now = self._clock()
        if not self._samples or now - self._samples[-1][0] >= SECONDS_BETWEEN_SAMPLES:
            self._samples.append((now, done))
        self._hidden = (done, [f"{name} {short(value)}" for name, value in values.items()], note or "")
        if now - self._shown_at >= self._pause:
            self._show(now)

    def close(self) -> None:
        """Show the last update, if it was not, and leave the line."""
        self._show(self._clock())
        if self._shown_length:
            self._stream.write("\n")
            self._stream.flush()
            self._shown_length = 0

    def _show(self, now: float) -> None:
        if self._hidden is None:
            return
        done, values, note = self._hidden
        texts = [f"{done}/{self._total}{self._unit}", *values, self._time(now, done), note]
        # A line's end inside a text would leave half of it behind.
        texts = [" ".join(text.split()) for text in texts]
        if self._redraws:
            room = max(_columns(self._stream) - 1, 0)
            line = fit(texts, done / max(self._total, 1), room)
            # Blanks wipe out the rest of a longer line before.
            self._stream.write("\r" + line.ljust(min(self._shown_length, room)))
            self._shown_length = len(line)
        else:
            self._stream.write("  ".join(filter(None, texts)) + "\n")
        self._stream.flush()
        self._hidden, self._shown_at = None, now

    def _time(self, now: float, done: float) -> str:
        if done >= self._total:
            return f"in {timedelta(seconds=round(now - self._began))}"
        then, done_then = self._samples[0]
        if done <= done_then or now <= then:
            return ""
        seconds = (self._total - done) * (now - then) / (done - done_then)
        return f"{timedelta(seconds=round(seconds))} left"


def announce(text: str, stream: TextIO | None = None) -> None:
    """Say what a wait is for, before anything can be counted; only on a terminal, where somebody waits."""
    stream = stream or sys.stderr
    if stream.isatty():
        stream.write(f"{text}\n")
        stream.flush()


def short(value: float | str) -> str:
    """A number in a few digits: 0.01235, 8012, 12346, 123k, 1.23M; text as it is."""
    if isinstance(value, str):
        return value
    if not math.isfinite(value) or abs(value) < 1e4:
        return f"{value:.4g}"
    if abs(value) < 1e5:
        return f"{value:.0f}"
    return f"{value / 1e3:.0f}k" if abs(value) < 1e6 else f"{value / 1e6:.2f}M"


def fit(texts: list[str], share: float, room: int) -> str:
    """Count, values, time and note in one line; where that is too long, the last values are left out first.

    They make room for a bar, which takes what else is left. The first value goes only after the bar does, and the
    count, the time and the note are cut at the end.
    """
    count, *values, time_text, note = texts
    line = "  ".join(filter(None, [count, *values, time_text, note]))
    while len(line) > room - NARROWEST_BAR - len("[] ") and len(values) > 1:
        values.pop()
        line = "  ".join(filter(None, [count, *values, time_text, note]))
    if len(line) > room:
        return (line[: max(room - 3, 0)] + "...")[:room]
    bar = min(WIDEST_BAR, room - len(line) - len("[] "))
    if bar < NARROWEST_BAR:
        return line
    filled = int(bar * min(max(share, 0.0), 1.0))
    return f"[{'#' * filled}{'.' * (bar - filled)}] {line}"


def _columns(stream: TextIO) -> int:
    """The width of the stream's own terminal: stdout may lead elsewhere."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return columns or shutil.get_terminal_size().columns
