"""Losses over two directions as one page that any browser shows and turns, without a server or a network."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Any

import numpy as np

from trot.study.draw_landscape import window_title
from trot.study.two_directions import LossGrid, Surface

TITLE, DATA = "<!--title-->", "/*data*/"
"""Where surface_page.html gets its content."""


def surface_page(found: Surface) -> str:
    """The page's text."""
    template = files("trot.study").joinpath("surface_page.html").read_text(encoding="utf-8")
    kind = "directions scaled to each layer" if found.scaled else "directions as drawn"
    data = {
        "shift": found.shift.tolist(),
        "surfaces": [
            _described(f"Whole episode, {found.episode.steps} steps", found.episode),
            _described(window_title(found.window.steps, found.critic), found.window),
        ],
    }
    # A text that ends a script inside it would end the page's own.
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    title = html.escape(f"{found.name}: {found.worlds} worlds, {kind}")
    return template.replace(TITLE, title).replace(DATA, text)


def _described(title: str, grid: LossGrid) -> dict[str, Any]:
    """JSON has no word for what is not finite."""
    rows = [[float(f"{loss:.6g}") if np.isfinite(loss) else None for loss in row] for row in grid.loss]
    return {"title": title, "loss": rows}
