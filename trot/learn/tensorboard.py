"""Metrics for TensorBoard, where it is installed: pip install "trot[log]"."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class TensorBoardWriter:
    """Writes a row as one event that holds every column; an event for each takes ten times as long."""

    def __init__(self, summary_writer: Any, summary: Any) -> None:
        self._summary_writer, self._summary = summary_writer, summary

    def write(self, rows: Sequence[dict[str, float | int]]) -> None:
        for row in rows:
            values = [self._summary.Value(tag=name, simple_value=row[name]) for name in row if name != "iteration"]
            self._summary_writer.file_writer.add_summary(self._summary(value=values), int(row["iteration"]))
        self._summary_writer.flush()

    def close(self) -> None:
        self._summary_writer.close()


def open_tensorboard(folder: Path, first_iteration: int | None = None) -> TensorBoardWriter | None:
    """A writer of event files in the folder; None where TensorBoard is not installed.

    A resumed run names the first iteration that it will write: what was written from there on before is hidden.
    """
    try:
        module: Any = importlib.import_module("torch.utils.tensorboard")
        messages: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
    except ImportError:
        return None
    writer = module.SummaryWriter(log_dir=str(folder), purge_step=first_iteration)
    return TensorBoardWriter(writer, messages.Summary)
