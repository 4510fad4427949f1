"""What a comparison measures: returns per algorithm, and what it takes to reach levels of return. NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trot.view.plots.curves import Axis, LoadedRun, Numbers, return_line

REFERENCE = "shac"
"""What the others are measured by, where it takes part; else the first algorithm is."""
AXES: tuple[Axis, Axis] = ("steps", "seconds")
SHARES = (25, 50, 75, 90)
"""Per cent of the way from the worst first return to the reference's best one."""


@dataclass(frozen=True)
class Spread:
    """The mean over seeds, and the standard deviation of a sample around it; None for a single seed."""

    mean: float
    deviation: float | None

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)


@dataclass(frozen=True)
class Reached:
    """How an algorithm's runs ended."""

    algo: str
    label: str
    """As papers write it."""
    num_runs: int
    first: Spread
    """Return when the first episodes have ended."""
    best: Spread
    final: Spread
    steps: Spread
    seconds: Spread


@dataclass(frozen=True)
class Level:
    """A return, and why it is looked at."""

    value: float
    reason: str


@dataclass(frozen=True)
class Effort:
    """What it takes an algorithm to reach a level: over those of its runs that do, None where none does."""

    level: Level
    algo: str
    label: str
    num_runs: int
    num_there: int
    steps: Spread | None
    seconds: Spread | None
    steps_ratio: float | None
    """To the reference's: 2 is twice as many."""
    seconds_ratio: float | None


def by_algorithm(runs: Sequence[LoadedRun]) -> dict[str, list[LoadedRun]]:
    """Runs that have finished an episode each, in the order in which their algorithms come."""
    return {algo: [run for run in runs if run.algo == algo] for algo in dict.fromkeys(run.algo for run in runs)}


def reached(runs: Sequence[LoadedRun]) -> Reached:
    """How the runs of one algorithm ended."""
    lines = [return_line(run, "steps") for run in runs]
    return Reached(
        algo=runs[0].algo,
        label=runs[0].label,
        num_runs=len(runs),
        first=Spread.over([returns[0] for _, returns in lines]),
        best=Spread.over([returns.max() for _, returns in lines]),
        final=Spread.over([returns[-1] for _, returns in lines]),
        steps=Spread.over([run.columns["steps"][-1] for run in runs]),
        seconds=Spread.over([run.columns["seconds"][-1] for run in runs]),
    )


def choose_reference(algos: Sequence[str]) -> str:
    """REFERENCE where it takes part, else the first."""
    return REFERENCE if REFERENCE in algos else algos[0]


def default_levels(ends: Sequence[Reached], reference: str) -> list[Level]:
    """Shares of the way from the worst first return to the reference's best; and where each of the others ends."""
    (best,) = (end.best.mean for end in ends if end.algo == reference)
    (label,) = (end.label for end in ends if end.algo == reference)
    worst = min(end.first.mean for end in ends)
    # Where the reference has learned nothing there is no way to divide.
    shares = SHARES if best > worst else ()
    levels = [
        Level(worst + share / 100 * (best - worst), f"{share} % of the way to {label}'s best") for share in shares
    ]
    levels += [Level(end.final.mean, f"where {end.label} ends") for end in ends if end.algo != reference]
    return sorted(levels, key=lambda level: level.value)


def efforts(groups: Mapping[str, Sequence[LoadedRun]], levels: Sequence[Level], reference: str) -> list[Effort]:
    """For every level, what each of the algorithms takes to reach it."""
    found = []
    for level in levels:
        steps, seconds = ({algo: _passages(runs, axis, level.value) for algo, runs in groups.items()} for axis in AXES)
        found += [
            Effort(
                level=level,
                algo=algo,
                label=runs[0].label,
                num_runs=len(runs),
                num_there=len(steps[algo]),
                steps=Spread.over(steps[algo]) if steps[algo] else None,
                seconds=Spread.over(seconds[algo]) if seconds[algo] else None,
                steps_ratio=_ratio(steps[algo], steps[reference]),
                seconds_ratio=_ratio(seconds[algo], seconds[reference]),
            )
            for algo, runs in groups.items()
        ]
    return found


def first_passage(x: Numbers, returns: Numbers, level: float) -> float | None:
    """Where a curve first comes to a level, between two rows on the straight line; None where it never does."""
    there = np.flatnonzero(returns >= level)
    if not there.size:
        return None
    row = int(there[0])
    if row == 0:
        return float(x[0])
    share = (level - returns[row - 1]) / (returns[row] - returns[row - 1])
    return float(x[row - 1] + share * (x[row] - x[row - 1]))


def _passages(runs: Sequence[LoadedRun], axis: Axis, level: float) -> list[float]:
    passages = [first_passage(*return_line(run, axis), level) for run in runs]
    return [passage for passage in passages if passage is not None]


def _ratio(values: Sequence[float], reference: Sequence[float]) -> float | None:
    # A first look may come after no time at all.
    if not values or not reference or not np.mean(reference) > 0:
        return None
    return float(np.mean(values) / np.mean(reference))
