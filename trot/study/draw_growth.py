"""The figure of `trot study growth`."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from trot.learn.gradient_health import STEEP
from trot.study.adjoint_growth import Growth
from trot.view.plots.figures import STYLE, line_style

MOST_COLUMNS = 3


@matplotlib.rc_context(STYLE)
def draw_growth(found: Sequence[Growth]) -> Figure:
    """One panel per subject, one line per substep count: median over the worlds, and the quartiles around it."""
    names = list(dict.fromkeys(case.name for case in found))
    columns = min(MOST_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(max(4.5, 3.2 * columns), 0.25 + 2.6 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel, name in zip(panels.flat, names, strict=False):
        for slot, case in enumerate(case for case in found if case.name == name):
            median, lower, upper = (case.quantile(share) for share in (0.5, 0.25, 0.75))
            steps, style = np.arange(len(median)), line_style(slot)
            panel.plot(steps, median, **style, label=f"{case.substeps} substeps, {case.per_second:+.2g}/s")
            panel.fill_between(steps, lower, upper, color=style["color"], alpha=0.15, linewidth=0)
        if any(np.any(case.quantile(0.5) > 0) for case in found if case.name == name):
            panel.set_yscale("log")
        panel.axhline(STEEP, color="black", linestyle=":", linewidth=1)
        panel.set_title(name, loc="left", fontweight="bold")
        panel.legend(frameon=False, fontsize=7, handlelength=2.4)
    for panel in panels.flat[len(names) :]:
        panel.remove()
    figure.supxlabel("Steps backward", fontsize=9)
    figure.supylabel("Norm of the gradient by the state", fontsize=9)
    return figure
