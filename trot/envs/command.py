"""A number that a task's robot is told, such as how fast to walk: `trot play` makes a slider and keys of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Command:
    """What it is called, in which unit, and between which bounds it lies."""

    name: str
    unit: str
    low: float
    high: float
    initial: float = 0.0
    """What `trot play` begins with."""
    arrows: Literal["up-down", "left-right"] | None = None
    """The keys that steer it: up or left towards `high`, down or right towards `low`."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"command '{self.name}': low must be below high, both finite, not {self.low}, {self.high}")
        if not self.low <= self.initial <= self.high:
            raise ValueError(f"command '{self.name}': {self.initial} is not between {self.low} and {self.high}")
