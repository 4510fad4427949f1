"""The figure of losses over two directions: surfaces above, contours below."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from trot.study.draw_landscape import window_title
from trot.study.two_directions import LossGrid, Surface
from trot.view.plots.figures import STYLE

LEVELS = 18


@matplotlib.rc_context(STYLE)
def draw_surface(found: Surface) -> Figure:
    """The whole episode on the left, the window on the right."""
    figure = Figure(figsize=(7.2, 6.2), layout="constrained")
    titles = (f"Whole episode, {found.episode.steps} steps", window_title(found.window.steps, found.critic))
    for column, (grid, title) in enumerate(zip((found.episode, found.window), titles, strict=True)):
        solid: Any = figure.add_subplot(2, 2, column + 1, projection="3d")
        solid.set_title(title, fontweight="bold")
        _draw_solid(solid, found, grid)
        flat = figure.add_subplot(2, 2, column + 3)
        # Rows of the image are the second direction.
        filled = flat.contourf(found.shift, found.shift, grid.loss.T, levels=LEVELS, cmap="viridis")
        flat.contour(found.shift, found.shift, grid.loss.T, levels=LEVELS, colors="white", linewidths=0.3)
        flat.plot(0, 0, marker="+", color="white", markersize=8)
        flat.set(xlabel="First direction", ylabel="Second direction", aspect="equal")
        figure.colorbar(filled, ax=flat, label="Loss", shrink=0.9)
    kind = "directions scaled to each layer" if found.scaled else "directions as drawn"
    figure.suptitle(f"{found.name}: {found.worlds} worlds, {kind}, common random numbers", fontsize=9)
    return figure


def _draw_solid(panel: Any, found: Surface, grid: LossGrid) -> None:
    first, second = np.meshgrid(found.shift, found.shift, indexing="ij")
    panel.plot_surface(
        first, second, grid.loss, cmap="viridis", rcount=len(found.shift), ccount=len(found.shift), linewidth=0
    )
    panel.set(xlabel="First direction", ylabel="Second direction", zlabel="Loss")
    for axis in (panel.xaxis, panel.yaxis, panel.zaxis):
        axis.set_major_locator(MaxNLocator(4))
    panel.tick_params(labelsize=6, pad=0)
