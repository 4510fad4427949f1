"""`trot train --candidates 8`: eight policies begin, the better half goes on again and again, and one is left.

Which gait a policy falls into is a matter of chance, and it seldom leaves it. So several begin, each with its share of
the run's worlds. There are rounds; the first is half of the training, and the others share the rest. After each the
better half stays, and every one of it takes over the worlds of one that ends, until the last one has all of them. The
batch is as large in every round, which costs a GPU little more than one policy alone.

The candidates of all rounds but the last are run folders in RUN/candidates. The last round is the run itself, which
takes over from the winner and then is like any other.
"""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from trot.envs.ranks import refuse_ranks
from trot.envs.start_store import starts_in_store
from trot.envs.trainable import require_trainable
from trot.learn.algorithms import find_algorithm
from trot.learn.candidates import end_of_round, rounds_of, why_no_contest
from trot.learn.learner import Learner
from trot.learn.rank_state import world_axis
from trot.learn.resume import GoesOn, resume, settings_of
from trot.learn.resume_together import refuse_others, resume_together
from trot.learn.rounds import score, take_over, train_up_to
from trot.learn.run_record import resume_command, writing_into
from trot.learn.seeds import parsed_seeds
from trot.learn.train import TrainSettings, described, run_name, stoppable
from trot.learn.train_together import learner_of_seeds
from trot.progress import short
from trot.runs.folder import SETTINGS, RunFolder

CANDIDATES = "candidates"
"""The folder of a run that has them, and how many there were among its settings."""
SEEDS_APART = 10_000
"""Between the seeds of a run's candidates; the first has the run's own."""


def train_by_contest(settings: TrainSettings[Any]) -> list[RunFolder]:
    """Start a run for each seed and see them through: all candidates of all of them learn in one batch."""
    refuse_ranks("trot train --candidates")
    if settings.start_from is not None:
        raise ValueError("--start-from is for one policy: leave --candidates out")
    if settings.view:
        raise ValueError("--view shows one policy: leave --candidates out")
    algorithm, seeds = find_algorithm(settings.algo), parsed_seeds(settings.seeds) or [settings.seed]
    reason = why_no_contest(settings)
    if reason is not None:
        raise ValueError(reason)
    learner = _learner(settings, seeds, 0)
    require_trainable(learner.env)
    task, several = learner.env.task.name, bool(settings.seeds)
    paths = []
    for seed in seeds:
        suffix = f"-{seed}" if several else ""
        name = settings.name + suffix if settings.name else run_name(task, algorithm, seed)
        own = described(replace(settings, seed=seed, seeds=()), algorithm, learner)
        with RunFolder.create(settings.runs, name, {**own, CANDIDATES: settings.candidates}) as run:
            paths.append(run.path)
    return resume_contest(paths, settings.device, learner=learner)


def in_contest(run: RunFolder) -> bool:
    """Whether it still has several candidates."""
    return CANDIDATES in run.settings and "last" not in run.checkpoint_names()


def has_contest(paths: Sequence[Path]) -> bool:
    """Whether one of these runs still has several candidates."""
    return any(in_contest(RunFolder.open(path)) for path in paths)


def resume_contest(
    paths: Sequence[Path],
    device: str = "auto",
    stop_at: float | None = None,
    iterations: int | None = None,
    minutes: float | None = None,
    learner: Learner | None = None,
) -> list[RunFolder]:
    """Go on with runs that have candidates, to their end; what is asked besides counts for the last round.

    Args:
        paths: Of the runs.
        device: auto is the kind of device that they began on.
        stop_at: As resume() takes it.
        iterations: The same.
        minutes: The same.
        learner: That of the first round, where there is one already.
    """
    with contextlib.ExitStack() as opened:
        runs = [opened.enter_context(RunFolder.reopen(path)) for path in paths]
        runs.sort(key=lambda run: int(run.settings["seed"]))
        opened.enter_context(stoppable(*runs))
        _refuse_other_contests(runs, device)
        settings = replace(settings_of(runs[0], device), candidates=runs[0].settings[CANDIDATES])
        each = "" if len(runs) == 1 else f" for each of {len(runs)} seeds"
        folders = f"Run folder{'s' * (len(runs) > 1)}: {', '.join(str(run.path) for run in runs)}"
        print(f"{settings.task}, {settings.algo}, {settings.candidates} candidates{each}. {folders}", flush=True)
        for number in range(rounds_of(settings.candidates) - 1):
            _round(number, runs, settings, learner)
            learner = None
        for run in runs:
            _crown(run, settings)
    ended = [run.path for run in runs]
    if len(ended) == 1:
        return [resume(ended[0], device, stop_at, iterations, minutes)]
    return resume_together(ended, device, stop_at, iterations, minutes)


def _refuse_other_contests(runs: Sequence[RunFolder], device: str) -> None:
    """Raise where runs differ in more than their seeds."""
    refuse_others([GoesOn.read(run, device, None, None, None) for run in runs])
    for run in runs[1:]:
        if run.settings.get(CANDIDATES) != runs[0].settings.get(CANDIDATES):
            raise ValueError(
                f"{runs[0].path} and {run.path} cannot go on together: they differ in {CANDIDATES}. "
                "One batch takes runs that differ in their seeds alone"
            )


def _learner(settings: TrainSettings[Any], seeds: Sequence[int], number: int) -> Learner:
    """Of all candidates in a round; those of a run lie side by side."""
    each = settings.candidates >> number
    own = [seed + SEEDS_APART * candidate for seed in seeds for candidate in range(each)]
    return learner_of_seeds(_of_round(settings, number), own)


def _of_round(settings: TrainSettings[Any], number: int) -> TrainSettings[Any]:
    """With the worlds that a candidate has then. A goal is the run's: candidates learn for as long as each other."""
    worlds = settings.settings.num_worlds // (settings.candidates >> number)
    own, schedule = replace(settings.settings, num_worlds=worlds), replace(settings.schedule, stop_at=None)
    return replace(settings, settings=own, schedule=schedule)


def _round(number: int, runs: Sequence[RunFolder], settings: TrainSettings[Any], learner: Learner | None) -> None:
    """Train what is not trained yet of a round, and say how it went."""
    if all(_folder(run, number + 1, 0).exists() for run in runs) or not any(in_contest(run) for run in runs):
        return
    learner = learner or _learner(settings, [int(run.settings["seed"]) for run in runs], number)
    end = end_of_round(number, settings.candidates, settings.settings.iterations)
    with contextlib.ExitStack() as opened:
        agents, each = learner.of_members(learner.agent.saved()), settings.candidates >> number
        paths = [
            path
            for place, run in enumerate(runs)
            for path in _make_candidates(run, number, settings, learner, agents[place * each : (place + 1) * each])
        ]
        candidates = [opened.enter_context(RunFolder.reopen(path)) for path in paths]
        train_up_to(end, candidates, learner, resume_command(*runs), settings.device)
    returns = [score(candidate) for candidate in candidates]
    for place, run in enumerate(runs):
        if all(found is None for found in returns[place * each : (place + 1) * each]):
            raise ValueError(
                f"no candidate of {run.path} has a return after {end} iterations: learning failed in all of them, or "
                "no episode ended"
            )
    scores = [found for found in returns if found is not None]
    told = f"{short(min(scores))} to {short(max(scores))}"
    print(
        f"Round {number + 1} of {rounds_of(settings.candidates)}: {len(candidates)} candidates, returns from {told}",
        flush=True,
    )


def _folder(run: RunFolder, number: int, place: int) -> Path:
    return run.path / CANDIDATES / f"{number + 1}-{place}"


def _make_candidates(
    run: RunFolder, number: int, settings: TrainSettings[Any], learner: Learner, agents: Sequence[dict[str, Any]]
) -> list[Path]:
    """Their folders in a round, made unless they are there; what a killed process left half made is made anew.

    `agents` are what they begin with in the first round.
    """
    algorithm = find_algorithm(settings.algo)
    paths = [_folder(run, number, place) for place in range(settings.candidates >> number)]
    pairs = _pairs(run, number, settings) if number else []
    for place, path in enumerate(paths):
        last_written = "last" if number else "initial"
        if (path / SETTINGS).is_file() and last_written in RunFolder.open(path).checkpoint_names():
            continue
        shutil.rmtree(path, ignore_errors=True)
        seed = pairs[place][0].settings["seed"] if number else run.settings["seed"] + SEEDS_APART * place
        own = described(replace(_of_round(settings, number), seed=seed, seeds=()), algorithm, learner)
        with RunFolder.create(path.parent, path.name, own) as candidate, writing_into(run):
            if number:
                take_over(candidate, pairs[place][0], _with_worlds_of(*pairs[place]))
            else:
                candidate.save_checkpoint("initial", {"agent": agents[place]})
    return paths


def _pairs(run: RunFolder, number: int, settings: TrainSettings[Any]) -> list[tuple[RunFolder, RunFolder]]:
    """Of the round before: each of the better half, and one of the others, whose worlds it takes over."""
    before = [RunFolder.open(_folder(run, number - 1, place)) for place in range(settings.candidates >> (number - 1))]
    returns = [-math.inf if found is None else found for found in map(score, before)]
    ranked = sorted(range(len(before)), key=lambda place: -returns[place])
    # One that failed before it was saved leaves nothing: the best stands in for it.
    found = [before[place if "last" in before[place].checkpoint_names() else ranked[0]] for place in ranked]
    half = len(found) // 2
    return list(zip(found[:half], found[half:], strict=True))


def _crown(run: RunFolder, settings: TrainSettings[Any]) -> None:
    """Let the run itself take over from the last two, unless it has."""
    if not in_contest(run):
        return
    ((winner, other),) = _pairs(run, rounds_of(settings.candidates) - 1, settings)
    first = RunFolder.open(_folder(run, 0, 0))
    with writing_into(run):
        run.save_checkpoint("initial", first.load_checkpoint("initial"))
        take_over(run, winner, _with_worlds_of(winner, other))


def _with_worlds_of(winner: RunFolder, other: RunFolder) -> dict[str, Any]:
    """What one candidate was left with, and the worlds of another beside its own. Steps are those of both."""
    saved, beside = winner.load_checkpoint("last"), other.load_checkpoint("last")["learner"]
    state: dict[str, Any] = {}
    for name, part in saved["learner"].items():
        axis = world_axis(name)
        state[name] = part if axis is None else torch.cat([part, beside[name]], dim=axis)
    state["steps"] = state["steps"] + beside["steps"]
    extra, others = state["_extra_state"], beside["_extra_state"]
    state["_extra_state"] = {**extra, "env": _joined(extra["env"], others["env"])}
    return {**saved, "learner": state}


def _joined(env: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The worlds of two environments, one behind the other. Starts in store count as used: new ones are drawn."""
    worlds, starts = (
        {name: torch.cat([tensor, other[part][name]]) for name, tensor in env[part].items()}
        for part in ("worlds", "starts")
    )
    stored = starts_in_store(len(worlds["joint_q"]))
    return {**env, "worlds": worlds, "starts": {name: rows[:stored] for name, rows in starts.items()}, "used": stored}
