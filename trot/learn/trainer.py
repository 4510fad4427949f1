"""The training loop around an algorithm: metrics, progress, checkpoints, signals, and a stop where gradients fail."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trot.interruption import Interruption
from trot.learn.bad_window import save_bad_window
from trot.learn.capture import NumberedRun, fast_phases
from trot.learn.learner import Learner
from trot.learn.replay_buffer import ReplayBuffer
from trot.learn.run_record import RunRecord, writing_into
from trot.learn.torch_threads import one_torch_thread
from trot.learn.training_words import shown, summary
from trot.progress import Progress, announce
from trot.sim.errors import GradientError

LOOK_EVERY = 16
"""Iterations between two looks at the metrics on a GPU: each look waits for it."""

WRITE_EVERY = 0.5
"""Seconds between two writes of the metrics."""

KEPT = 5
"""Checkpoints of a training that are kept, beside the first."""

SHARE_FOR_SAVING = 0.05
"""Of the time, at most, for checkpoints of learners that remember millions of steps."""


class Trainer:
    """Runs iterations until the last one, and leaves run folders that can be resumed from at any moment.

    There is a record for the learner's run, or for each of its members.

    Args:
        records: Of runs that are saved and end together.
        learner: Where the first of them stands.
        iterations: Of the whole training, or up to where it is looked at before it goes on.
        phases: Of the learner, where they are there already; to capture them takes seconds on a GPU.
        shown_total: Iterations that the line of progress counts up to, where there are more to come.
    """

    def __init__(
        self,
        records: Sequence[RunRecord],
        learner: Learner,
        iterations: int,
        phases: Mapping[str, NumberedRun] | None = None,
        shown_total: int | None = None,
    ) -> None:
        self.records, self.learner = records, learner
        now = time.monotonic()
        for record in records:
            record.start_clock(now)
        # All of them save at the same time.
        schedule = records[0].schedule
        self.save_every = schedule.save_every
        self.iteration, self.total = min(record.iteration for record in records if not record.ended), iterations
        self.shown_total = shown_total or iterations
        if phases is None and learner.device.type == "cuda":
            announce("Capturing an iteration in CUDA graphs ...")
        self.phases = fast_phases(learner) if phases is None else phases
        self.columns = learner.all_columns()
        self.look_every = LOOK_EVERY if learner.device.type == "cuda" else 1
        self.unseen: list[tuple[Tensor, Tensor]] = []
        """Steps and metrics of iterations that nobody has looked at yet."""
        self._read_best()
        self.keep_every = schedule.keep_every or max(1, iterations // KEPT)
        self.remembers = any(isinstance(part, ReplayBuffer) for part in learner.modules())
        self.saved_at, self.save_took = time.monotonic(), 0.0
        self.written = time.monotonic()
        self.interruption = Interruption()

    @property
    def live(self) -> list[RunRecord]:
        return [record for record in self.records if record.live]

    def run_to_the_end(self) -> None:
        """Train. Raises KeyboardInterrupt after a Ctrl-C and SystemExit after a SIGTERM, both saved.

        GradientError says that learning failed, ValueError that the disk takes no more.
        """
        self.run()
        failures = [record for record in self.records if record.failure is not None]
        if len(failures) == len(self.records):
            raise GradientError(_failures(failures))
        self.interruption.end(f"Stopped after iteration {self.iteration}. Go on: {self.records[0].way_on}")
        print(summary(self.records, self.iteration), flush=True)
        if failures:
            raise GradientError(f"{len(failures)} of {len(self.records)} stopped. {_failures(failures)}")

    def run(self) -> None:
        """Train without a word at the end: records tell what failed, and `interruption` whether a signal ended it."""
        with contextlib.ExitStack() as opened:
            for record in self.records:
                if not record.ended:
                    record.open()
                # Also after an error: what writes curves has threads of its own, which would go on.
                opened.callback(record.close)
            with self.interruption, one_torch_thread(), Progress(self.shown_total) as self.progress:
                self.progress.update(self.iteration, {})
                while not self._iterate():
                    pass

    def _iterate(self) -> bool:
        """One iteration and what is due after it; True at the end."""
        self._let_join()
        for phase in self.phases.values():
            phase(self.iteration)
        self.iteration += 1
        self.unseen.append((self.learner.steps.clone(), self.learner.metrics.clone()))
        keep, last = self.iteration % self.keep_every == 0, self.iteration >= self.total
        due = keep or (self.iteration % self.save_every == 0 and self._may_save())
        # Asked once: a signal between two of the lines below would else end the run without a checkpoint.
        interrupted = bool(self.interruption)
        late = any(record.out_of_time for record in self.live)
        if due or last or interrupted or late or len(self.unseen) >= self.look_every:
            self._look()
        ending = [record for record in self.live if last or record.at_goal]
        if due or ending or interrupted or time.monotonic() - self.written > WRITE_EVERY:
            self._write()
        if keep:
            self._keep(ending)
        if (due and self._may_save()) or interrupted:
            self._save(self.live, ending)
        elif ending:
            self._save(ending, ending)
        for record in ending:
            record.ended = True
        return interrupted or all(record.ended for record in self.records)

    def _let_join(self) -> None:
        """Members that were saved later than others go on when those have caught up with them."""
        joining = [
            (member, record)
            for member, record in enumerate(self.records)
            if record.saved is not None and record.iteration == self.iteration
        ]
        if not joining:
            return
        if self.unseen:
            self._look()
        for member, record in joining:
            assert record.saved is not None
            self.learner.load_member(member, record.saved)
            record.saved = None
        self._read_best()

    def _read_best(self) -> None:
        """What the checkpoint `best` holds of runs that have nothing new since they began or joined."""
        for record, best in zip(self.records, self.learner.best.mean_return.view(-1).tolist(), strict=True):
            if not record.last_row:
                record.best_saved = best

    def _may_save(self) -> bool:
        """Whether a checkpoint would not slow the training down: a memory of past steps takes seconds to write."""
        waited = time.monotonic() - self.saved_at
        return not self.remembers or waited * SHARE_FOR_SAVING >= self.save_took

    def _look(self) -> None:
        """Fetch the metrics of the iterations since the last look; tells runs that are at their goal or out of time."""
        count = len(self.unseen)
        steps, metrics = (torch.stack(kept) for kept in zip(*self.unseen, strict=True))
        taken, values = steps.view(count, -1).tolist(), metrics.view(count, len(self.records), -1).tolist()
        concluded = self.learner.iteration.view(-1).tolist()
        first = self.iteration - count + 1
        self.unseen.clear()
        now = time.monotonic()
        for member, record in enumerate(self.records):
            if not record.live:
                continue
            seconds = round(record.seconds(now), 3)
            for index in range(count):
                numbers = dict(zip(self.columns, values[index][member], strict=True))
                record.add(
                    {"iteration": first + index, "steps": taken[index][member], "seconds": seconds, **numbers}
                )  # fmt: skip
            if concluded[member] != self.iteration:
                counted = f"{self.iteration} iterations, but {concluded[member]} calls of conclude()"
                raise ValueError(f"{counted}: the last phase of {type(self.learner).__name__} is to call it once")
            record.at_goal = self._at_goal(record)
        self._end_failed()
        if self.live:
            self.progress.update(self.iteration, shown(self.records, self.learner), self._warning())

    def _at_goal(self, record: RunRecord) -> bool:
        row, goal = record.last_row, record.schedule.stop_at
        enough = row["episodes"] >= self.learner.num_worlds
        reached = goal is not None and enough and row["episode_return"] >= goal
        # By the number that is written: whoever reads the metrics comes to the same answer.
        return reached or record.schedule.out_of_time(row["seconds"])

    def _end_failed(self) -> None:
        """End runs whose learning failed, and keep the window that it failed in."""
        failed = [(member, record) for member, record in enumerate(self.records) if record.live]
        failed = [(member, record) for member, record in failed if record.last_row["stopped"]]
        if not failed:
            return
        states = self.learner.member_states()
        for member, record in failed:
            record.write()
            what = f"{self.iteration} or shortly before; nothing was learned from it"
            with writing_into(record.run, record.way_on):
                path = save_bad_window(record.run, self.learner.env, states[member])
            record.failure = (
                f"learning met a number that is not finite in iteration {what}. Checkpoints from before are kept"
                if path is None
                else f"the policy's gradient became non-finite in iteration {what}. The window is kept in {path}; "
                f"run it again: trot replay-fault {path}"
            )
            record.ended = True

    def _write(self) -> None:
        # Before the checkpoint: what a checkpoint has seen must be in the metrics, or a resumed run would miss it.
        for record in self.live:
            record.write()
        self.written = time.monotonic()
        improved = [(member, record) for member, record in enumerate(self.records) if record.live and record.improved]
        if improved:
            agents = self.learner.of_members(self.learner.best.agent.saved())
            for member, record in improved:
                record.save_best(agents[member])

    def _save(self, records: Sequence[RunRecord], ending: Sequence[RunRecord]) -> None:
        began = time.monotonic()
        for record, state in zip(self.records, self.learner.member_states(), strict=True):
            if record in records:
                record.save("last", record.to_go_on_from(state, began, finished=record in ending))
        self.saved_at = time.monotonic()
        self.save_took = self.saved_at - began

    def _keep(self, ending: Sequence[RunRecord]) -> None:
        """A checkpoint that stays: to look at, and to go on from where that does not take a memory of past steps."""
        name, learner, now = f"iteration_{self.iteration:06d}", self.learner, time.monotonic()
        parts = learner.of_members(learner.agent.saved()) if self.remembers else learner.member_states()
        for record, part in zip(self.records, parts, strict=True):
            if record.live:
                finished = record in ending
                record.save(name, {"agent": part} if self.remembers else record.to_go_on_from(part, now, finished))

    def _warning(self) -> str | None:
        stopped = sum(record.failure is not None for record in self.records)
        if stopped:
            return f"{stopped} of {len(self.records)} stopped"
        faults = sum(record.last_row["faults"] for record in self.live)
        if faults:
            return f"{faults:.0f} worlds blew up so far"
        warnings = (self.learner.warning(record.last_row) for record in self.live)
        return next((warning for warning in warnings if warning is not None), None)


def _failures(records: Sequence[RunRecord]) -> str:
    if len(records) == 1:
        return str(records[0].failure)
    return "; ".join(f"{record.run.path}: {record.failure}" for record in records)
