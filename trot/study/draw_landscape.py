"""The figures of losses around a policy: along one weight, and over two directions."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from trot.study.one_weight import Landscape, LossCurve
from trot.view.plots.figures import COLOURS, STYLE

FAR_STEEPER = 30
"""How many times as large the derivative must be as the differences for a scale that shows both."""


@matplotlib.rc_context(STYLE)
def draw_landscape(found: Landscape) -> Figure:
    """Losses above, their derivatives below; the whole episode on the left, the window on the right."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    titles = (f"Whole episode, {found.episode.steps} steps", window_title(found.window.steps, found.critic))
    for column, (curve, title) in enumerate(zip((found.episode, found.window), titles, strict=True)):
        loss, slope = panels[:, column]
        loss.plot(found.shift, curve.loss, color=COLOURS[0])
        loss.set_title(title, loc="left", fontweight="bold")
        _draw_derivatives(slope, found, curve)
        slope.set_xlabel(f"{found.weight} moved by")
        slope.xaxis.set_major_locator(MaxNLocator(4))
        for panel in (loss, slope):
            panel.axvline(0, color="#999999", linewidth=0.8, linestyle=":")
    panels[0, 0].set_ylabel("Loss")
    panels[1, 0].set_ylabel("Derivative of the loss")
    panels[1, 1].legend(frameon=False, fontsize=8)
    figure.align_ylabels(panels[:, 0])
    figure.suptitle(f"{found.name}: {found.worlds} worlds, common random numbers", fontsize=9)
    return figure


def _draw_derivatives(panel: Any, found: Landscape, curve: LossCurve) -> None:
    derivative = np.where(np.isfinite(curve.derivative), curve.derivative, np.nan)
    # The one from the backward pass below: where both agree, the dashes lie on it.
    panel.plot(found.shift, derivative, color=COLOURS[1], label="backward pass")
    panel.plot(found.shift, curve.difference, color=COLOURS[0], linestyle="--", label="finite difference")
    largest = float(np.max(np.abs(curve.difference)))
    if largest > 0 and np.nanmax(np.abs(derivative), initial=0.0) > FAR_STEEPER * largest:
        panel.set_yscale("symlog", linthresh=largest)
        # Far from 0 on both sides, and 0: near it the numbers would lie on each other.
        top = int(np.log10(np.nanmax(np.abs(derivative))))
        powers = [10.0**power for power in sorted({top, top // 2}) if 10.0**power > FAR_STEEPER * largest]
        panel.yaxis.set_major_locator(FixedLocator([-power for power in powers[::-1]] + [0.0] + powers))
        panel.yaxis.set_minor_locator(NullLocator())


def window_title(steps: int, critic: bool) -> str:
    """What SHAC minimises, in a few words."""
    return f"Window of {steps} steps and value beyond" if critic else f"Window of {steps} steps"
