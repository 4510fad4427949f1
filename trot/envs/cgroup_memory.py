"""How much memory Linux lets this process's control group have: containers and batch systems set such limits."""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath


def cgroup_limit(root: Path = Path("/")) -> float:
    """Bytes; infinite where there is no limit or no control group. Tests put files of their own under another root."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    return min((_smallest(root, line) for line in lines), default=math.inf)


def _smallest(root: Path, line: str) -> float:
    """Of the group that the line names and of those that it lies in: each of them holds."""
    _, controllers, path = line.split(":", 2)
    if controllers == "":
        # Version 2; beside version 1 it is mounted one folder deeper, and rules no memory there as a rule.
        mount, name = root / "sys/fs/cgroup", "memory.max"
    elif "memory" in controllers.split(","):
        mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
    else:
        return math.inf
    # A container often sees its own group as the mount's root, while the line tells the path outside: then the folders
    # of the path are not there, and the root's own file counts.
    group = PurePosixPath(path.lstrip("/"))
    folders = [] if ".." in group.parts else [group, *group.parents]
    return min(_read(mount / folder / name) for folder in {*folders, PurePosixPath()})


def _read(file: Path) -> float:
    try:
        return float(int(file.read_text()))
    except (OSError, ValueError):
        # No such file, or the word max.
        return math.inf
