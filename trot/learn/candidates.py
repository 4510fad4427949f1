"""How many candidates a training begins with, unless it is told, and whether so many can hold a contest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trot.envs.ranks import launched
from trot.envs.registry import make_task
from trot.learn.algorithms import find_algorithm

if TYPE_CHECKING:
    from trot.learn.train import TrainSettings


def with_candidates(settings: TrainSettings[Any], on_cuda: bool, worlds_given: bool) -> TrainSettings[Any]:
    """With their number, and with the worlds of all of them: each begins with what the preset has, unless given.

    Where no number is asked for, it is what was found to serve the task best on a GPU, and 1 on the CPU, whose time
    grows with the worlds. It is 1 too where something is asked for that only a policy of its own from the beginning on
    can do, or where iterations or given worlds are too few for it.
    """
    wanted = settings.candidates or _found_best(settings, on_cuda)
    worlds = settings.settings.num_worlds
    asked = replace(
        settings,
        candidates=wanted,
        settings=settings.settings if worlds_given else replace(settings.settings, num_worlds=wanted * worlds),
    )
    if settings.candidates == 0 and wanted > 1 and (_too_few_worlds(asked) or why_no_contest(asked) is not None):
        return replace(settings, candidates=1)
    return asked


def _too_few_worlds(settings: TrainSettings[Any]) -> bool:
    """Whether some would begin with fewer than one alone has by default."""
    alone = find_algorithm(settings.algo).resolve(settings.task, settings.preset).num_worlds
    return bool(settings.settings.num_worlds < settings.candidates * alone)


def _found_best(settings: TrainSettings[Any], on_cuda: bool) -> int:
    algorithm, schedule = find_algorithm(settings.algo), settings.schedule
    tuned = settings.preset in (None, algorithm.preset_for(settings.task, on_cuda))
    ends_early = schedule.stop_at is not None or schedule.minutes is not None
    alone = settings.view or settings.start_from is not None or ends_early or launched()
    return 1 if alone or not (on_cuda and tuned) else algorithm.candidates.get(settings.task, 1)


def rounds_of(candidates: int) -> int:
    """Half of them end after each but the last."""
    return candidates.bit_length()


def end_of_round(number: int, candidates: int, iterations: int) -> int:
    """The iteration after which a round ends, counted from 0 and not the last. They share the later half of a training.

    The first takes the other half: before that, returns say little about how a candidate will end.
    """
    later = rounds_of(candidates) - 1
    return iterations * (later + number) // (2 * later)


def why_no_contest(settings: TrainSettings[Any]) -> str | None:
    """What keeps these candidates from a contest; None where nothing does."""
    candidates, worlds, iterations = settings.candidates, settings.settings.num_worlds, settings.settings.iterations
    if candidates.bit_count() != 1:
        return f"candidates must be 2, 4, 8 or another power of 2, not {candidates}: half of them end again and again"
    if worlds % candidates:
        return f"{worlds} worlds cannot be shared by {candidates} candidates: give --worlds a multiple of it"
    rounds = rounds_of(candidates)
    steps = iterations // (2 * (rounds - 1)) * getattr(settings.settings, "horizon", 1)
    length = make_task(settings.task).episode_length
    if steps < length:
        return (
            f"the last of {rounds} rounds have {steps} steps, and an episode of {settings.task} {length}: candidates "
            "could not be told apart. Give more --iterations, or fewer --candidates"
        )
    return None
