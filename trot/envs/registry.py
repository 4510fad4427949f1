"""The tasks by name, and your own by file: `my_task.py:Walker`."""

from __future__ import annotations

import difflib
import importlib
import inspect
from typing import Any

import torch

from trot.envs.env import Env
from trot.envs.given_task import FROM_PYTHON, GivenTask, name_of, remembered
from trot.envs.randomize import Randomize
from trot.envs.task import Task
from trot.own_file import load_own_file, names_file

TASKS = {
    "cartpole": "trot.envs.tasks.cartpole:CartPole",
    "hopper": "trot.envs.tasks.hopper:Hopper",
    "half_cheetah": "trot.envs.tasks.half_cheetah:HalfCheetah",
    "ant": "trot.envs.tasks.ant:Ant",
    "humanoid": "trot.envs.tasks.humanoid:Humanoid",
    "muscle_humanoid": "trot.envs.tasks.muscle_humanoid:MuscleHumanoid",
    "quadruped": "trot.envs.tasks.quadruped:Quadruped",
}


def make_env(
    name: str | type[Task[Any]] | Task[Any],
    num_worlds: int,
    device: str | torch.device = "cpu",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    stochastic_start: bool = True,
    randomize: Randomize | None = None,
) -> Env:
    """Worlds of a task: one of TASKS, `path/to/file.py:Class`, or a Task of your own.

    Without stochastic_start every world begins at the nominal pose. randomize gives each world physics of its own.
    """
    return Env(make_task(name), num_worlds, device, seed, dtype, stochastic_start, randomize)


def make_task(name: str | type[Task[Any]] | Task[Any]) -> Task[Any]:
    """The task itself, its robot loaded."""
    if isinstance(name, Task):
        return name
    if isinstance(name, type) and issubclass(name, Task):
        return name()
    if not isinstance(name, str):
        raise TypeError(f"a task is a name, a file.py:Class, or a Task, not {type(name).__name__}")
    given = remembered(name)
    if given is not None:
        return given
    if name.startswith(FROM_PYTHON):
        own = name.removeprefix(FROM_PYTHON)
        raise ValueError(
            f"the task {own} was given from Python, and no file holds it. In Python: trot.load_run(RUN, task={own}). "
            f"For the commands, put the class into a file, and train path/to/file.py:{own}"
        )
    if name in TASKS:
        module, _, cls = TASKS[name].partition(":")
        task: Task[Any] = getattr(importlib.import_module(module), cls)()
    elif names_task(name):
        task = _from_file(name)
    else:
        nearest = difflib.get_close_matches(name, TASKS, n=1)
        hint = f" Did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(
            f"there is no task '{name}'.{hint} There are: {', '.join(TASKS)}; your own is path/to/file.py:Class"
        )
    task.name = name
    return task


def task_name(task: str | GivenTask) -> str:
    """What make_task() finds the task by, in this process, and wherever there is a file for it in any other."""
    if isinstance(task, str):
        # Raises, and suggests the nearest name, where there is no such task.
        make_task(task)
        return task
    if isinstance(task, type) and issubclass(task, Task):
        ours = {spec: name for name, spec in TASKS.items()}.get(f"{task.__module__}:{task.__qualname__}")
        return ours or name_of(task)
    if isinstance(task, Task):
        return name_of(task)
    raise TypeError(f"a task is a name, a file.py:Class, or a Task, not {type(task).__name__}")


def names_task(text: str) -> bool:
    """Whether this is the name of a task or of a class in a file, and not of a robot file."""
    return text in TASKS or names_file(text)


def _from_file(spec: str) -> Task[Any]:
    module, wanted = load_own_file(spec, "task")
    path_text = spec.rpartition(":")[0]
    found = getattr(module, wanted, None)
    if not (isinstance(found, type) and issubclass(found, Task)):
        here = [
            name for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, Task) and not inspect.isabstract(value)
        ]  # fmt: skip
        raise ValueError(f"{path_text} has no task '{wanted}'; it has: {', '.join(here) or 'none'}")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise ValueError(f"{wanted} in {path_text} is not finished: it lacks {missing}")
    task: Task[Any] = found()
    return task
