"""Tasks that Python gives as classes or objects, under names that settings.json can keep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trot.envs.task import Task

GivenTask = type[Task[Any]] | Task[Any]

FROM_PYTHON = "python:"
"""Begins the name of a task that no file holds as it is: a class of a notebook, or an object."""

_given: dict[str, GivenTask] = {}
"""By name, what this process was given last."""


def remembered(name: str) -> Task[Any] | None:
    """The task of this name, if this process was given one."""
    found = _given.get(name)
    if found is None or isinstance(found, Task):
        return found
    task = found()
    task.name = name
    return task


def name_of(task: GivenTask) -> str:
    """`/path/to/file.py:Class` where any process finds the class there; else `python:Class`, which is remembered.

    An object may differ from what its class makes, what stands in the program itself cannot be read without running it,
    and a module of a package may import its neighbours: these are known to this process alone.
    """
    cls = task if isinstance(task, type) else type(task)
    if isinstance(task, type):
        module = sys.modules.get(cls.__module__)
        file = getattr(module, "__file__", None)
        alone = cls.__module__ != "__main__" and "." not in cls.__module__
        if alone and file is not None and getattr(module, cls.__qualname__, None) is cls:
            return f"{Path(file).resolve()}:{cls.__qualname__}"
    name = f"{FROM_PYTHON}{cls.__name__}"
    _given[name] = task
    return name
