"""`trot resume`: a run goes on bit for bit as if it had never stopped, or further than it was meant to."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trot.envs.randomize import Randomize
from trot.envs.ranks import follows
from trot.learn.algorithms import find_algorithm
from trot.learn.learner import Learner
from trot.learn.led import place_of, see_through, together
from trot.learn.older_runs import upgraded_checkpoint
from trot.learn.run_record import LATER_COLUMNS, RunRecord, writing_into
from trot.learn.saved_settings import settings_from
from trot.learn.schedule import Schedule
from trot.learn.train import TrainSettings, make_learner, make_training_env, start_from_run, stoppable
from trot.runs.folder import RunFolder


def resume(
    path: Path,
    device: str = "auto",
    stop_at: float | None = None,
    iterations: int | None = None,
    minutes: float | None = None,
) -> RunFolder:
    """Go on with a run bit for bit as if it had never stopped.

    Towards another goal with stop_at, for another number of minutes in all with `minutes`, and to another number of
    iterations in all with `iterations`: learning rates that fall with the iterations then follow the new number. A goal
    or a time that ended the run is given up where one of them is given. The run folder remembers.
    """
    # A rank that follows another one reads the same folder, and writes nothing.
    with RunFolder.open(path) if follows() else RunFolder.reopen(path) as run, stoppable(run):
        _go_on(GoesOn.read(run, device, stop_at, iterations, minutes))
    return run


def _go_on(asked: GoesOn) -> None:
    run, settings = asked.run, asked.settings
    learner = make_learner(find_algorithm(settings.algo), make_training_env(settings), settings)
    refuse_other_columns(learner, asked.columns, run)
    if asked.done:
        load_state(learner, asked.saved["learner"], run)
    elif "start_from" in run.settings:
        # Stopped before its first checkpoint. What it began with is in its own folder.
        start_from_run(learner, run, "initial")
    with together(learner) as leads:
        if leads:
            asked.prepare_folder()
            _train_on(asked, learner)


def _train_on(asked: GoesOn, learner: Learner) -> None:
    run, settings = asked.run, asked.settings
    if asked.finished:
        more = "--minutes M" if asked.out_of_time and asked.done < settings.settings.iterations else "--iterations N"
        print(f"{run.path} is finished: {asked.done} iterations. To go on: trot resume {run.path} {more}", flush=True)
        return
    _note_ranks(run, learner)
    place = place_of(learner)
    print(f"{settings.task}: on from iteration {asked.done}, on {place}. Run folder: {run.path}", flush=True)
    record = RunRecord(run, settings.schedule, asked.done, asked.saved["seconds"])
    see_through(record, learner, settings.settings.iterations)


def _note_ranks(run: RunFolder, learner: Learner) -> None:
    """Write down how many ranks go on with the run, and say so where it was another number before."""
    before, now = run.settings.get("ranks", 1), 1 if learner.ranks is None else learner.ranks.size
    if before == now:
        return
    with writing_into(run):
        run.change_settings(ranks=now)
    print(
        f"{run.path} was trained on {before} ranks and goes on on {now}: sums are taken in another order, and numbers "
        "differ by rounding from what they would have been",
        flush=True,
    )


@dataclass(frozen=True)
class GoesOn:
    """A run that goes on: where it stands, and what is asked of it now."""

    run: RunFolder
    saved: dict[str, Any]
    """The checkpoint to go on from."""
    settings: TrainSettings[Any]
    """With what is asked now."""
    goes_further: bool
    """Whether something was asked that lets it go on behind its end."""

    @classmethod
    def read(
        cls, run: RunFolder, device: str, stop_at: float | None, iterations: int | None, minutes: float | None
    ) -> GoesOn:  # fmt: skip
        """From a run folder. ValueError where it has done more than is asked."""
        saved = _saved(run)
        settings = settings_of(run, device)
        done = saved["iteration"]
        if iterations is not None and iterations < done:
            raise ValueError(f"{run.path} has done {done} iterations already; --iterations is their number in all")
        goes_further = not (stop_at is None and iterations is None and minutes is None)
        if goes_further:
            settings = _extended(settings, saved, stop_at, iterations, minutes)
        return cls(run, saved, settings, goes_further)

    @property
    def done(self) -> int:
        """Iterations."""
        return int(self.saved["iteration"])

    @property
    def columns(self) -> list[str]:
        # A header may be damaged; earlier versions kept the columns nowhere else.
        return self.saved.get("columns") or self.run.metric_columns()

    @property
    def out_of_time(self) -> bool:
        return self.settings.schedule.out_of_time(self.saved["seconds"])

    @property
    def finished(self) -> bool:
        enough = self.done >= self.settings.settings.iterations
        return enough or self.out_of_time or (self.saved["finished"] and not self.goes_further)

    def prepare_folder(self) -> None:
        """Write what is asked into the settings, and drop rows behind the checkpoint."""
        run, settings = self.run, self.settings
        asked = {"settings": asdict(settings.settings), "schedule": asdict(settings.schedule)}
        with writing_into(run):
            run.change_settings(**asked, iterations=settings.settings.iterations)
            fault = run.truncate_metrics(self.done, self.columns, self.saved.get("metrics_checksum"))
        if fault is not None:
            print(f"{run.path}/metrics.csv was damaged and is mended: {fault}", flush=True)


def _extended(
    settings: TrainSettings[Any],
    saved: dict[str, Any],
    stop_at: float | None,
    iterations: int | None,
    minutes: float | None,
) -> TrainSettings[Any]:
    """What is asked for now. What ended the run before must not end it again at once."""
    schedule = settings.schedule
    out_of_time = schedule.out_of_time(saved["seconds"])
    if out_of_time or minutes is not None:
        schedule = replace(schedule, minutes=None if minutes == math.inf else minutes)
    if stop_at is not None or (saved["finished"] and (iterations is not None or not out_of_time)):
        schedule = replace(schedule, stop_at=stop_at)
    if iterations is not None:
        settings = replace(settings, settings=replace(settings.settings, iterations=iterations))
    return replace(settings, schedule=schedule)


def refuse_other_columns(learner: Learner, columns: list[str], run: RunFolder) -> None:
    """Raise where a run's metrics have other columns than the learner gives, and not only for want of later ones."""
    written, given = set(columns) - {"iteration", "steps", "seconds"}, set(learner.all_columns())
    given -= set(LATER_COLUMNS) - written
    if written and written != given:
        differ = ", ".join(sorted(written ^ given))
        raise ValueError(f"{run.path} was trained with other columns of metrics than the algorithm has now: {differ}")


def _saved(run: RunFolder) -> dict[str, Any]:
    """The checkpoint to go on from; the beginning, of a run that was stopped before the first one."""
    names = run.checkpoint_names()
    if not set(names) - {"initial", "best"}:
        return {"iteration": 0, "finished": False, "seconds": 0.0}
    try:
        saved = upgraded_checkpoint(run.load_checkpoint("last"))
    except ValueError as error:
        kept = [name for name in names if name.startswith("iteration_") and _can_go_on_from(run, name)]
        way = f"copy {kept[-1]}.pt over it, then trot resume {run.path}" if kept else "none is kept to go on from"
        raise ValueError(f"{error}; {way}") from None
    lacks = {"learner", "iteration", "finished", "seconds"} - saved.keys()
    if lacks:
        raise ValueError(
            f"the checkpoint 'last' of {run.path} is none to go on from: it lacks {', '.join(sorted(lacks))}"
        )
    return saved


def _can_go_on_from(run: RunFolder, checkpoint: str) -> bool:
    """Those that are kept hold no memory of past steps, and then nothing to go on from."""
    try:
        return "learner" in run.load_checkpoint(checkpoint)
    except ValueError:
        return False


def load_state(learner: Learner, saved: dict[str, Any], run: RunFolder, member: int | None = None) -> None:
    """Go on where the run stopped, be it as one member of several; raises where task or settings are others by now."""
    try:
        if member is None:
            learner.load_state_dict(saved)
        else:
            learner.load_member(member, saved)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        # PyTorch's text has a line for every tensor.
        reason = _changes(learner, run) or " ".join(str(error).split())[:200]
        raise ValueError(
            f"the checkpoint of {run.path} does not fit its task, algorithm and settings as they are now: {reason}. "
            f"Put them back and go on: trot resume {run.path}; or begin anew: trot train {run.settings['task']}"
        ) from None


def _changes(learner: Learner, run: RunFolder) -> str:
    """How the device or the agent that the run began with differs from those of today."""
    device = run.settings.get("device")
    if device != learner.device.type:
        return f"the random numbers of {device}, where it began, do not go on on {learner.device.type}"
    before, now = run.settings.get("agent"), json.loads(json.dumps(learner.agent.described()))
    if not isinstance(before, dict):
        return ""
    names = [name for name in now if name in before and before[name] != now[name]]
    return ", ".join(f"{name} was {before[name]} and is {now[name]}" for name in names)


def settings_of(run: RunFolder, device: str) -> TrainSettings[Any]:
    """What a run was started with, on this device; `auto` is the kind of device that it began on."""
    given = run.settings
    try:
        algorithm = find_algorithm(given["algo"])
        return TrainSettings(
            task=given["task"],
            settings=settings_from(given["settings"], algorithm.settings, algorithm.label),
            algo=given["algo"],
            preset=given["preset"],
            seed=given["seed"],
            device=given["device"] if device == "auto" else device,
            schedule=Schedule(**given["schedule"]),
            randomize=Randomize.from_saved(given["randomize"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{run.path}/settings.json is not one of this version's: {error}") from None
