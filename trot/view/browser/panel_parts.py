"""What the panels of `trot view` and `trot play` are made of, and which values their controls take from pages."""

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
    guard.allow(slider, partial(is_between, low, high))
    return slider


def small(text: str, *, escaped: bool = False) -> str:
    """A paragraph in small type, shown as it is: a name in it may be somebody else's."""
    shown = text if escaped else html.escape(text)
    return f'<div style="margin: 0 1em 0.75em; font-size: 0.875em">{shown}</div>'


def is_bool(value: Value) -> bool:
    """Of a tick or a button."""
    return type(value) is bool


def is_option_of(choice: Any, value: Value) -> bool:
    """Of a list to choose from, as it is when the page chooses."""
    return type(value) is str and value in choice.options


def is_between(low: float, high: float, value: Value) -> bool:
    """Of a slider whose ends stay where they are."""
    return type(value) in (int, float) and low <= float(value) <= high
