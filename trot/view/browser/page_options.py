"""The options that all commands have which show a robot in the browser."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass
class PageSettings:
    """Of a page in the browser."""

    checkpoint: str = "best"
    """Of a run: initial, iteration_000400, ..., best, last."""
    seed: int = 0
    """Of the starts and of random actions."""
    follow: bool = True
    """Keep the robot in the middle."""
    port: int | None = None
    """On 127.0.0.1; 8080 unless given, or any where that is taken. 0: any that is free."""
    browser: bool = True
    """Open the page at once, where there is a screen."""


def viser_is_missing(command: str) -> bool:
    """Whether the viewer's extra is not installed; then says how to get it."""
    try:
        import viser  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "viser":
            raise
        print(f'{command}: viser is not installed; pip install "trot[view]" adds it', file=sys.stderr)
        return True
    return False
