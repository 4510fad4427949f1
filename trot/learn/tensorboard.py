"""Metrics for TensorBoard, where it is installed: pip install "trot[log]"."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Writer:
    """Writes every column as a curve over the column `iteration`."""

    def __init__(self, summary_writer: Any) -> None:
        self._summary_writer = summary_writer

    def write(self, rows: Sequence[dict[str, float | int]]) -> None:
        for row in rows:
            for name, value in row.items():
                if name != "iteration":
                    self._summary_writer.add_scalar(name, value, int(row["iteration"]))
        self._summary_writer.flush()

    def close(self) -> None:
        self._summary_writer.close()


def open_writer(folder: Path, first_iteration: int | None = None) -> Writer | None:
    """A writer of event files in the folder; None where TensorBoard is not installed.

    A resumed run names the first iteration that it will write: what was written from there on before is hidden.
    """
    try:
        module: Any = importlib.import_module("torch.utils.tensorboard")
    except ImportError:
        return None
    return Writer(module.SummaryWriter(log_dir=str(folder), purge_step=first_iteration))
