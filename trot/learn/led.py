"""A training that rank 0 leads and the others follow, or that one process alone runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from trot.learn.capture import fast_phases
from trot.learn.learner import Learner
from trot.learn.ranks import LostRankError
from trot.learn.run_record import RunRecord
from trot.learn.trainer import Trainer


@contextlib.contextmanager
def together(learner: Learner) -> Iterator[bool]:
    """Whether this process is to run the training; where not, it has helped another one to the end of it."""
    ranks = learner.ranks
    if ranks is None:
        yield True
    elif ranks.number == 0:
        try:
            yield True
        finally:
            ranks.dismiss()
    else:
        ranks.follow(learner, fast_phases(learner))
        yield False


def see_through(record: RunRecord, learner: Learner, iterations: int) -> None:
    """Train one run to its end. ValueError where another rank is lost, with the way to go on."""
    ranks = learner.ranks
    if ranks is None:
        Trainer([record], learner, iterations).run_to_the_end()
        return
    try:
        Trainer([record], learner, iterations, ranks.led(fast_phases(learner))).run_to_the_end()
    except LostRankError as error:
        raise ValueError(
            f"{error}. The run ends here, and what was saved of it is whole. Go on as it was started: "
            f"torchrun --nproc-per-node {ranks.size} -m {record.way_on}"
        ) from None


def place_of(learner: Learner) -> str:
    """Where it learns, in words."""
    return str(learner.device) if learner.ranks is None else f"{learner.ranks.size} ranks, {learner.device.type}"
