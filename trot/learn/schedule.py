"""When a training saves, and when it stops."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """When to save and when to stop."""

    save_every: int = 100
    """Iterations between checkpoints to resume from; more where a memory of past steps makes them large."""
    keep_every: int | None = None
    """Iterations between checkpoints that are kept; a fifth of all unless given: six of them, with the first."""
    stop_at: float | None = None
    """End the run when the mean return of finished episodes reaches this."""
    minutes: float | None = None
    """End the run after so many minutes of training, those before a resume included."""

    def __post_init__(self) -> None:
        for name in ("save_every", "keep_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if self.stop_at is not None and math.isnan(self.stop_at):
            raise ValueError("stop_at must be a number, not nan: no return would ever reach it")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ValueError(f"minutes must be above 0 and finite, not {self.minutes:g}")

    def out_of_time(self, seconds: float) -> bool:
        """Whether a run that has trained for so long is at its end."""
        return self.minutes is not None and seconds >= 60 * self.minutes
