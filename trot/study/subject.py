"""What a study looks at: a task, or a run with the agent that it trained."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trot.envs.registry import TASKS, make_task, names_task
from trot.envs.task import Task
from trot.learn.agent import Agent, load_agent
from trot.runs.folder import RunFolder

Studied = str | os.PathLike[str] | Task[Any]
"""The name of a task, path/to/file.py:Class, a run folder, or a Task."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A task, and where it comes from."""

    name: str
    """For titles and folders."""
    task: Task[Any]
    run: RunFolder | None = None

    def agent(self, checkpoint: str) -> Agent:
        """The one that the run trained. Raises ValueError where there is none."""
        if self.run is None:
            raise ValueError(f"'{self.name}' is a task and has no policy: give the folder of a run that trained one")
        if not self.run.checkpoint_names():
            raise ValueError(f"the run '{self.run.path}' has no checkpoints yet: trot resume {self.run.path}")
        return load_agent(self.run, checkpoint)


def find_subject(studied: Studied) -> Subject:
    """The task or the run of that name."""
    if isinstance(studied, Task) or (isinstance(studied, str) and names_task(studied)):
        task = make_task(studied)
        return Subject(task.name.rpartition(":")[2], task)
    if not Path(studied).is_dir():
        raise ValueError(
            f"'{studied}' is neither a task nor a run folder. Tasks: {', '.join(TASKS)}, or path/to/file.py:Class"
        )
    run = RunFolder.open(studied)
    return Subject(run.path.resolve().name, make_task(str(run.settings["task"])), run)


def varied(task: Task[Any], **changes: Any) -> Task[Any]:
    """The same task with other attributes, such as substeps or the model; the one that was given stays as it is."""
    copied: Task[Any] = object.__new__(type(task))
    vars(copied).update({**vars(task), **changes})
    for name, value in changes.items():
        if getattr(copied, name) is not value:
            raise ValueError(f"{type(task).__name__}.{name} is a property, which a study cannot vary")
    return copied
