"""What the panel of `trot play` is made of."""

from __future__ import annotations

import html
from functools import partial
from typing import Any

import viser

from trot.view.browser.messages import Value
from trot.view.browser.page_guard import Guard


def add_slider(
    gui: viser.GuiApi, guard: Guard, label: str, low: float, high: float, initial: float, hint: str, step: float = 0.05
) -> Any:
    """One that pages may move between its ends."""
    # Any, because the types of viser's sliders do not know that they can be moved.
    slider: Any = gui.add_slider(label, min=low, max=high, step=step, initial_value=initial, hint=hint)
    guard.allow(slider, partial(_is_between, low, high))
    return slider


def small(text: str, *, escaped: bool = False) -> str:
    """A paragraph in small type, shown as it is: a name in it may be somebody else's."""
    shown = text if escaped else html.escape(text)
    return f'<div style="margin: 0 1em 0.75em; font-size: 0.875em">{shown}</div>'


def _is_between(low: float, high: float, value: Value) -> bool:
    return type(value) in (int, float) and low <= float(value) <= high
