"""Where a run's metrics go beside metrics.csv: TensorBoard where it is installed, W&B where the run asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trot.learn.tensorboard import open_tensorboard
from trot.learn.weights_and_biases import open_wandb
from trot.runs.folder import RunFolder


class MetricWriter(Protocol):
    """Takes rows of metrics: every column is a curve over the column `iteration`."""

    def write(self, rows: Sequence[dict[str, float | int]]) -> None:
        """Rows that come after those of the last time."""

    def close(self) -> None:
        """Nothing more comes."""


def open_writers(run: RunFolder, first_iteration: int) -> list[MetricWriter]:
    """Those of a run that will write rows from this iteration on, be it begun or resumed."""
    found = (open_tensorboard(run.path, first_iteration), open_wandb(run))
    return [writer for writer in found if writer is not None]
