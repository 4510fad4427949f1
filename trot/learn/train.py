"""`trot train` and `trot resume`: learning with a run folder, progress, checkpoints, and a clean end."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import torch
import tyro

from trot.command_line import parse
from trot.envs.env import Env
from trot.envs.randomize import Randomize
from trot.envs.registry import make_env, make_task, names_task
from trot.learn.algorithms import find_algorithm
from trot.learn.learner import Algorithm, Learner, LearnerSettings
from trot.learn.older_runs import upgraded_checkpoint
from trot.learn.saved_settings import settings_from
from trot.learn.torch_threads import note_other_threads
from trot.learn.trainer import Schedule, Trainer, writing_into
from trot.runs.folder import RunFolder
from trot.sim.threads import get_num_threads

Settings = TypeVar("Settings", bound=LearnerSettings)

DEFAULT_ALGORITHM = "shac"


@dataclass(frozen=True)
class TrainSettings(Generic[Settings]):
    """Teach a policy. `trot algorithms` lists what it can learn by, and each has options of its own."""

    task: tyro.conf.Positional[str]
    """One of `trot tasks`, or path/to/file.py:Class."""
    settings: Annotated[Settings, tyro.conf.OmitArgPrefixes]
    """The algorithm's."""
    algo: str = DEFAULT_ALGORITHM
    """One of `trot algorithms`, or path/to/file.py:NAME."""
    preset: str | None = None
    """Where the defaults of the options come from; the algorithm's first preset unless given."""
    seed: int = 0
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    runs: Path = Path("runs")
    """Where run folders are made."""
    name: str | None = None
    """Of the run folder; task, algorithm and seed without it."""
    schedule: Annotated[Schedule, tyro.conf.OmitArgPrefixes] = field(default_factory=Schedule)
    randomize: Randomize = field(default_factory=Randomize)
    """Physics of its own for each world: ranges of factors."""


def train(settings: TrainSettings[Any]) -> RunFolder:
    """Start a run and see it through."""
    algorithm = find_algorithm(settings.algo)
    learner = _make_learner(algorithm, settings)
    env = learner.env
    # A file's class gives its name; a colon or a slash has no place in a folder's.
    name = settings.name or f"{env.task.name.rpartition(':')[2]}-{algorithm.name}-{settings.seed}"
    with RunFolder.create(settings.runs, name, _described(settings, algorithm, learner)) as run, _stoppable(run):
        start = f"{settings.task}, {settings.algo}, seed {settings.seed}, on {env.device}"
        print(f"{start}. Run folder: {run.path}", flush=True)
        with writing_into(run):
            run.save_checkpoint("initial", {"agent": learner.agent.saved()})
        Trainer(run, learner, settings.settings.iterations, settings.schedule).run_to_the_end()
    return run


def resume(path: Path, device: str = "auto", stop_at: float | None = None, iterations: int | None = None) -> RunFolder:
    """Go on with a run bit for bit as if it had never stopped.

    Towards another goal with stop_at, and to another number of iterations in all with `iterations`: learning rates that
    fall with the iterations then follow the new number, and a goal that was met is given up. The run folder remembers.
    """
    with RunFolder.reopen(path) as run, _stoppable(run):
        _go_on(run, device, stop_at, iterations)
    return run


def _go_on(run: RunFolder, device: str, stop_at: float | None, iterations: int | None) -> None:
    saved = _saved(run)
    settings = _settings_of(run, device)
    done = saved["iteration"]
    if iterations is not None and iterations < done:
        raise ValueError(f"{run.path} has done {done} iterations already; --iterations is their number in all")
    if iterations is not None:
        settings = replace(settings, settings=replace(settings.settings, iterations=iterations))
    if iterations is not None and saved["finished"]:
        # A goal that was met must not end the run again at once.
        settings = replace(settings, schedule=replace(settings.schedule, stop_at=None))
    if stop_at is not None:
        settings = replace(settings, schedule=replace(settings.schedule, stop_at=stop_at))
    algorithm = find_algorithm(settings.algo)
    learner = _make_learner(algorithm, settings)
    # A header may be damaged; earlier versions kept the columns nowhere else.
    columns = saved.get("columns") or run.metric_columns()
    _refuse_other_columns(learner, columns, run)
    if done:
        _load_state(learner, saved["learner"], run)
    asked = {"settings": asdict(settings.settings), "schedule": asdict(settings.schedule)}
    with writing_into(run):
        run.change_settings(**asked, iterations=settings.settings.iterations)
        fault = run.truncate_metrics(done, columns, saved.get("metrics_checksum"))
    if fault is not None:
        print(f"{run.path}/metrics.csv was damaged and is mended: {fault}", flush=True)
    goes_on = iterations is not None or stop_at is not None
    if done >= settings.settings.iterations or (saved["finished"] and not goes_on):
        print(f"{run.path} is finished: {done} iterations. To go on: trot resume {run.path} --iterations N", flush=True)
        return
    print(f"{settings.task}: on from iteration {done}, on {learner.device}. Run folder: {run.path}", flush=True)
    Trainer(run, learner, settings.settings.iterations, settings.schedule, saved["seconds"]).run_to_the_end()


def parse_settings(arguments: list[str]) -> TrainSettings[Any]:
    """From the command line: task, algorithm and preset choose the defaults of everything else."""
    task = arguments[0] if arguments and not arguments[0].startswith("-") else None
    if task is None and not {"-h", "--help"} & set(arguments):
        raise ValueError("the task comes first: trot train ant --seed 1")
    if task is not None and not names_task(task):
        # Raises, and suggests the nearest name.
        make_task(task)
    first = argparse.ArgumentParser(prog="trot train", add_help=False)
    first.add_argument("--algo", default=DEFAULT_ALGORITHM)
    first.add_argument("--preset", default=None)
    chosen, _ = first.parse_known_args(arguments)
    algorithm = find_algorithm(chosen.algo)
    preset = chosen.preset or algorithm.default_preset
    default = TrainSettings(task or "", algorithm.resolve(task or "", preset), chosen.algo, preset)
    kind = TrainSettings[algorithm.settings]  # type: ignore[name-defined]
    description = f"Teach a policy by {algorithm.label}: {algorithm.summary}. Presets: {', '.join(algorithm.presets)}."
    if task is None:
        return parse(kind, "trot train", description, ["--help"])
    return parse(kind, "trot train", description, arguments, default=default)


def choose_device(device: str) -> str:
    """`auto` is the GPU where there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _make_learner(algorithm: Algorithm, settings: TrainSettings[Any]) -> Learner:
    learner = algorithm.learner(_make_env(settings), settings.settings, settings.seed)
    if not hasattr(learner, "agent") or not hasattr(learner, "best"):
        raise ValueError(f"{type(learner).__name__} has no agent: its __init__ is to call make_agent()")
    return learner


def _refuse_other_columns(learner: Learner, columns: list[str], run: RunFolder) -> None:
    written = set(columns) - {"iteration", "steps", "seconds"}
    if written and written != set(learner.all_columns()):
        differ = ", ".join(sorted(written ^ set(learner.all_columns())))
        raise ValueError(f"{run.path} was trained with other columns of metrics than the algorithm has now: {differ}")


def _saved(run: RunFolder) -> dict[str, Any]:
    """The checkpoint to go on from; the beginning, of a run that was stopped before the first one."""
    names = run.checkpoint_names()
    if not set(names) - {"initial", "best"}:
        return {"iteration": 0, "finished": False, "seconds": 0.0}
    try:
        saved = upgraded_checkpoint(run.load_checkpoint("last"))
    except ValueError as error:
        kept = [name for name in names if name.startswith("iteration_")]
        way = f"copy {kept[-1]}.pt over it, then trot resume {run.path}" if kept else "none is kept to go on from"
        raise ValueError(f"{error}; {way}") from None
    lacks = {"learner", "iteration", "finished", "seconds"} - saved.keys()
    if lacks:
        raise ValueError(
            f"the checkpoint 'last' of {run.path} is none to go on from: it lacks {', '.join(sorted(lacks))}"
        )
    return saved


def _load_state(learner: Learner, saved: dict[str, Any], run: RunFolder) -> None:
    """Go on where the run stopped; raises where task, algorithm or settings are others by now."""
    note_other_threads(learner, learner.device, run.settings.get("threads"))
    try:
        learner.load_state_dict(saved)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        # PyTorch's text has a line for every tensor.
        reason = _changes(learner, run) or " ".join(str(error).split())[:200]
        raise ValueError(
            f"the checkpoint of {run.path} does not fit its task, algorithm and settings as they are now: {reason}. "
            f"Put them back and go on: trot resume {run.path}; or begin anew: trot train {run.settings['task']}"
        ) from None


def _changes(learner: Learner, run: RunFolder) -> str:
    """How the agent that the run began with differs from one of today."""
    before, now = run.settings.get("agent"), json.loads(json.dumps(learner.agent.described()))
    if not isinstance(before, dict):
        return ""
    names = [name for name in now if name in before and before[name] != now[name]]
    return ", ".join(f"{name} was {before[name]} and is {now[name]}" for name in names)


@contextlib.contextmanager
def _stoppable(run: RunFolder) -> Iterator[None]:
    """Whenever Ctrl-C strikes, also before the first iteration, it says how to go on."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise KeyboardInterrupt(*(stopped.args or [f"Stopped. Go on: trot resume {run.path}"])) from None


def _make_env(settings: TrainSettings[Any]) -> Env:
    randomize = None if settings.randomize == Randomize() else settings.randomize
    device = choose_device(settings.device)
    return make_env(settings.task, settings.settings.num_worlds, device, settings.seed, randomize=randomize)


def _described(settings: TrainSettings[Any], algorithm: Algorithm, learner: Learner) -> dict[str, Any]:
    """Everything resolved, as settings.json keeps it."""
    return {
        "task": settings.task,
        "algo": settings.algo,
        "label": algorithm.label,
        "preset": settings.preset or algorithm.default_preset,
        "seed": settings.seed,
        "device": learner.device.type,
        "threads": get_num_threads(),
        "iterations": settings.settings.iterations,
        "agent": learner.agent.described(),
        "schedule": asdict(settings.schedule),
        "settings": asdict(settings.settings),
        "randomize": asdict(settings.randomize),
    }


def _settings_of(run: RunFolder, device: str) -> TrainSettings[Any]:
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
            randomize=Randomize(**{name: tuple(bounds) for name, bounds in given["randomize"].items()}),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{run.path}/settings.json is not one of this version's: {error}") from None
