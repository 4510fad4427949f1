"""What a learner saves where several ranks share its worlds: the same as in one process that has them all."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

from trot.envs.ranks import Ranks

WORLD_AXES = {"episodes.collected": 0, "episodes.age": 0, "bad_window.noise": 1, "bad_window.start_*": 0}
"""Where each rank has the rows of its own worlds, and along which axis; the environment joins its worlds itself."""


def joined(state: Mapping[str, Any], ranks: Ranks) -> dict[str, Any]:
    """The state with the rows of all ranks. All of them are to ask for it at the same time."""
    whole = dict(state)
    for name, part in state.items():
        axis = world_axis(name)
        if axis is not None:
            whole[name] = ranks.gathered(part, axis)
    return whole


def own_part(state: Mapping[str, Any], ranks: Ranks) -> dict[str, Any]:
    """The way back: the state with the rows of this rank."""
    own = dict(state)
    for name, part in state.items():
        axis = world_axis(name)
        if axis is not None:
            own[name] = part.tensor_split(ranks.size, dim=axis)[ranks.number]
    return own


def world_axis(name: str) -> int | None:
    """Of what a learner without members saves by this name; None where it has no rows of worlds."""
    return next((axis for pattern, axis in WORLD_AXES.items() if fnmatch(name, pattern)), None)
