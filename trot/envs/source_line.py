"""Where a task's methods are written, so that what is said of them can be found."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from trot.envs.task import Task


def task_error(task: Task[Any], what: str, problem: str) -> ValueError:
    """An error about what a task has or returns, `reward_terms()['alive']` or `num_actions`, with the line of it."""
    line = source_line(task, what.partition("(")[0])
    return ValueError(f"{type(task).__name__}.{what} {problem}" + (f" ({line})" if line else ""))


def source_line(task: Task[Any], member: str) -> str:
    """`path/to/file.py:41` of a method or property; empty where Python does not know."""
    found = inspect.getattr_static(type(task), member, None)
    function = getattr(found, "fget", None) or getattr(found, "__func__", found)
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None:
        return ""
    path = Path(code.co_filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{code.co_firstlineno}"
