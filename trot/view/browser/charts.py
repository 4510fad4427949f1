"""Return and reward terms against time, drawn as far as the motion has been played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from trot.view.motion.trajectory import Trajectory

Floats = NDArray[np.float64]

COLORS = ("#2a78d6", "#d9662b", "#1b9e77", "#c03a8e", "#8a6d00", "#6a51a3", "#555555", "#009fb7")
HEIGHT = 190
"""Pixels."""
AXES: tuple[Any, ...] = ({}, {"size": 64})
"""Across and up; room for numbers such as -2,400."""


def episode_returns(trajectory: Trajectory) -> Floats:
    """(frames, worlds) the reward since the episode began."""
    frames, worlds = trajectory.begins.shape
    reward = np.zeros((frames, worlds))
    for values in trajectory.reward_terms.values():
        reward += values
    total: Floats = np.cumsum(reward, axis=0)
    first = np.maximum.accumulate(np.where(trajectory.begins, np.arange(frames)[:, None], 0), axis=0)
    before: Floats = np.vstack([np.zeros((1, worlds)), total])
    since: Floats = total - np.take_along_axis(before, first, axis=0)
    return since


def add_chart(gui: viser.GuiApi, title: str, across: str, names: Sequence[str], **look: Any) -> viser.GuiUplotHandle:
    """An empty chart with a line for each name, against what goes across; inside of the folder that is entered."""
    series: list[Any] = [{"label": across}]
    for index, name in enumerate(names):
        series.append({"label": name, "stroke": COLORS[index % len(COLORS)], "width": 1.5})
    # Two points: one alone has no line, and its axis no length.
    nothing = (np.arange(2.0), *[np.zeros(2)] * len(names))
    look = {"scales": {"x": {"time": False}}, **look}
    return gui.add_uplot(
        nothing, tuple(series), title=title, legend={"show": True}, height=HEIGHT, axes=AXES, **look
    )  # fmt: skip


class Charts:
    """Two charts inside a folder: the return of one world, and its reward's terms.

    They stay for good and get other data: a browser that is behind would take updates of a removed chart for an error.
    """

    def __init__(self, folder: viser.GuiFolderHandle, gui: viser.GuiApi, trajectory: Trajectory) -> None:
        self._charts: list[viser.GuiUplotHandle] = []
        titles = {"Return of the episode": ["return"], "Reward by term": list(trajectory.reward_terms)}
        for title, names in titles.items() if trajectory.reward_terms else ():
            with folder:
                self._charts.append(add_chart(gui, title, "s", names))
        self.load(trajectory, 0)

    def load(self, trajectory: Trajectory, world: int) -> None:
        """Take the numbers of this world from now on."""
        self._time = trajectory.dt * np.arange(len(trajectory.begins), dtype=np.float64)
        terms = [values[:, world].astype(np.float64) for values in trajectory.reward_terms.values()]
        self._curves = [[episode_returns(trajectory)[:, world]], terms]
        for chart, curves in zip(self._charts, self._curves, strict=False):
            low, high = min(0.0, *(curve.min() for curve in curves)), max(0.0, *(curve.max() for curve in curves))
            margin = 0.05 * (high - low) or 1.0
            # Fixed from the beginning, or the curves would shrink while they are drawn.
            chart.scales = {
                "x": {"time": False, "range": (0.0, float(self._time[-1]))},
                "y": {"range": (float(low - margin), float(high + margin))},
            }

    def show(self, frame: int) -> None:
        """Draw up to this frame."""
        # Two points at least: one alone has no line, and its axis no length.
        end = max(frame + 1, 2)
        for chart, curves in zip(self._charts, self._curves, strict=False):
            chart.data = (self._time[:end], *(curve[:end] for curve in curves))
