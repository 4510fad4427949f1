"""The training loop around an algorithm: metrics, progress, checkpoints, signals, and a stop where gradients fail."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trot.interruption import Interruption
from trot.learn.capture import fast_phases
from trot.learn.learner import Learner
from trot.learn.replay_buffer import ReplayBuffer
from trot.learn.tensorboard import open_writer
from trot.learn.torch_threads import one_torch_thread
from trot.progress import Progress
from trot.runs.folder import RunFolder
from trot.sim.errors import GradientError

LOOK_EVERY = 16
"""Iterations between two looks at the metrics on a GPU: each look waits for it."""

WRITE_EVERY = 0.5
"""Seconds between two writes of the metrics."""

KEPT = 5
"""Checkpoints of a training that are kept, beside the first."""

SHARE_FOR_SAVING = 0.05
"""Of the time, at most, for checkpoints of learners that remember millions of steps."""

Row = dict[str, float | int]


@dataclass(frozen=True)
class Schedule:
    """When to save and when to stop."""

    save_every: int = 100
    """Iterations between checkpoints to resume from; more where a memory of past steps makes them large."""
    keep_every: int | None = None
    """Iterations between checkpoints that are kept; a fifth of all unless given: six of them, with the first."""
    stop_at: float | None = None
    """End the run when the mean return of finished episodes reaches this."""
    minutes: float | None = None
    """End the run after so many minutes of training, those before a resume included."""

    def __post_init__(self) -> None:
        for name in ("save_every", "keep_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.stop_at is not None and math.isnan(self.stop_at):
            raise ValueError("stop_at must be a number, not nan: no return would ever reach it")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ValueError(f"minutes must be above 0 and finite, not {self.minutes:g}")

    def out_of_time(self, seconds: float) -> bool:
        """Whether a run that has trained for so long is at its end."""
        return self.minutes is not None and seconds >= 60 * self.minutes


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
        self.keep_every = schedule.keep_every or max(1, iterations // KEPT)
        self.remembers = any(isinstance(part, ReplayBuffer) for part in learner.modules())
        self.saved_at, self.save_took = time.monotonic(), 0.0
        self.began = time.monotonic() - seconds
        self.written = time.monotonic()
        self.interruption = Interruption()

    def run_to_the_end(self) -> None:
        """Train. Raises KeyboardInterrupt after a Ctrl-C and SystemExit after a SIGTERM, both saved.

        GradientError says that learning failed, ValueError that the disk takes no more.
        """
        with writing_into(self.run):
            self.writer = open_writer(self.run.path, self.iteration + 1)
        with self.interruption, one_torch_thread(), Progress(self.total) as self.progress:
            self.progress.update(self.iteration, {})
            while not self._iterate():
                pass
        if self.writer is not None:
            with writing_into(self.run):
                self.writer.close()
        self.interruption.end(f"Stopped after iteration {self.iteration}. Go on: trot resume {self.run.path}")
        print(self._summary(), flush=True)

    def _iterate(self) -> bool:
        """One iteration and what is due after it; True at the end."""
        for phase in self.phases.values():
            phase(self.iteration)
        self.iteration += 1
        self.unseen.append((self.learner.steps.clone(), self.learner.metrics.clone()))
        keep, last = self.iteration % self.keep_every == 0, self.iteration >= self.total
        due = keep or (self.iteration % self.schedule.save_every == 0 and self._may_save())
        # Asked once: a signal between two of the lines below would else end the run without a checkpoint.
        interrupted = bool(self.interruption)
        late = self.schedule.out_of_time(time.monotonic() - self.began)
        if due or last or interrupted or late or len(self.unseen) >= self.look_every:
            last = self._look() or last
        if due or last or interrupted or time.monotonic() - self.written > WRITE_EVERY:
            self._write()
        if keep:
            self._keep(finished=last)
        if (due and self._may_save()) or last or interrupted:
            self._save(finished=last)
        return last or interrupted

    def _may_save(self) -> bool:
        """Whether a checkpoint would not slow the training down: a memory of past steps takes seconds to write."""
        waited = time.monotonic() - self.saved_at
        return not self.remembers or waited * SHARE_FOR_SAVING >= self.save_took

    def _look(self) -> bool:
        """Fetch the metrics of the iterations since the last look; True where the run is at its goal or out of time."""
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
        reached = goal is not None and enough and self.last_row["episode_return"] >= goal
        # By the number that is written: whoever reads the metrics comes to the same answer.
        return reached or self.schedule.out_of_time(self.last_row["seconds"])

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
        began = time.monotonic()
        with writing_into(self.run):
            self.run.save_checkpoint("last", self._to_go_on_from(finished))
        self.saved_at = time.monotonic()
        self.save_took = self.saved_at - began

    def _keep(self, finished: bool) -> None:
        """A checkpoint that stays: to look at, and to go on from where that does not take a memory of past steps."""
        with writing_into(self.run):
            content = {"agent": self.learner.agent.saved()} if self.remembers else self._to_go_on_from(finished)
            self.run.save_checkpoint(f"iteration_{self.iteration:06d}", content)

    def _to_go_on_from(self, finished: bool) -> dict[str, Any]:
        return {
            "agent": self.learner.agent.saved(),
            "learner": self.learner.state_dict(),
            "iteration": self.iteration,
            "seconds": time.monotonic() - self.began,
            "finished": finished,
            "columns": list(self.last_row),
            "metrics_checksum": self.run.metrics_checksum(),
        }

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
def writing_into(run: RunFolder) -> Iterator[None]:
    """What the disk refuses becomes one line with the way to go on: the last checkpoint is whole."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"cannot write into '{run.path}': {error.strerror or error}. What was saved is whole; "
            f"when there is room and permission, go on: trot resume {run.path}"
        ) from None
