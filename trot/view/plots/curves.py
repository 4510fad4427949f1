"""Runs as the lines and bands of figures: NumPy alone, nothing is drawn here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trot.runs.folder import METRICS, SETTINGS, RunFolder
from trot.runs.listing import list_runs

GroupKey = Literal["algo", "label", "task", "seed", "name"]
Axis = Literal["steps", "seconds"]
Numbers = NDArray[np.float64]

CURVE_COLUMNS = ("steps", "seconds", "episode_return", "episodes")
HEALTH_COLUMNS = ("iteration", "faults")
HEALTH_COLUMNS_OF_SOME = (
    "gradient_norm",
    "adjoint_first",
    "adjoint_median",
    "adjoint_last",
    "steep_worlds",
    "saturated",
)
"""Not every algorithm has these."""
TIMING_COLUMNS = ("iteration", "steps", "seconds")

GRID_POINTS = 401
"""Of a curve: more than a panel has pixels to show."""

SHORTEST_SPAN = 0.1
"""Seconds between two moments whose difference is taken: the column is rounded to milliseconds."""

FEWEST_DIFFERENCES, MOST_MEDIANS = 8, 50
"""A point of a timing curve is the median of that many differences or more, and a curve has that many or fewer."""


@dataclass(frozen=True)
class LoadedRun:
    """A run's settings that figures speak of, and columns of its metrics."""

    folder: Path
    task: str
    algo: str
    label: str
    """The algorithm as papers write it."""
    seed: str
    columns: dict[str, Numbers]

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def group(self, by: GroupKey) -> str:
        return {"algo": self.algo, "label": self.label, "task": self.task, "seed": self.seed, "name": self.name}[by]

    @property
    def has_finished_episode(self) -> bool:
        return bool(_finished(self).any())


@dataclass(frozen=True)
class Curve:
    """The mean over a group's runs, and their standard deviation around it."""

    group: str
    algo_label: str
    """Of the first of its runs."""
    x: Numbers
    """Steps or seconds so far."""
    mean: Numbers
    deviation: Numbers | None
    """Of a sample, dividing by the number of runs minus one; None for a single run."""
    num_runs: int
    num_seeds: int
    longest: float
    """Where the longest of the runs ends; the curve ends with the shortest."""


@dataclass(frozen=True)
class Timing:
    """How fast a run went, over its iterations; medians, so that saving and other interruptions do not show."""

    iteration: Numbers
    milliseconds: Numbers
    """Per iteration."""
    steps_per_second: Numbers
    overall_milliseconds: float
    overall_steps_per_second: float


def load_runs(paths: Sequence[Path], columns: Sequence[str], of_some: Sequence[str] = ()) -> list[LoadedRun]:
    """The runs at or below the paths, each once, in the order of the paths; with columns that only some have.

    Raises ValueError or FileNotFoundError, which name the folder, where one cannot be read that a path names itself;
    one below a path is left out, and stderr says so.
    """
    found: dict[Path, LoadedRun] = {}
    broken: list[str] = []
    for path in paths:
        for folder in _run_folders(path):
            if folder.resolve() in found:
                continue
            try:
                found[folder.resolve()] = _load(folder, columns, of_some)
            except (OSError, ValueError) as error:
                if folder == path:
                    raise
                broken.append(str(error))
    if broken and not found:
        raise ValueError(f"no run can be read: {broken[0]}")
    for problem in broken:
        print(f"left out: {problem}", file=sys.stderr)
    if not found:
        where = ", ".join(f"'{path}'" for path in paths)
        raise ValueError(f"no runs in {where}; make one: trot train cartpole" if where else "name one run or more")
    return list(found.values())


def up_to(run: LoadedRun, seconds: float) -> LoadedRun:
    """The run as if it had ended after so many seconds: with the look at the metrics that came next."""
    seen = run.columns["seconds"]
    late = seen[seen >= seconds]
    kept = seen <= late[0] if late.size else np.ones_like(seen, dtype=np.bool_)
    return replace(run, columns={name: values[kept] for name, values in run.columns.items()})


class NoCommonStretchError(ValueError):
    """Runs of one mean where one ends before another has its first point."""


def learning_curves(runs: Sequence[LoadedRun], by: GroupKey, axis: Axis) -> dict[str, list[Curve]]:
    """Return against steps or seconds: for every task one curve per group of its runs.

    Runs write their rows at different steps and moments, so each is interpolated linearly onto a grid common to its
    group. The grid covers the range where all runs of the group have data: it begins where the last of them has its
    first finished episode, and ends where the first of them ends. Rows without a finished episode so far, or with a
    return that is not finite, are left out; every run must have a row that is not. Rows that were looked at together
    have one moment in the metrics: here it is the last row's, and the others are spread evenly before it.
    """
    curves: dict[str, list[Curve]] = {}
    for task in dict.fromkeys(run.task for run in runs):
        of_task = [run for run in runs if run.task == task]
        groups = dict.fromkeys(run.group(by) for run in of_task)
        curves[task] = [_curve(group, [run for run in of_task if run.group(by) == group], axis) for group in groups]
    return curves


def timing(run: LoadedRun) -> Timing | None:
    """Speed from the differences of the column `seconds`; None where the run is too short to tell."""
    iteration, steps, seconds = (run.columns[name] for name in TIMING_COLUMNS)
    moments = _spaced(seconds)
    if len(moments) < 2:
        return None
    elapsed = np.diff(seconds[moments])
    milliseconds = 1e3 * elapsed / np.diff(iteration[moments])
    steps_per_second = np.diff(steps[moments]) / elapsed
    num_parts = min(max(len(elapsed) // FEWEST_DIFFERENCES, 1), MOST_MEDIANS)
    parts = np.array_split(np.arange(len(elapsed)), num_parts)

    def medians(values: Numbers) -> Numbers:
        return np.array([np.median(values[part]) for part in parts])

    return Timing(
        iteration=medians(iteration[moments[1:]]),
        milliseconds=medians(milliseconds),
        steps_per_second=medians(steps_per_second),
        overall_milliseconds=float(np.median(milliseconds)),
        overall_steps_per_second=float(np.median(steps_per_second)),
    )


def _run_folders(path: Path) -> list[Path]:
    # Metrics alone make a broken run, which shall be named rather than passed over.
    if not path.is_dir() or (path / SETTINGS).exists() or (path / METRICS).exists():
        return [path]
    return [summary.folder for summary in list_runs(path)]


def _load(folder: Path, names: Sequence[str], of_some: Sequence[str]) -> LoadedRun:
    run = RunFolder.open(folder)
    rows = run.read_metrics()
    missing = [name for name in names if rows and name not in rows[0]]
    if missing:
        raise ValueError(f"'{folder / METRICS}' lacks {', '.join(missing)}")
    present = [*names, *(name for name in of_some if rows and name in rows[0])]
    columns = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in present}
    for name, least in (("iteration", 1.0), ("steps", 1.0), ("seconds", 0.0)):
        # Written as what must hold, so that a difference that is not a number fails.
        if name in columns and not np.all(np.diff(columns[name]) >= least):
            raise ValueError(f"'{folder / METRICS}' is broken: {name} must grow from row to row")
    settings = run.settings
    algo = str(settings["algo"])
    label = str(settings.get("label", algo))
    return LoadedRun(folder, str(settings["task"]), algo, label, str(settings["seed"]), columns)


def _finished(run: LoadedRun) -> NDArray[np.bool_]:
    finished: NDArray[np.bool_] = (run.columns["episodes"] > 0) & np.isfinite(run.columns["episode_return"])
    return finished


def return_line(run: LoadedRun, axis: Axis) -> tuple[Numbers, Numbers]:
    """Steps or seconds so far, and the mean return of finished episodes there; see learning_curves()."""
    finished = _finished(run)
    x = run.columns["steps"] if axis == "steps" else _moments(run)
    return x[finished], run.columns["episode_return"][finished]


def _moments(run: LoadedRun) -> Numbers:
    """Seconds of every row, those of a look spread evenly since the look before."""
    steps, seconds = run.columns["steps"], run.columns["seconds"]
    looks = _last_of_equals(seconds)
    moments: Numbers = np.interp(steps, np.append(0.0, steps[looks]), np.append(0.0, seconds[looks]))
    return moments


def _last_of_equals(seconds: Numbers) -> NDArray[np.intp]:
    # On a GPU the metrics of several iterations are looked at together, and have the moment of the last of them.
    return np.flatnonzero(np.diff(seconds, append=np.inf) > 0)


def _curve(group: str, runs: Sequence[LoadedRun], axis: Axis) -> Curve:
    lines = [return_line(run, axis) for run in runs]
    begins, ends = [x[0] for x, _ in lines], [x[-1] for x, _ in lines]
    begin, end = max(begins), min(ends)
    if begin > end:
        late, early = runs[int(np.argmax(begins))].folder, runs[int(np.argmin(ends))].folder
        raise NoCommonStretchError(
            f"'{early}' ends before '{late}' has finished an episode, so that their mean covers nothing; "
            "leave one out, or use --by name"
        )
    grid = np.linspace(begin, end, GRID_POINTS if begin < end else 1)
    if 0 < begin < end:
        # Even on a logarithmic axis no stretch of the curve is bare of points.
        grid = np.union1d(grid, np.geomspace(begin, end, GRID_POINTS)[1:-1])
    values = np.stack([np.interp(grid, x, y) for x, y in lines])
    deviation = values.std(axis=0, ddof=1) if len(runs) > 1 else None
    num_seeds = len({run.seed for run in runs})
    label = runs[0].label
    return Curve(group, label, grid, values.mean(axis=0), deviation, len(runs), num_seeds, float(max(ends)))


def _spaced(seconds: Numbers) -> NDArray[np.intp]:
    """Rows at least SHORTEST_SPAN apart."""
    kept: list[int] = []
    for row in _last_of_equals(seconds).tolist():
        if not kept or seconds[row] - seconds[kept[-1]] >= SHORTEST_SPAN:
            kept.append(row)
    return np.array(kept, dtype=np.intp)
