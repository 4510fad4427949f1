"""A group of trials learns in one batch, round after round, from wherever it was left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trot.envs.trainable import require_trainable
from trot.learn.capture import NumberedRun, fast_phases
from trot.learn.learner import Learner
from trot.learn.resume import GoesOn, load_state, refuse_other_columns
from trot.learn.resume_together import stopped_at_a_bad_gradient
from trot.learn.run_record import RunRecord
from trot.learn.train_together import learner_of_seeds
from trot.learn.trainer import Trainer
from trot.runs.folder import RunFolder
from trot.tune.population import Population
from trot.tune.search import Group
from trot.tune.trials import make_trial, score


class Batch:
    """Trains a population to the end of its last round.

    Args:
        group: What its trials have in common.
        population: As far as it has come.
        root: Of the trials' run folders.
        keep: To be called when a round is over: writes the population down.
        again: The command that goes on where this one is stopped.
    """

    def __init__(
        self, group: Group, population: Population, root: Path, keep: Callable[[], None], again: str
    ) -> None:  # fmt: skip
        self.group, self.population, self.root = group, population, root
        self.keep, self.again = keep, again
        self.learner: Learner
        self.phases: Mapping[str, NumberedRun]

    def run_to_the_end(self) -> None:
        """Train all rounds that are not over. Raises KeyboardInterrupt or SystemExit after a signal, all saved."""
        group, population = self.group, self.population
        if population.round == group.rounds:
            return
        # All begin with the same weights, worlds and random numbers: their settings make the difference.
        self.learner = learner_of_seeds(group.base, [group.base.seed] * group.members)
        require_trainable(self.learner.env)
        self.initial = self.learner.of_members(self.learner.agent.saved())[0]
        self.learner.set_member_settings([group.settings(trial) for trial in population.present()])
        self.phases = fast_phases(self.learner)
        while population.round < group.rounds:
            self._train_round()
            print(population.told(population.round - 1, group.rounds), flush=True)

    def _train_round(self) -> None:
        group, population = self.group, self.population
        trials = population.present()
        paths = [make_trial(self.root, group, trial, self.learner, self.initial) for trial in trials]
        self.learner.set_member_settings([group.settings(trial) for trial in trials])
        with contextlib.ExitStack() as opened:
            runs = [opened.enter_context(RunFolder.reopen(path)) for path in paths]
            self._train(runs, (population.round + 1) * group.iterations)
            population.conclude([score(run) for run in runs])
        if population.round < group.rounds:
            population.go_on(group.ranges, group.draw(population.round))
        self.keep()

    def _train(self, runs: Sequence[RunFolder], end: int) -> None:
        """Train up to this iteration what is not there yet."""
        asked = [GoesOn.read(run, self.group.base.device, None, None, None) for run in runs]
        stopped = [stopped_at_a_bad_gradient(run) for run in runs]
        ended = [one.done >= end or failed for one, failed in zip(asked, stopped, strict=True)]
        for member, (one, failed) in enumerate(zip(asked, stopped, strict=True)):
            refuse_other_columns(self.learner, one.columns, one.run)
            if one.done:
                load_state(self.learner, one.saved["learner"], one.run, member)
            if not failed:
                one.prepare_folder()
        if all(ended):
            return
        first = min(one.done for one, over in zip(asked, ended, strict=True) if not over)
        records = [self._record(one, over, first) for one, over in zip(asked, ended, strict=True)]
        trainer = Trainer(records, self.learner, end, self.phases, self.group.rounds * self.group.iterations)
        trainer.run()
        trainer.interruption.end(f"Stopped after iteration {trainer.iteration}. Go on: {self.again}")

    def _record(self, one: GoesOn, ended: bool, first: int) -> RunRecord:
        waits_with = one.saved["learner"] if one.done > first and not ended else None
        return RunRecord(
            one.run, one.settings.schedule, one.done, one.saved["seconds"], waits_with, ended, way_on=self.again
        )
