"""How far a study is, in per cent of its work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from trot.progress import Progress


@contextlib.contextmanager
def percent_done(total: float, show: bool) -> Iterator[Callable[[float], None]]:
    """Gives what is to be called with every amount of work that is done, of the total; without `show` it is quiet."""
    if not show:
        yield lambda _: None
        return
    done = 0.0
    with Progress(100, unit=" %") as progress:

        def tick(amount: float) -> None:
            nonlocal done
            done += amount
            progress.update(min(round(100 * done / total, 1), 100.0), {})

        tick(0.0)
        yield tick
