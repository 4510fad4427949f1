"""A state with what the world remembers: what a task measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trot.sim.state import State


@dataclass(frozen=True, eq=False)
class Situation(State):
    """The simulator's state, and the task's memory beside it."""

    memory: dict[str, Tensor] = field(default_factory=dict)
    """(num_worlds, width) each, under the names that Task.draw_memory() gives; empty where a task has none."""

    def detach(self) -> Situation:
        """The same numbers, cut off from the gradient."""
        memory = {name: part.detach() for name, part in self.memory.items()}
        activation = None if self.activation is None else self.activation.detach()
        return Situation(self.joint_q.detach(), self.joint_qd.detach(), memory, activation=activation)


def situation_of(
    joint_q: Tensor, joint_qd: Tensor, memory: Tensor, activation: Tensor | None, widths: Mapping[str, int]
) -> Situation:  # fmt: skip
    """From rows whose memory lies part beside part, in these widths."""
    parts = memory.split_with_sizes(list(widths.values()), dim=1) if widths else ()
    return Situation(joint_q, joint_qd, dict(zip(widths, parts, strict=True)), activation=activation)


def as_columns(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """(num_worlds, width) each, where a part may also be (num_worlds,)."""
    return {name: part.unsqueeze(1) if part.dim() == 1 else part for name, part in parts.items()}


def joined(parts: Mapping[str, Tensor]) -> Tensor:
    """All parts side by side, (num_worlds, sum of their widths)."""
    return torch.cat(list(as_columns(parts).values()), dim=1)


def widths_of(parts: Mapping[str, Tensor]) -> dict[str, int]:
    """How many numbers each part has, all of them being columns."""
    return {name: part.shape[-1] for name, part in parts.items()}


def require_same_memory(saved: Mapping[str, int], expected: Mapping[str, int], whose: str) -> None:
    """Refuse what was saved by a task whose memory had other names or widths, or another order of them."""
    if list(saved.items()) != list(expected.items()):
        raise ValueError(
            f"{whose} has a memory of {_listed(saved)}; {_listed(expected)} is what the task's draw_memory() gives now"
        )


def _listed(widths: Mapping[str, int]) -> str:
    return ", ".join(f"'{name}' ({width})" for name, width in widths.items()) or "nothing"
