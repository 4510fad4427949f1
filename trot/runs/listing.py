"""`trot list`: the runs below a folder, and what they reached."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from trot.command_line import parse_call
from trot.runs.folder import MACHINE, SETTINGS, RunFolder

DEEPEST = 3
"""Folders below the root that are looked into: root/task/algo/run."""

LONGEST = timedelta.max.total_seconds()
"""Of what can be shown."""


@dataclass(frozen=True)
class RunSummary:
    """What one line of the table says. A run that cannot be read has a problem, and the rest may be empty."""

    folder: Path
    task: str = ""
    algo: str = ""
    seed: int | None = None
    iterations: int = 0
    """Done so far: the last row's `iteration`."""
    planned_iterations: int | None = None
    """The setting `iterations`."""
    best_return: float | None = None
    seconds: float | None = None
    """The last row's `seconds`."""
    goal_met: bool = False
    """Whether it ended before, because its episodes returned what was asked for."""
    out_of_time: bool = False
    """Whether it ended before, because it had trained for as long as was asked for."""
    problem: str | None = None

    @property
    def learned_all(self) -> bool:
        """Whether no more time would make a difference."""
        return self.goal_met or (self.planned_iterations is not None and self.iterations >= self.planned_iterations)

    @property
    def finished(self) -> bool:
        return self.learned_all or self.out_of_time


def list_command(arguments: list[str]) -> int:
    """List the runs, and what they reached."""

    def read(runs: Path = Path("runs")) -> None:
        """List the runs, and what they reached.

        Args:
            runs: The folder that holds the runs, up to three folders deep.
        """
        print_runs(runs)

    parse_call(read, "trot list", list_command.__doc__, arguments)()
    return 0


def print_runs(root: Path = Path("runs")) -> None:
    """One line per run, sorted by task, algorithm and seed.

    Args:
        root: The folder that holds the runs, up to three folders deep.
    """
    runs = list_runs(root)
    if not runs:
        print(f"No runs in '{root}' yet. Make one: trot train cartpole")
        return
    readable = [run for run in runs if run.problem is None]
    if readable:
        _print_table([_cells(run) for run in readable])
    for run in runs:
        if run.problem is not None:
            print(f"cannot be read: {run.problem}")


def list_runs(root: Path) -> list[RunSummary]:
    """Every run at or below the root; folders that are no run's are passed over."""
    runs = []
    for folder, subfolders, files in os.walk(root):
        path = Path(folder)
        if SETTINGS in files:
            summary = summarize(path)
            # Other programs have a settings.json, too: a broken one is ours where the machine is noted beside it.
            if summary.problem is None or MACHINE in files:
                runs.append(summary)
                subfolders.clear()
        if len(path.relative_to(root).parts) == DEEPEST:
            subfolders.clear()
    return sorted(runs, key=_place)


def summarize(path: Path) -> RunSummary:
    """What one run folder says of its run."""
    try:
        run = RunFolder.open(path)
        last = run.last_metrics()
        settings, done = run.settings, last.get("iteration", 0.0)
        seed, planned, seconds = settings["seed"], settings.get("iterations"), last.get("seconds", math.nan)
        return RunSummary(
            folder=path,
            task=str(settings["task"]),
            algo=str(settings["algo"]),
            seed=seed if isinstance(seed, int) else None,
            iterations=int(done) if math.isfinite(done) else 0,
            planned_iterations=planned if isinstance(planned, int) else None,
            best_return=run.best_return(),
            seconds=seconds if abs(seconds) < LONGEST else None,
            goal_met=_goal_met(settings, last),
            out_of_time=_out_of_time(settings, seconds),
        )
    except (OSError, ValueError) as error:
        return RunSummary(path, problem=str(error))
    except Exception as error:
        # Whatever else a damaged file does to a reader, the other runs are listed.
        return RunSummary(path, problem=f"'{path}': {type(error).__name__}: {error}")


def _goal_met(settings: dict[str, Any], last: dict[str, float]) -> bool:
    """As the training itself decides: by the mean return, once as many episodes have ended as there are worlds."""
    schedule, own = settings.get("schedule"), settings.get("settings")
    if not isinstance(schedule, dict) or not isinstance(own, dict):
        return False
    goal, worlds = schedule.get("stop_at"), own.get("num_worlds")
    if not isinstance(goal, int | float) or not isinstance(worlds, int):
        return False
    return last.get("episodes", 0.0) >= worlds and last.get("episode_return", -math.inf) >= goal


def _out_of_time(settings: dict[str, Any], seconds: float) -> bool:
    schedule = settings.get("schedule")
    minutes = schedule.get("minutes") if isinstance(schedule, dict) else None
    return isinstance(minutes, int | float) and seconds >= 60 * minutes


def _place(run: RunSummary) -> tuple[bool, str, str, int, int, str]:
    folder = str(run.folder)
    # By length first: ant-2 comes before ant-10.
    return run.problem is not None, run.task, run.algo, run.seed or 0, len(folder), folder


def _cells(run: RunSummary) -> list[str]:
    planned = "" if run.planned_iterations is None else f"/{run.planned_iterations}"
    return [
        # Of what lies in a file of one's own, the file's name is enough.
        Path(run.task).name,
        Path(run.algo).name,
        "-" if run.seed is None else str(run.seed),
        f"{run.iterations}{planned}",
        "-" if run.best_return is None else f"{run.best_return:.1f}",
        "-" if run.seconds is None else str(timedelta(seconds=round(run.seconds))),
        "yes" if run.finished else "no",
        str(run.folder),
    ]


def _print_table(rows: list[list[str]]) -> None:
    head = ["task", "algo", "seed", "iterations", "best return", "time", "finished", "folder"]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    numbers = ("seed", "iterations", "best return", "time")
    for row in [head, *rows]:
        cells = [
            cell.rjust(width) if name in numbers else cell.ljust(width)
            for name, cell, width in zip(head, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())
