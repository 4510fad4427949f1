"""Best return and training time of finished runs, against the length of their windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trot.compare.levels import Reached, Spread, reached
from trot.compare.plan import task_title
from trot.compare.report import Cells, one_decimal, shown, spread_cells, spread_columns
from trot.view.plots.curves import LoadedRun, Numbers


@dataclass(frozen=True)
class HorizonCurve:
    """What the runs of a task came to, one entry for each horizon."""

    task: str
    horizons: NDArray[np.int64]
    num_worlds: NDArray[np.int64]
    ends: tuple[Reached, ...]

    @property
    def best_return(self) -> Numbers:
        """Means over seeds."""
        return np.array([end.best.mean for end in self.ends])

    @property
    def best_deviation(self) -> Numbers:
        """Over seeds; NaN where there is one."""
        return _deviations([end.best for end in self.ends])

    @property
    def seconds(self) -> Numbers:
        """Of training, means over seeds."""
        return np.array([end.seconds.mean for end in self.ends])

    @property
    def seconds_deviation(self) -> Numbers:
        """Over seeds; NaN where there is one."""
        return _deviations([end.seconds for end in self.ends])

    @property
    def sentence(self) -> str:
        """What it says."""
        found = f"{task_title(self.task)}: the best return is that of h = {self.horizons[np.argmax(self.best_return)]}"
        if len(self.horizons) == 1:
            return f"{found}."
        longer, slower = self.horizons[-1] / self.horizons[0], self.seconds[-1] / self.seconds[0]
        return f"{found}; windows {longer:.3g} times as long take {slower:.3g} times as much time."

    @property
    def cells(self) -> Cells:
        """A table to read, the head first."""
        head = ["h", "worlds", "seeds", "best return", "seconds"]
        return [head] + [
            [str(horizon), str(worlds), str(end.num_runs), shown(end.best, one_decimal), shown(end.seconds)]
            for horizon, worlds, end in self._rows()
        ]

    @property
    def rows(self) -> Cells:
        """A table in full precision, the head first."""
        head = ["horizon", "worlds", "seeds", *spread_columns("best_return", "seconds")]
        return [head] + [
            [str(horizon), str(worlds), str(end.num_runs), *spread_cells(end.best, end.seconds)]
            for horizon, worlds, end in self._rows()
        ]

    def _rows(self) -> Iterator[tuple[int, int, Reached]]:
        return zip(self.horizons.tolist(), self.num_worlds.tolist(), self.ends, strict=True)


def horizon_curve(task: str, runs: Mapping[int, Sequence[LoadedRun]], samples: int) -> HorizonCurve:
    """From finished runs by their horizon, and the samples of an iteration."""
    horizons = np.array(sorted(runs))
    ends = tuple(reached(runs[horizon]) for horizon in horizons.tolist())
    return HorizonCurve(task, horizons, samples // horizons, ends)


def _deviations(spreads: Sequence[Spread]) -> Numbers:
    return np.array([np.nan if spread.deviation is None else spread.deviation for spread in spreads])
