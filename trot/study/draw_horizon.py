"""The figure of `trot study horizon`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

from trot.study.horizon_curve import HorizonCurve
from trot.view.plots.figures import COLOURS, STYLE, task_heading


@matplotlib.rc_context(STYLE)
def draw_horizon(curves: Sequence[HorizonCurve]) -> Figure:
    """One row of panels per task: best return, and training time, against the horizon."""
    figure = Figure(figsize=(7.2, 0.25 + 2.2 * len(curves)), layout="constrained")
    panels = figure.subplots(len(curves), 2, squeeze=False)
    for curve, (returns, seconds) in zip(curves, panels, strict=True):
        _draw(returns, curve, curve.best_return, curve.best_deviation)
        returns.set_ylabel("Best return")
        returns.set_title(task_heading(curve.task), loc="left", fontweight="bold")
        _draw(seconds, curve, curve.seconds, curve.seconds_deviation)
        seconds.set_ylabel("Training time (s)")
        if np.all(curve.seconds > 0):
            guide = curve.seconds[0] * curve.horizons / curve.horizons[0]
            seconds.plot(curve.horizons, guide, color="#777777", linestyle=":", label="in proportion to h")
            seconds.set_yscale("log")
            seconds.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            seconds.yaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
            seconds.minorticks_off()
            seconds.legend(frameon=False, loc="upper left")
    for panel in panels[-1]:
        panel.set_xlabel("Horizon h (steps)")
    return figure


def _draw(panel: Any, curve: HorizonCurve, mean: Any, deviation: Any) -> None:
    bars = None if np.isnan(deviation).all() else np.nan_to_num(deviation)
    panel.errorbar(curve.horizons, mean, yerr=bars, color=COLOURS[0], marker="o", markersize=4, capsize=3)
    panel.set_xscale("log", base=2)
    panel.set_xticks(curve.horizons, [str(horizon) for horizon in curve.horizons])
    panel.minorticks_off()
    # Markers at the edge are whole.
    panel.margins(x=0.06)
