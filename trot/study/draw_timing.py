"""The figure of `trot study timing`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from trot.study.episode_time import BASE_HORIZON, BASE_WORLDS, PAPER_GPU, PAPER_MS, PARTS, EpisodeTime
from trot.view.plots.figures import STYLE, line_style, task_heading

STYLES = {part: line_style(slot) for slot, part in enumerate((*PARTS, "sum"))}
PAPER_MARKER: dict[str, Any] = {"marker": "D", "markersize": 5, "markerfacecolor": "white", "linestyle": "none"}


@matplotlib.rc_context(STYLE)
def draw_timing(times: Sequence[EpisodeTime]) -> Figure:
    """One row of panels per task: against worlds, and against the horizon; the paper's figures as diamonds."""
    tasks = list(dict.fromkeys(time.task for time in times))
    figure = Figure(figsize=(7.2, 0.6 + 2.2 * len(tasks)), layout="constrained")
    panels = figure.subplots(len(tasks), 2, squeeze=False, sharey="row")
    for task, (by_worlds, by_horizon) in zip(tasks, panels, strict=True):
        of_task = [time for time in times if time.task == task]
        along_worlds = {time.num_worlds: time for time in of_task if time.horizon == BASE_HORIZON}
        along_horizon = {time.horizon: time for time in of_task if time.num_worlds == BASE_WORLDS}
        _draw(by_worlds, along_worlds, PAPER_MS.get(task, {}), BASE_WORLDS)
        _draw(by_horizon, along_horizon, PAPER_MS.get(task, {}), BASE_HORIZON)
        by_worlds.set_title(task_heading(task), loc="left", fontweight="bold")
        by_worlds.set_ylabel("Milliseconds")
    panels[-1, 0].set_xlabel(f"Worlds, at h = {BASE_HORIZON}")
    panels[-1, 1].set_xlabel(f"Horizon h, in {BASE_WORLDS} worlds")
    handles = [Line2D([], [], **style, label=part) for part, style in STYLES.items()]
    if any(task in PAPER_MS for task in tasks):
        handles.append(Line2D([], [], **PAPER_MARKER, color="#777777", label=f"the paper's, {PAPER_GPU}"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def _draw(panel: Any, times: dict[int, EpisodeTime], paper: dict[str, float], base: int) -> None:
    x = sorted(times)
    for part, style in STYLES.items():
        values = [times[key].total if part == "sum" else times[key].milliseconds[part] for key in x]
        panel.plot(x, values, **style, marker=".")
        if part in paper:
            panel.plot([base], [paper[part]], **PAPER_MARKER, color=style["color"])
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(x, [f"{key:,}" for key in x])
    panel.minorticks_off()
    panel.margins(x=0.06)
