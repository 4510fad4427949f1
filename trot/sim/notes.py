"""Sentences about a robot file, and how they name its elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trot.sim.errors import ModelError

_NAMED = 4
"""Of a longer list only so many are named."""


def listed(kind: str, names: Sequence[str]) -> str:
    """As in "geom 'a'", "geoms 'a' and 'b'" or "geoms 'a', 'b', 'c', 'd' and 9 more"."""
    quoted = [f"'{name}'" for name in names[:_NAMED]]
    if len(names) > _NAMED:
        quoted.append(f"{len(names) - _NAMED} more")
    if len(quoted) == 1:
        return f"{kind} {quoted[0]}"
    plural = {"body": "bodies", "mocap body": "mocap bodies", "equality": "equalities"}.get(kind, f"{kind}s")
    return f"{plural} {', '.join(quoted[:-1])} and {quoted[-1]}"


def verb(names: Sequence[str], one: str, many: str) -> str:
    """The form of a verb that goes with the list."""
    return one if len(names) == 1 else many


@dataclass
class Findings:
    """What is told of a robot file while it is read."""

    problems: list[str] = field(default_factory=list)
    """Why it cannot be simulated, one sentence or two each."""
    notes: list[str] = field(default_factory=list)
    """What is approximated or left out, one sentence each."""

    def raise_problems(self) -> None:
        """One error, a line per problem."""
        if self.problems:
            raise ModelError("\n  ".join(self.problems))
