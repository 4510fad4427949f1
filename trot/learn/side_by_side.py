"""Two jobs at once on a GPU, where neither fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

First = TypeVar("First")
Second = TypeVar("Second")


class SideBySide:
    """Runs two jobs that need nothing of each other; on the CPU one after the other.

    What they read must live until they are done, and neither may change what the other reads. Inside a captured phase
    they become two branches of the graph.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
        if self._stream is None:
            return first(), second()
        main = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(main)
        of_first = first()
        with torch.cuda.stream(self._stream):
            of_second = second()
        main.wait_stream(self._stream)
        return of_first, of_second


class Milestone:
    """A point in the first of two jobs that the second one waits for; on the CPU it has been passed by then."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def reach(self) -> None:
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        if self._event is not None:
            self._event.wait()
