"""Several runs of one call: the seeds of trot.train(..., seeds=range(4))."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trot.api.trained_run import TrainedRun, plotted

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TrainedRuns(tuple[TrainedRun, ...]):
    """Runs in the order of their seeds; each of them is a TrainedRun."""

    __slots__ = ()

    def __repr__(self) -> str:
        best = [run.best_return for run in self]
        known = [value for value in best if value is not None]
        told = f": best return {np.mean(known):.1f}, from {min(known):.1f} to {max(known):.1f}" if known else ""
        return f"TrainedRuns({len(self)} runs{told})"

    @property
    def returns(self) -> NDArray[np.float64]:
        """(runs, iterations), as far as the shortest of them went."""
        every = [run.returns for run in self]
        shortest = min(len(one) for one in every)
        return np.stack([one[:shortest] for one in every])

    def plot(self) -> Figure:
        """Mean and standard deviation of their learning curves."""
        return plotted([run.path for run in self])
