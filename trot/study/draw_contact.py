"""The figure of `trot study contact`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from trot.study.contact_gradients import ContactCase
from trot.view.plots.figures import STYLE, line_style

Value = Callable[[ContactCase], float]

PANELS: dict[str, Value] = {
    "Gradient norm": lambda case: case.signal.norm,
    "Deviation of one world": lambda case: float(np.sqrt(case.signal.variance)),
    "Signal to noise": lambda case: case.signal.signal_to_noise,
    "Cosine of halves": lambda case: case.signal.cosine,
    "Steep worlds (%)": lambda case: 100 * case.steep,
    "Blown-up worlds (%)": lambda case: 100 * case.blown_up,
}
LOGARITHMIC = ("Gradient norm", "Deviation of one world")
RETURN = "Return after training"


@matplotlib.rc_context(STYLE)
def draw_contact(cases: Sequence[ContactCase]) -> Figure:
    """One panel per figure, one line per constant, against the factor."""
    values = dict(PANELS)
    if any(len(case.returns) for case in cases):
        values[RETURN] = lambda case: case.last_return
    columns = -(-len(values) // 2)
    figure = Figure(figsize=(2.9 * columns, 4.6), layout="constrained")
    panels = figure.subplots(2, columns, squeeze=False)
    constants = list(dict.fromkeys(case.constant for case in cases))
    factors = sorted({case.factor for case in cases})
    for panel, (label, value) in zip(panels.flat, values.items(), strict=False):
        for slot, constant in enumerate(constants):
            line = [(case.factor, value(case)) for case in cases if case.constant == constant]
            panel.plot(*zip(*line, strict=True), **line_style(slot), marker=".", label=constant.replace("_", " "))
        panel.set(xscale="log", xlabel="Factor", ylabel=label, xticks=factors)
        panel.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        panel.xaxis.set_minor_formatter(NullFormatter())
        if label in LOGARITHMIC and any(value(case) > 0 for case in cases):
            panel.set_yscale("log")
        elif label.endswith("(%)"):
            panel.set_ylim(-4, 104)
        panel.margins(x=0.05)
    for panel in panels.flat[len(values) :]:
        panel.remove()
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure
