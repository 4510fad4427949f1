"""Ctrl-C and SIGTERM, noted rather than obeyed at once, so that long work ends where nothing is lost."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interruption:
    """Inside its `with` block, a first Ctrl-C or a SIGTERM makes it true; one more Ctrl-C ends the program."""

    def __init__(self) -> None:
        self._signal: int | None = None
        """The one that asked for the end."""
        self._before: dict[signal.Signals, Any] = {}

    def __bool__(self) -> bool:
        return self._signal is not None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def end(self, message: str) -> None:
        """End the program where it was asked for, with a message: once all is saved.

        A Ctrl-C becomes KeyboardInterrupt, a SIGTERM SystemExit.
        """
        if self._signal is None:
            return
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt(message)
        print(message, flush=True)
        # As a shell reports a program that this signal ended.
        raise SystemExit(128 + self._signal)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Only the second Ctrl-C is a person's wish: whoever sends SIGTERM may send it to a whole group, twice.
        if self._signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = self._signal or number
