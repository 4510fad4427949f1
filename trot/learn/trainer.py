"""The training loop around an algorithm: metrics, progress, checkpoints, signals, and a stop where gradients fail."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

import torch
from torch import Tensor

from trot.learn.capture import fast_phases
from trot.learn.learner import Learner
from trot.learn.tensorboard import open_writer
from trot.learn.torch_threads import one_torch_thread
from trot.progress import Progress
from trot.runs.folder import RunFolder
from trot.sim.errors import GradientError

LOOK_EVERY = 16
"""Iterations between two looks at the metrics on a GPU: each look waits for it."""

WRITE_EVERY = 0.5
"""Seconds between two writes of the metrics."""

Row = dict[str, float | int]


@dataclass(frozen=True)
class Schedule:
    """When to save and when to stop."""

    save_every: int = 100
    """Iterations between checkpoints to resume from."""
    keep_every: int = 400
    """Iterations between checkpoints that are kept."""
    stop_at: float | None = None
    """End the run when the mean return of finished episodes reaches this."""

    def __post_init__(self) -> None:
        for name in ("save_every", "keep_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.stop_at is not None and math.isnan(self.stop_at):
            raise ValueError("stop_at must be a number, not nan: no return would ever reach it")


class Trainer:
    """Runs iterations until the last one, and leaves a run folder that can be resumed from at any moment."""

    def __init__(
        self, run: RunFolder, learner: Learner, iterations: int, schedule: Schedule, seconds: float = 0.0
    ) -> None:
        self.run, self.learner, self.schedule = run, learner, schedule
        self.iteration, self.total = int(learner.iteration), iterations
        self.phases = fast_phases(learner)
        self.columns = learner.all_columns()
        self.look_every = LOOK_EVERY if learner.device.type == "cuda" else 1
        self.unseen: list[tuple[Tensor, Tensor]] = []
        """Steps and metrics of iterations that nobody has looked at yet."""
        self.unwritten: list[Row] = []
        self.last_row: Row = {}
        self.best_saved = float(learner.best.mean_return)
        self.began = time.monotonic() - seconds
        self.written = time.monotonic()
        self.interrupted_by: int | None = None
        """The signal that asked for the end."""

    def run_to_the_end(self) -> None:
        """Train. Raises KeyboardInterrupt after a Ctrl-C and SystemExit after a SIGTERM, both saved.

        GradientError says that learning failed, ValueError that the disk takes no more.
        """
        with writing_into(self.run):
            self.writer = open_writer(self.run.path, self.iteration + 1)
        with self._noticing_signals(), one_torch_thread(), Progress(self.total) as self.progress:
            self.progress.update(self.iteration, {})
            while not self._iterate():
                pass
        if self.writer is not None:
            with writing_into(self.run):
                self.writer.close()
        if self.interrupted_by is not None:
            message = f"Stopped after iteration {self.iteration}. Go on: trot resume {self.run.path}"
            if self.interrupted_by == signal.SIGINT:
                raise KeyboardInterrupt(message)
            print(message, flush=True)
            # As a shell reports a program that this signal ended.
            raise SystemExit(128 + self.interrupted_by)
        print(self._summary(), flush=True)

    def _iterate(self) -> bool:
        """One iteration and what is due after it; True at the end."""
        for phase in self.phases.values():
            phase()
        self.iteration += 1
        self.unseen.append((self.learner.steps.clone(), self.learner.metrics.clone()))
        due = self.iteration % self.schedule.save_every == 0 or self.iteration % self.schedule.keep_every == 0
        last = self.iteration >= self.total
        # Asked once: a signal between two of the lines below would else end the run without a checkpoint.
        interrupted = self.interrupted_by is not None
        if due or last or interrupted or len(self.unseen) >= self.look_every:
            last = self._look() or last
        if due or last or interrupted or time.monotonic() - self.written > WRITE_EVERY:
            self._write()
        if due or last or interrupted:
            self._save(finished=last)
        return last or interrupted

    def _look(self) -> bool:
        """Fetch the metrics of the iterations since the last look; True where the run has reached its goal."""
        steps, metrics = (torch.stack(kept).tolist() for kept in zip(*self.unseen, strict=True))
        first = self.iteration - len(steps) + 1
        seconds = time.monotonic() - self.began
        for iteration, taken, values in zip(range(first, self.iteration + 1), steps, metrics, strict=True):
            self.last_row = {
                "iteration": iteration,
                "steps": taken,
                "seconds": round(seconds, 3),
                **dict(zip(self.columns, values, strict=True)),
            }
            self.unwritten.append(self.last_row)
        self.unseen.clear()
        if int(self.learner.iteration) != self.iteration:
            counted = f"{self.iteration} iterations, but {int(self.learner.iteration)} calls of conclude()"
            raise ValueError(f"{counted}: the last phase of {type(self.learner).__name__} is to call it once")
        if self.last_row["stopped"]:
            self._write()
            raise GradientError(self._failure())
        self.progress.update(self.iteration, self._shown(seconds), self._warning())
        goal = self.schedule.stop_at
        enough = self.last_row["episodes"] >= self.learner.env.num_worlds
        return goal is not None and enough and self.last_row["episode_return"] >= goal

    def _write(self) -> None:
        # Before the checkpoint: what a checkpoint has seen must be in the metrics, or a resumed run would miss it.
        with writing_into(self.run):
            self.run.append_metrics(self.unwritten)
            if self.writer is not None:
                self.writer.write(self.unwritten)
        self.unwritten = []
        self.written = time.monotonic()
        best = float(self.last_row.get("best_return", -torch.inf))
        if best > self.best_saved:
            with writing_into(self.run):
                self.run.save_checkpoint("best", {"agent": self.learner.best.agent.saved()})
            self.best_saved = best

    def _save(self, finished: bool) -> None:
        with writing_into(self.run):
            content = {
                "agent": self.learner.agent.saved(),
                "learner": self.learner.state_dict(),
                "iteration": self.iteration,
                "seconds": time.monotonic() - self.began,
                "finished": finished,
                "columns": list(self.last_row),
                "metrics_checksum": self.run.metrics_checksum(),
            }
            if self.iteration % self.schedule.keep_every == 0:
                self.run.save_checkpoint(f"iteration_{self.iteration:06d}", content)
            self.run.save_checkpoint("last", content)

    def _shown(self, seconds: float) -> dict[str, float | str]:
        row = self.last_row
        return {
            "return": row["episode_return"] if row["episodes"] else "-",
            "length": row["episode_length"] if row["episodes"] else "-",
            **{label: row[column] for label, column in self.learner.shown.items()},
            "steps/s": row["steps"] / max(seconds, 1e-9),
        }

    def _warning(self) -> str | None:
        faults = self.last_row["faults"]
        return f"{faults:.0f} worlds blew up so far" if faults else self.learner.warning(self.last_row)

    def _failure(self) -> str:
        what = f"{self.iteration} or shortly before; nothing was learned from it"
        kept = self.learner.bad_window
        if kept is None or not bool(kept.kept):
            return f"learning met a number that is not finite in iteration {what}. Checkpoints from before are kept"
        with writing_into(self.run):
            path = kept.save(self.run, self.learner.env, self.learner.state_dict())
        return (
            f"the policy's gradient became non-finite in iteration {what}. The window is kept in {path}; run it again: "
            f"trot replay-fault {path}"
        )

    def _summary(self) -> str:
        row, seconds = self.last_row, time.monotonic() - self.began
        best = f"{row['best_return']:.1f}" if row["episodes"] else "none, no episode finished"
        return (
            f"{self.iteration} iterations, {row['steps']:,} steps in {seconds:.1f} s. Return "
            f"{row['episode_return']:.1f}, best {best}. Run folder: {self.run.path}"
        )

    @contextlib.contextmanager
    def _noticing_signals(self) -> Iterator[None]:
        """A first Ctrl-C or a SIGTERM ends the run after the iteration at hand; one more Ctrl-C ends the program."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            # Only the second Ctrl-C is a person's wish: whoever sends SIGTERM may send it to a whole group, twice.
            if self.interrupted_by is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.interrupted_by = self.interrupted_by or number

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)


@contextlib.contextmanager
def writing_into(run: RunFolder) -> Iterator[None]:
    """What the disk refuses becomes one line with the way to go on: the last checkpoint is whole."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write into '{run.path}': {error.strerror or error}. What was saved is whole; "
            f"when there is room and permission, go on: trot resume {run.path}"
        ) from None
