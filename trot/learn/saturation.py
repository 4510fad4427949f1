"""How much of its range a squashed policy has left: where actions saturate, no gradient gets through."""

from __future__ import annotations

from torch import Tensor

SATURATED = 0.99
"""Actions beyond this count as saturated: the slope of tanh is a fiftieth there."""
SATURATION_COLUMNS = ("saturated", "action_slope")
"""Of metrics.csv: the share of saturated actions, and the mean of 1 - action², which is the slope of tanh."""


def saturation(actions: Tensor) -> dict[str, Tensor]:
    """Of actions (..., steps, worlds, actions), by the names of the columns."""
    where = (-3, -2, -1)
    saturated = (actions.abs() > SATURATED).to(actions.dtype)
    return {"saturated": saturated.mean(dim=where), "action_slope": (1 - actions.square()).mean(dim=where)}
