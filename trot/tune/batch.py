"""A group of trials learns in one batch, round after round, from wherever it was left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from trot.envs.trainable import require_trainable
from trot.learn.capture import NumberedRun, fast_phases
from trot.learn.learner import Learner
from trot.learn.rounds import score, train_up_to
from trot.learn.train_together import learner_of_seeds
from trot.runs.folder import RunFolder
from trot.tune.population import Population
from trot.tune.search import Group
from trot.tune.trials import make_trial


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
            end = (population.round + 1) * group.iterations
            train_up_to(end, runs, self.learner, self.again, group.base.device, self.phases)
            population.conclude([score(run) for run in runs])
        if population.round < group.rounds:
            population.go_on(group.ranges, group.draw(population.round))
        self.keep()
