"""The figure of `trot study bound`."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from trot.study.improved_actions import Bound
from trot.view.plots.figures import STYLE, line_style

MOST_COLUMNS = 3


@matplotlib.rc_context(STYLE)
def draw_bound(found: Sequence[Bound]) -> Figure:
    """One panel per run: what the improved actions have gained on the policy so far, each world and their mean."""
    columns = min(MOST_COLUMNS, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(max(4.5, 3.2 * columns), 0.25 + 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel, case in zip(panels.flat, found, strict=False):
        gained = np.cumsum(case.improved - case.policy, axis=0)
        steps, style = np.arange(1, len(gained) + 1), line_style(0)
        panel.plot(steps, gained, color=style["color"], alpha=0.25, linewidth=0.7)
        panel.plot(steps, gained.mean(axis=1), **style)
        # Behind it the policy acts alone.
        panel.axvline(case.lengths.stretch, color="black", linestyle=":", linewidth=1)
        panel.axhline(0, color="black", linewidth=0.5)
        panel.set_title(case.name, loc="left", fontweight="bold")
    for panel in panels.flat[len(found) :]:
        panel.remove()
    figure.supxlabel("Steps", fontsize=9)
    figure.supylabel("Reward gained on the policy", fontsize=9)
    return figure
