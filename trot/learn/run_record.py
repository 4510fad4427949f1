"""What training writes into one run folder: rows of metrics, the best policy, checkpoints to go on from."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from trot.learn.gradient_health import WORLD_COLUMNS
from trot.learn.metric_writers import MetricWriter, open_writers
from trot.learn.saturation import SATURATION_COLUMNS
from trot.learn.schedule import Schedule
from trot.runs.folder import RunFolder

Row = dict[str, float | int]

LATER_COLUMNS = (*SATURATION_COLUMNS, *WORLD_COLUMNS)
"""Earlier versions did not write them. What such a version began goes on with the columns it has."""


class RunRecord:
    """A run while it is trained, alone or with others in one batch.

    Args:
        run: Its folder, locked.
        schedule: When it is saved and when it stops.
        iteration: That it goes on from.
        seconds: Of training before that.
        saved: The state to go on from, where the others of its batch begin earlier and it waits for them.
        ended: Whether nothing more is written: it is in the batch only so that the others' bits stay the same.
        way_on: The command that goes on with it, after a stop.
    """

    def __init__(
        self,
        run: RunFolder,
        schedule: Schedule,
        iteration: int = 0,
        seconds: float = 0.0,
        saved: Mapping[str, Any] | None = None,
        ended: bool = False,
        way_on: str | None = None,
    ) -> None:
        self.run, self.schedule = run, schedule
        self.iteration, self.saved, self.ended = iteration, saved, ended
        self.way_on = way_on or resume_command(run)
        self.seconds_before = seconds
        self.start_clock(time.monotonic())
        self.last_row: Row = {}
        self.unwritten: list[Row] = []
        self.best_saved = -math.inf
        self.at_goal = False
        self.failure: str | None = None
        """Why it stopped, where learning failed."""
        self._writers: list[MetricWriter] = []
        self._unknown: set[str] = set()

    @property
    def live(self) -> bool:
        """Whether what is learned now is its."""
        return not self.ended and self.saved is None

    def open(self) -> None:
        """Make ready to write the rows behind the iteration that it goes on from."""
        with writing_into(self.run, self.way_on):
            header = self.run.metric_columns()
            self._unknown = set(LATER_COLUMNS).difference(header) if header else set()
            self._writers = open_writers(self.run, self.iteration + 1)

    def close(self) -> None:
        with writing_into(self.run, self.way_on):
            for writer in self._writers:
                writer.close()

    @property
    def out_of_time(self) -> bool:
        return self.schedule.out_of_time(self.seconds())

    def start_clock(self, now: float) -> None:
        """Runs of one batch begin at the same moment, and look at the clock at the same moments."""
        self.began = now - self.seconds_before

    def seconds(self, now: float | None = None) -> float:
        """Of training so far, or up to a moment of time.monotonic()."""
        return (time.monotonic() if now is None else now) - self.began

    def add(self, row: Row) -> None:
        self.last_row = {name: value for name, value in row.items() if name not in self._unknown}
        self.unwritten.append(self.last_row)

    def write(self) -> None:
        """What was added since the last time."""
        with writing_into(self.run, self.way_on):
            self.run.append_metrics(self.unwritten)
            for writer in self._writers:
                writer.write(self.unwritten)
        self.unwritten = []

    @property
    def improved(self) -> bool:
        """Whether there is a better policy than the one that is kept as the best."""
        return self.last_row.get("best_return", -math.inf) > self.best_saved

    def save_best(self, agent: dict[str, Any]) -> None:
        self.save("best", {"agent": agent})
        self.best_saved = float(self.last_row["best_return"])

    def save(self, name: str, content: dict[str, Any]) -> None:
        with writing_into(self.run, self.way_on):
            self.run.save_checkpoint(name, content)

    def to_go_on_from(self, state: dict[str, Any], now: float, finished: bool) -> dict[str, Any]:
        """What a checkpoint holds of a learner in this state, at this moment of time.monotonic()."""
        return {
            "agent": {name.removeprefix("agent."): part for name, part in state.items() if name.startswith("agent.")},
            "learner": state,
            "iteration": int(state["iteration"]),
            "seconds": self.seconds(now),
            "finished": finished,
            "columns": list(self.last_row),
            "metrics_checksum": self.run.metrics_checksum(),
        }


def resume_command(*runs: RunFolder) -> str:
    """What goes on with these runs."""
    return f"trot resume {' '.join(str(run.path) for run in runs)}"


@contextlib.contextmanager
def writing_into(run: RunFolder, way_on: str | None = None) -> Iterator[None]:
    """What the disk refuses becomes one line with the way to go on: the last checkpoint is whole."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write into '{run.path}': {error.strerror or error}. What was saved is whole; "
            f"when there is room and permission, go on: {way_on or resume_command(run)}"
        ) from None
