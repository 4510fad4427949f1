"""What training says: the numbers in its line of progress, and its last line. Of several runs, means and spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from trot.learn.learner import Learner
from trot.learn.run_record import Row, RunRecord


def shown(records: Sequence[RunRecord], learner: Learner) -> dict[str, float | str]:
    """Numbers for the line of progress: label to value."""
    running = [record for record in records if record.last_row and record.failure is None]
    rows = [record.last_row for record in running]
    ended = [row for row in rows if row["episodes"]]
    numbers: dict[str, float | str] = {"return": _mean(ended, "episode_return") if ended else "-"}
    if len(records) > 1:
        numbers["spread"] = _spread(ended) if ended else "-"
    numbers["length"] = _mean(ended, "episode_length") if ended else "-"
    numbers |= {label: _mean(rows, column) for label, column in learner.shown.items()}
    seconds = max(record.seconds() for record in running)
    return {**numbers, "steps/s": sum(row["steps"] for row in rows) / max(seconds, 1e-9)}


def summary(records: Sequence[RunRecord], iteration: int) -> str:
    """The end of a training in a line."""
    rows = [record.last_row for record in records if record.last_row and record.failure is None]
    ended = [row for row in rows if row["episodes"]]
    seconds = max(record.seconds() for record in records)
    steps = f"{sum(row['steps'] for row in rows):,}"
    if len(records) == 1:
        row = rows[0]
        best = f"{row['best_return']:.1f}" if ended else "none, no episode finished"
        return (
            f"{iteration} iterations, {steps} steps in {seconds:.1f} s. Return {row['episode_return']:.1f}, "
            f"best {best}. Run folder: {records[0].run.path}"
        )
    returns = "none, no episode finished"
    if ended:
        lowest, highest = (f"{_extreme(ended, pick):.1f}" for pick in (min, max))
        mean = f"{_mean(ended, 'episode_return'):.1f}, standard deviation {_spread(ended):.1f}"
        returns = f"{mean}, from {lowest} to {highest}, best {_mean(ended, 'best_return'):.1f}"
    return (
        f"{iteration} iterations, {len(rows)} seeds, {steps} steps in {seconds:.1f} s. Return {returns}. "
        f"Run folders: {', '.join(str(record.run.path) for record in records)}"
    )


def _mean(rows: Sequence[Row], column: str) -> float:
    return statistics.fmean(row[column] for row in rows)


def _spread(rows: Sequence[Row]) -> float:
    mean = _mean(rows, "episode_return")
    return math.sqrt(statistics.fmean((row["episode_return"] - mean) ** 2 for row in rows))


def _extreme(rows: Sequence[Row], pick: Callable[..., float]) -> float:
    return pick(row["episode_return"] for row in rows)
