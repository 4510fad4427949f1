"""`trot resume` of several runs: those of `trot train --seeds` go on in one batch, bit for bit where all are named."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from trot.envs.ranks import refuse_ranks
from trot.learn.resume import GoesOn, load_state, refuse_other_columns
from trot.learn.run_record import RunRecord, resume_command
from trot.learn.train import stoppable
from trot.learn.train_together import learner_of_seeds
from trot.learn.trainer import Trainer
from trot.runs.folder import RunFolder


def resume_together(
    paths: Sequence[Path],
    device: str = "auto",
    stop_at: float | None = None,
    iterations: int | None = None,
    minutes: float | None = None,
) -> list[RunFolder]:
    """Go on with runs that differ in their seeds alone, in one batch, each as resume() says.

    A run that is finished, or that a bad gradient stopped, keeps its place in the batch and is left as it is: with the
    same runs as before, the others go on bit for bit. One that was saved later than others waits until they are there.
    """
    refuse_ranks("trot resume of several runs")
    with contextlib.ExitStack() as opened:
        runs = [opened.enter_context(RunFolder.reopen(path)) for path in _apart(paths)]
        # In the order in which they were trained, whatever the order of their names.
        runs.sort(key=lambda run: int(run.settings["seed"]))
        opened.enter_context(stoppable(*runs))
        asked = [GoesOn.read(run, device, stop_at, iterations, minutes) for run in runs]
        refuse_others(asked)
        _go_on(asked)
    return runs


def _go_on(asked: Sequence[GoesOn]) -> None:
    runs = [one.run for one in asked]
    stopped = [stopped_at_a_bad_gradient(run) for run in runs]
    settings = asked[0].settings
    learner = learner_of_seeds(settings, [int(run.settings["seed"]) for run in runs])
    for member, one in enumerate(asked):
        refuse_other_columns(learner, one.columns, one.run)
        if one.done:
            load_state(learner, one.saved["learner"], one.run, member)
    ended = [one.finished or failed for one, failed in zip(asked, stopped, strict=True)]
    for one, failed in zip(asked, stopped, strict=True):
        if failed:
            print(f"{one.run.path} stopped at a bad gradient, and stays as it is. Alone: {resume_command(one.run)}")
        else:
            one.prepare_folder()
    if all(ended):
        way = f"To go on: {resume_command(*runs)} --iterations N"
        print(f"All {len(runs)} runs are finished or stopped. {way}", flush=True)
        return
    first = min(one.done for one, over in zip(asked, ended, strict=True) if not over)
    start = f"{settings.task}: {ended.count(False)} runs on from iteration {first}, on {learner.device}"
    print(f"{start}. Run folders: {', '.join(str(run.path) for run in runs)}", flush=True)
    records = [_record(one, over, first, runs) for one, over in zip(asked, ended, strict=True)]
    Trainer(records, learner, settings.settings.iterations).run_to_the_end()


def _record(one: GoesOn, ended: bool, first: int, runs: Sequence[RunFolder]) -> RunRecord:
    waits_with = one.saved["learner"] if one.done > first and not ended else None
    schedule, seconds = one.settings.schedule, one.saved["seconds"]
    return RunRecord(one.run, schedule, one.done, seconds, waits_with, ended, resume_command(*runs))


def stopped_at_a_bad_gradient(run: RunFolder) -> bool:
    """Whether the last row of its metrics says so."""
    try:
        return bool(run.last_metrics().get("stopped", 0))
    except ValueError:
        # Damaged metrics are mended later; what they lack is trained again.
        return False


def _apart(paths: Sequence[Path]) -> Sequence[Path]:
    for index, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:index]]:
            raise ValueError(f"'{path}' is named twice")
    return paths


def refuse_others(asked: Sequence[GoesOn]) -> None:
    """Raise where runs differ in more than their seeds and in what ends them, or have the same seed."""
    first = asked[0]
    for one in asked[1:]:
        ours, theirs = _of_the_batch(first), _of_the_batch(one)
        differ = [name for name in ours if ours[name] != theirs[name]]
        if differ:
            raise ValueError(
                f"{first.run.path} and {one.run.path} cannot go on together: they differ in {', '.join(differ)}. "
                "One batch takes runs that differ in their seeds alone"
            )
    for one in asked:
        if "start_from" in one.run.settings and not one.done:
            raise ValueError(
                f"{one.run.path} has no checkpoint yet behind the policy that it began with, and goes on alone: "
                f"{resume_command(one.run)}"
            )
    for one, other in pairwise(asked):
        if one.settings.seed == other.settings.seed:
            raise ValueError(f"{one.run.path} and {other.run.path} have the same seed: they are the same run")


def _of_the_batch(one: GoesOn) -> dict[str, object]:
    """What all its runs have in common."""
    settings, schedule = one.settings, one.settings.schedule
    own = {name: getattr(settings, name) for name in ("task", "algo", "device", "randomize")}
    return {**own, **asdict(settings.settings), "save_every": schedule.save_every, "keep_every": schedule.keep_every}
