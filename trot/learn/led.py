"""A training that rank 0 leads and the others follow, or that one process alone runs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

from trot.envs.ranks import END, ITERATE, STATE, LostRankError, Ranks
from trot.interruption import Interruption
from trot.learn.capture import NumberedRun, fast_phases
from trot.learn.learner import Learner
from trot.learn.run_record import RunRecord
from trot.learn.torch_threads import one_torch_thread
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
        _follow(ranks, learner)
        yield False


def see_through(record: RunRecord, learner: Learner, iterations: int) -> None:
    """Train one run to its end. Where another rank is lost, says how to go on, and ends the program."""
    ranks = learner.ranks
    if ranks is None:
        Trainer([record], learner, iterations).run_to_the_end()
        return
    record.way_on = f"torchrun --nproc-per-node {ranks.size} -m {record.way_on}"
    # Where a rank is lost, torchrun ends the others, and this one is to say how to go on before that.
    with Interruption():
        try:
            Trainer([record], learner, iterations, _led(ranks, learner)).run_to_the_end()
        except LostRankError as error:
            _end_at_once(f"{error}. The run ends here, and what was saved of it is whole. Go on: {record.way_on}")


def _end_at_once(message: str) -> NoReturn:
    """End the program. PyTorch's engine may abort one that ends as usual with a peer gone; the disk has all."""
    print(f"trot: {message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(2)


def _led(ranks: Ranks, learner: Learner) -> dict[str, NumberedRun]:
    """On rank 0: the phases of an iteration, as all ranks run them. From here on the others do what it says."""
    phases = fast_phases(learner)
    first, *_ = phases

    def told(iteration: int) -> None:
        ranks.tell(ITERATE, iteration)
        phases[first](iteration)

    ranks.leading = True
    return {**phases, first: told}


def _follow(ranks: Ranks, learner: Learner) -> None:
    """On the other ranks: do what rank 0 says, until it says that it is done. Signals are for rank 0."""
    phases = fast_phases(learner)
    with Interruption(), one_torch_thread():
        try:
            command, iteration = ranks.hear()
            while command != END:
                if command == STATE:
                    learner.state_dict()
                else:
                    for phase in phases.values():
                        phase(iteration)
                command, iteration = ranks.hear()
        except LostRankError as error:
            _end_at_once(str(error))


def place_of(learner: Learner) -> str:
    """Where it learns, in words."""
    return str(learner.device) if learner.ranks is None else f"{learner.ranks.size} ranks, {learner.device.type}"
