"""The figures of a gradient over a training: histograms of its entries, and norm and signal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from trot.study.draw_landscape import window_title
from trot.study.gradient_histograms import GradientEntries, Gradients
from trot.view.plots.figures import COLOURS, STYLE, line_style

ORDERS_APART = 1e3
"""How far norms of one side may differ before one scale for all would show a single line."""


@matplotlib.rc_context(STYLE)
def draw_histograms(found: Gradients) -> Figure:
    """One row per checkpoint; whole episode on the left, window on the right, each side with a scale of its own.

    Where norms of a side lie orders of magnitude apart, every panel of it has a scale of its own.
    """
    rows = len(found.checkpoints)
    figure = Figure(figsize=(7.2, 0.7 + 1.15 * rows), layout="constrained")
    panels = figure.subplots(rows, 2, squeeze=False, sharey=True)
    for column, each in enumerate((found.episode, found.window)):
        edges, counts = each.histogram()
        for row, (panel, iteration) in enumerate(zip(panels[:, column], found.iterations, strict=True)):
            if _is_apart(each):
                edges, (own,) = replace(each, entries=each.entries[row : row + 1]).histogram()
            else:
                own = counts[row]
                panel.tick_params(labelbottom=row == rows - 1)
            panel.stairs(own, edges, fill=True, color=COLOURS[column])
            panel.set_xlim(edges[0], edges[-1])
            panel.xaxis.set_major_locator(MaxNLocator(5))
            panel.set_yscale("log")
            panel.set_ylim(0.5, 2 * each.entries.shape[1])
            norm = f"norm {each.norm[row]:.2g}" if np.isfinite(each.norm[row]) else "not finite"
            panel.text(0.02, 0.94, f"iteration {iteration:,}", transform=panel.transAxes, va="top", fontsize=7)
            panel.text(0.98, 0.94, norm, transform=panel.transAxes, va="top", ha="right", fontsize=7)
        panels[-1, column].set_xlabel("Entry of the gradient")
    _title(panels[0], found)
    figure.supylabel("Weights", fontsize=9)
    figure.suptitle(f"{found.name}: {found.worlds} worlds", fontsize=9)
    return figure


def _is_apart(each: GradientEntries) -> bool:
    norms = each.norm[np.isfinite(each.norm) & (each.norm > 0)]
    return len(norms) > 0 and bool(norms.max() > ORDERS_APART * norms.min())


@matplotlib.rc_context(STYLE)
def draw_norms(found: Gradients) -> Figure:
    """Norm, and cosine between the gradients of two halves of the worlds, against the iteration."""
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    norm, signal = figure.subplots(1, 2)
    names = (f"Whole episode, {found.episode.steps} steps", window_title(found.window.steps, found.critic))
    for slot, (each, name) in enumerate(zip((found.episode, found.window), names, strict=True)):
        norm.plot(found.iterations, each.norm, marker="o", label=name, **line_style(slot))
        signal.plot(found.iterations, each.cosine, marker="o", label=name, **line_style(slot))
    norm.set_yscale("log")
    norm.set(xlabel="Iteration", ylabel="Norm of the gradient")
    signal.set(xlabel="Iteration", ylabel="Cosine between two halves\nof the worlds", ylim=(-1.05, 1.05))
    for panel in (norm, signal):
        panel.margins(x=0.04)
        panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    figure.legend(*norm.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    return figure


def _title(panels: NDArray[Any], found: Gradients) -> None:
    titles = (f"Whole episode, {found.episode.steps} steps", window_title(found.window.steps, found.critic))
    for panel, title in zip(panels, titles, strict=True):
        panel.set_title(title, loc="left", fontweight="bold")
