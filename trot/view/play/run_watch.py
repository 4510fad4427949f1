"""A run while it learns: its newest policy, and its returns so far. Only reads what the training writes anyway."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import viser

from trot.learn.agent import Agent, agent_names, load_agent
from trot.runs.folder import CHECKPOINTS, RunFolder
from trot.sim.model import Floats
from trot.view.browser.charts import add_chart

LOOK_SECONDS = 2.0
MOST_POINTS = 300
"""Of the curve."""


@dataclass(frozen=True)
class News:
    """What a look at the run found."""

    about: str
    agent: Agent | None
    """Where there is a newer one than at the look before."""
    iterations: Floats
    returns: Floats


class RunWatch:
    """Looks now and then."""

    def __init__(self, run: RunFolder) -> None:
        self._run, self._due, self._stamp = run, 0.0, 0
        self._checkpoint = ""

    def look(self, now: float) -> News | None:
        """None where it is not time yet, or where the folder cannot be read at this moment."""
        if now < self._due:
            return None
        self._due = now + LOOK_SECONDS
        # Files are replaced while the training goes on, and the folder may be removed.
        with contextlib.suppress(OSError, ValueError):
            agent = self._newer_agent()
            rows = self._run.read_metrics()
            iterations, returns = curve(rows)
            return News(self._about(rows, returns), agent, iterations, returns)
        return None

    def _newer_agent(self) -> Agent | None:
        files = [self._run.path / CHECKPOINTS / f"{name}.pt" for name in agent_names(self._run)]
        stamp, newest = max((file.stat().st_mtime_ns, file.stem) for file in files)
        if stamp == self._stamp:
            return None
        agent = load_agent(self._run, newest)
        self._stamp, self._checkpoint = stamp, newest
        return agent

    def _about(self, rows: Sequence[dict[str, float]], returns: Floats) -> str:
        total = self._run.settings.get("iterations", "?")
        done = f"iteration {rows[-1]['iteration']:.0f} of {total}" if rows else "before its first iteration"
        mean = f", return {returns[-1]:.1f}" if len(returns) else ""
        return f"{self._run.path.name}, {done}{mean}; its newest policy is '{self._checkpoint}'"


def curve(rows: Sequence[dict[str, float]]) -> tuple[Floats, Floats]:
    """Iterations and mean returns, from the first episode that ended on, and no more of them than can be seen."""
    ended = [row for row in rows if row.get("episodes", 0) and math.isfinite(row["episode_return"])]
    # Counted from the newest, which is always there.
    kept = ended[:: -math.ceil(len(ended) / MOST_POINTS) or -1][::-1]
    return (np.array([row["iteration"] for row in kept]), np.array([row["episode_return"] for row in kept]))


class LearningCurve:
    """The returns of a run that learns, inside a folder."""

    def __init__(self, folder: viser.GuiFolderHandle, gui: viser.GuiApi) -> None:
        with folder:
            self._chart = add_chart(gui, "Return by iteration", "iteration", ["return"], visible=False)

    def show(self, news: News) -> None:
        # One point alone has no line, and its axis no length.
        if len(news.iterations) >= 2:
            self._chart.data, self._chart.visible = (news.iterations, news.returns), True
