"""trot.train(), trot.resume() and trot.load_run(): what the commands do, from Python and with a result to look at."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from trot.api.keywords import seed_texts, settings_of_keywords
from trot.api.notebook import progress_shown
from trot.api.trained_run import TrainedRun
from trot.api.trained_runs import TrainedRuns
from trot.envs.given_task import FROM_PYTHON, GivenTask
from trot.envs.randomize import Randomize
from trot.envs.ranks import refuse_ranks
from trot.envs.registry import task_name
from trot.learn.algorithms import DEFAULT_ALGORITHM
from trot.learn.begin import begin
from trot.learn.candidates import with_candidates
from trot.learn.contest import has_contest, resume_contest
from trot.learn.resume import resume as go_on
from trot.learn.resume_together import resume_together
from trot.learn.train import Stopped, on_cuda
from trot.runs.folder import RunFolder

Seeds = str | Sequence[int]
RunPath = str | os.PathLike[str]


@overload
def train(
    task: str | GivenTask,
    *,
    algo: str | None = ...,
    preset: str | None = ...,
    seed: int = ...,
    seeds: None = ...,
    device: str = ...,
    runs: RunPath = ...,
    name: str | None = ...,
    randomize: Randomize | None = ...,
    **settings: Any,
) -> TrainedRun: ...


@overload
def train(
    task: str | GivenTask,
    *,
    algo: str | None = ...,
    preset: str | None = ...,
    seeds: Seeds,
    device: str = ...,
    runs: RunPath = ...,
    name: str | None = ...,
    randomize: Randomize | None = ...,
    **settings: Any,
) -> TrainedRuns: ...


def train(
    task: str | GivenTask,
    *,
    algo: str | None = None,
    preset: str | None = None,
    seed: int | None = None,
    seeds: Seeds | None = None,
    device: str = "auto",
    runs: RunPath = "runs",
    name: str | None = None,
    randomize: Randomize | None = None,
    **settings: Any,
) -> TrainedRun | TrainedRuns:
    """Teach a policy as `trot train` does, with the same settings and to the same bits.

    Args:
        task: One of `trot tasks`, path/to/file.py:Class, or a Task, as a class or as an object. A class of a module is
            read from its file; one of a notebook, and an object, are known to this process alone.
        algo: One of `trot algorithms`, or path/to/file.py:NAME; unless given, what `trot train` would take.
        preset: Where the settings come from; the algorithm's first preset unless given, which is tuned for the task,
            or on a GPU another that serves the task better there.
        seed: Of the run, 0 unless given.
        seeds: Several at once, in one batch, as range(16), [0, 3, 7] or "0-15"; then TrainedRuns come back.
        device: auto takes CUDA where there is a GPU.
        runs: Where run folders are made.
        name: Of the run folder; task, algorithm and seed without it.
        randomize: Physics of its own for each world, pushes, noise and delay.
        settings: What `trot train TASK --help` lists, with underscores: iterations, minutes, stop_at, worlds, horizon,
            actor_lr ...

    Ctrl-C leaves a run to go on with, and the KeyboardInterrupt says how.
    """
    refuse_ranks("trot.train()")
    if seed is not None and seeds is not None:
        raise TypeError("seed is for one run, seeds for several: give one of them")
    texts = () if seeds is None else seed_texts(seeds)
    if seeds is not None and not texts:
        raise ValueError("seeds names no seed: give some, such as range(16) or [0, 3, 7]")
    asked = settings_of_keywords(
        task_name(task),
        algo or DEFAULT_ALGORITHM,
        preset,
        settings,
        seed=0 if seed is None else seed,
        seeds=texts,
        device=device,
        runs=Path(runs),
        name=name,
        randomize=randomize or Randomize(),
    )
    asked = with_candidates(asked, on_cuda(device), worlds_given=bool({"worlds", "num_worlds"} & set(settings)))
    with progress_shown(), _stopped_in_python():
        ended = [TrainedRun(run) for run in begin(asked)]
        return TrainedRuns(ended) if texts else ended[0]


@overload
def resume(
    path: RunPath,
    /,
    *,
    task: GivenTask | None = ...,
    device: str = ...,
    stop_at: float | None = ...,
    iterations: int | None = ...,
    minutes: float | None = ...,
) -> TrainedRun: ...


@overload
def resume(
    path: RunPath,
    second: RunPath,
    /,
    *others: RunPath,
    task: GivenTask | None = ...,
    device: str = ...,
    stop_at: float | None = ...,
    iterations: int | None = ...,
    minutes: float | None = ...,
) -> TrainedRuns: ...


def resume(
    path: RunPath,
    /,
    *others: RunPath,
    task: GivenTask | None = None,
    device: str = "auto",
    stop_at: float | None = None,
    iterations: int | None = None,
    minutes: float | None = None,
) -> TrainedRun | TrainedRuns:
    """Go on with a run as if it had never stopped, or with several of one batch, as `trot resume` does.

    Args:
        path: The run folder.
        others: More of them that differ in their seeds alone.
        task: What it was trained with, where that was a class of a notebook or an object, and this is a new process.
        device: auto is the kind of device that the run began on.
        stop_at: Another goal than the run's own, also for a run that has reached that.
        iterations: In all, instead of the run's own number; also for a run that is finished.
        minutes: Of training in all, instead of the run's own limit; math.inf for none.
    """
    refuse_ranks("trot.resume()")
    paths = [Path(one) for one in (path, *others)]
    for one in paths:
        load_run(one, task)
    with progress_shown(), _stopped_in_python():
        if has_contest(paths):
            ended = [TrainedRun(run) for run in resume_contest(paths, device, stop_at, iterations, minutes)]
            return TrainedRuns(ended) if others else ended[0]
        if others:
            return TrainedRuns(
                TrainedRun(run) for run in resume_together(paths, device, stop_at, iterations, minutes)
            )  # fmt: skip
        return TrainedRun(go_on(paths[0], device, stop_at, iterations, minutes))


def load_run(path: RunPath, task: GivenTask | None = None) -> TrainedRun:
    """A run that is there already, whoever trained it.

    `task` is what it was trained with, where that was a class of a notebook or an object.
    """
    run = TrainedRun(RunFolder.open(path))
    if task is not None and task_name(task) != run.task:
        raise ValueError(f"{path} was trained with the task {run.task}, not {task_name(task)}")
    return run


@contextlib.contextmanager
def _stopped_in_python() -> Iterator[None]:
    """A Ctrl-C names the call that goes on, and the command where there is one."""
    try:
        yield
    except Stopped as stopped:
        happened, _, command = str(stopped).partition(" Go on: ")
        paths = ", ".join(repr(os.fspath(run.path)) for run in stopped.runs)
        task = str(stopped.runs[0].settings["task"])
        if task.startswith(FROM_PYTHON):
            way = f"trot.resume({paths}, task={task.removeprefix(FROM_PYTHON)})"
        else:
            way = f"trot.resume({paths}), or in a shell: {command}"
        raise KeyboardInterrupt(f"{happened} Go on: {way}") from None
