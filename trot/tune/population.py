"""Trials over rounds: after each, the worse half ends, and new ones take its places, each from one of the better half.

A trial is settings and what was learned by them. One that restarts takes all that its parent has, weights, worlds and
random numbers, and goes on with settings near the parent's.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from trot.progress import short
from trot.tune.space import Range, first_draws, stepped


@dataclass(frozen=True)
class Trial:
    """Settings, and where it begins."""

    number: int
    values: dict[str, float]
    """Of the settings that are searched for."""
    first_round: int
    """That it takes part in, counted from 0."""
    parent: int | None
    """The trial that it takes over from; None where it begins anew."""

    @property
    def name(self) -> str:
        return f"trial-{self.number:02d}"


@dataclass
class Population:
    """All trials, and who took part in which round with what result."""

    trials: list[Trial]
    places: list[list[int]]
    """By round: the numbers of the trials, in the order in which they lie in the batch."""
    scores: list[list[float | None]] = field(default_factory=list)
    """By round that is over, in the same order; None where there is none, because no episode or learning failed."""

    @classmethod
    def begin(
        cls, ranges: Sequence[Range], members: int, draw: random.Random, present: Mapping[str, float]
    ) -> Population:
        """So many draws; the first one is the present settings where all of them lie within the ranges."""
        values = first_draws(ranges, members, draw)
        if all(present[one.name] in one for one in ranges):
            values[0] = {one.name: present[one.name] for one in ranges}
        trials = [Trial(number, own, 0, None) for number, own in enumerate(values)]
        return cls(trials, [list(range(members))])

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> Population:
        """From what saved() gave."""
        return cls([Trial(**trial) for trial in saved["trials"]], saved["places"], saved["scores"])

    def saved(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def round(self) -> int:
        """That is under way, counted from 0; the number of rounds when all are over."""
        return len(self.scores)

    def present(self) -> list[Trial]:
        """Those of the round under way, in their places."""
        return [self.trials[number] for number in self.places[self.round]]

    def ranked(self, round_: int) -> list[tuple[Trial, float]]:
        """Those with a score in a round, the best first."""
        scored = [
            (self.trials[number], score)
            for number, score in zip(self.places[round_], self.scores[round_], strict=True)
            if score is not None
        ]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0].number))

    def conclude(self, scores: Sequence[float | None]) -> None:
        """End the round under way. ValueError where nobody has a score."""
        if all(score is None for score in scores):
            raise ValueError(
                f"no trial has a return after round {self.round + 1}: learning failed in all of them, or no episode "
                "ended. Longer rounds (--iterations) or other ranges (--over) may help"
            )
        self.scores.append(list(scores))

    def go_on(self, ranges: Sequence[Range], draw: random.Random) -> None:
        """Fill the places of the next round: half stay, and the others' places go to new trials."""
        places, ranked = list(self.places[-1]), [trial for trial, _ in self.ranked(self.round - 1)]
        stay = ranked[: math.ceil(len(places) / 2)]
        free = [place for place, number in enumerate(places) if number not in [trial.number for trial in stay]]
        for index, place in enumerate(free):
            # Each of those that stay has a child, before one has two.
            parent = stay[index % len(stay)]
            values = stepped(ranges, parent.values, draw)
            self.trials.append(Trial(len(self.trials), values, self.round, parent.number))
            places[place] = self.trials[-1].number
        self.places.append(places)

    def last_score(self, trial: Trial) -> tuple[int, float | None]:
        """The last round that is over in which it took part, and its score there."""
        for round_ in reversed(range(self.round)):
            if trial.number in self.places[round_]:
                return round_, self.scores[round_][self.places[round_].index(trial.number)]
        return -1, None

    def told(self, round_: int, of: int) -> str:
        """How a round went, in a line."""
        ranked = self.ranked(round_)
        trial, score = ranked[0]
        values = ", ".join(f"{name} {value:g}" for name, value in trial.values.items())
        lost = len(self.places[round_]) - len(ranked)
        rest = f", {lost} without a return" if lost else ""
        middle = median(score for _, score in ranked)
        return f"Round {round_ + 1} of {of}: best {short(score)} ({trial.name}: {values}), median {short(middle)}{rest}"
