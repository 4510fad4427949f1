"""What one environment step hands to the next, and the fresh starts that ended episodes continue from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from trot.envs.disturbances import Disturbances
from trot.sim.model import Model
from trot.sim.parameters import Parameters

LATER = ("memory", "activation", "disturbance", "past_actions")
"""Fields that earlier versions did not have. Where they are not saved, they had no columns."""


@dataclass(frozen=True)
class Columns:
    """What one field of Worlds or Starts is in an environment."""

    width: int
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Worlds:
    """One row per world. Together with the generator, all that a run needs to go on bit for bit."""

    joint_q: Tensor
    joint_qd: Tensor
    observation: Tensor
    previous_action: Tensor
    clock: Tensor
    """(num_worlds, 1) steps since the episode began."""
    parameter: Tensor
    """Each world's own masses and contact constants; no columns without randomised physics."""
    strength: Tensor
    """Factors on each world's controls; no columns without randomised physics."""
    memory: Tensor
    """What each world's task remembers, part beside part; no columns where it remembers nothing."""
    faults: Tensor
    """(num_worlds, 1) how often the world blew up."""
    last_fault: Tensor
    """What the last blow-up began from, side by side: joint_q, joint_qd, action, parameter, strength, activation and
    memory."""
    activation: Tensor
    """Of muscles that follow their control in time; no columns where the robot has none. Episodes begin at 0."""
    disturbance: Tensor
    """What was drawn for the episode: the delay of actions, and pushes with their times; no columns without."""
    past_actions: Tensor
    """The latest first, as many as the longest delay takes. Episodes begin with zeros."""

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Any], expected: Mapping[str, Columns], rows: int) -> Worlds:
        """From what tensors() gave, by this version or by one that lacked what is LATER. Else ValueError."""
        tensors = _with(LATER, tensors)
        _require_fields("worlds", tensors, [field.name for field in fields(cls)])
        require_columns("the saved", tensors, expected, rows)
        return cls(**tensors)

    def map(self, change: Callable[[Tensor], Tensor]) -> Worlds:
        return Worlds(**{name: change(tensor) for name, tensor in self.tensors().items()})

    def detach(self) -> Worlds:
        return self.map(Tensor.detach)

    def clone(self) -> Worlds:
        """Apart in memory and cut off from gradients."""
        return self.map(lambda tensor: tensor.detach().clone())

    @torch.no_grad()
    def copy_(self, other: Worlds) -> None:
        """Overwrite these numbers in place: how a CUDA graph hands the end of one replay to the start of the next."""
        for name, tensor in self.tensors().items():
            tensor.copy_(getattr(other, name))

    def tensors(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class Starts:
    """Episode starts in store, one row each: drawing one takes as many operations as drawing many."""

    joint_q: Tensor
    joint_qd: Tensor
    observation: Tensor
    parameter: Tensor
    strength: Tensor
    memory: Tensor
    disturbance: Tensor

    @classmethod
    def from_saved(cls, tensors: Mapping[str, Any], expected: Mapping[str, Columns]) -> Starts:
        """From what tensors() gave, by this version or by one that lacked what is LATER. Else ValueError."""
        tensors = _with([name for name in LATER if name in {field.name for field in fields(cls)}], tensors)
        _require_fields("starts", tensors, [field.name for field in fields(cls)])
        first = tensors["joint_q"]
        require_columns("the saved start's", tensors, expected, len(first) if first.dim() else 0)
        return cls(**tensors)

    @property
    def count(self) -> int:
        return len(self.joint_q)

    def map(self, change: Callable[[Tensor], Tensor]) -> Starts:
        return Starts(**{name: change(tensor) for name, tensor in self.tensors().items()})

    def rows(self, first: int, count: int) -> Starts:
        return self.map(lambda tensor: tensor[first : first + count])

    def select(self, index: Tensor) -> Starts:
        # Parameters and memory often have no columns.
        return self.map(lambda tensor: tensor.index_select(0, index) if tensor.shape[1] else tensor[: len(index)])

    def tensors(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def world_columns(
    model: Model,
    observations: int,
    actions: int,
    memory: Mapping[str, int],
    physics_differ: bool,
    disturbances: Disturbances | None,
    like: Tensor,
) -> dict[str, Columns]:
    """What every field of the worlds must be, with the dtype of `like`."""
    widths = {
        "joint_q": model.num_q,
        "joint_qd": model.num_dofs,
        "parameter": Parameters().pack(model, 1, like).shape[1] if physics_differ else 0,
        "strength": model.num_controls if physics_differ else 0,
        "memory": sum(memory.values()),
        "activation": model.num_acts,
    }
    widths["last_fault"] = sum(widths.values()) + actions
    widths |= {"observation": observations, "previous_action": actions}
    widths["disturbance"] = 0 if disturbances is None else disturbances.width
    widths["past_actions"] = 0 if disturbances is None else disturbances.past_actions * actions
    found = {name: Columns(width, like.dtype) for name, width in widths.items()}
    return found | {name: Columns(1, torch.int64) for name in ("clock", "faults")}


def require_columns(whose: str, tensors: Mapping[str, Any], expected: Mapping[str, Columns], rows: int) -> None:
    """Refuse what has not the rows, columns and dtype that an environment gives its own."""
    for name, tensor in tensors.items():
        shape, dtype = (rows, expected[name].width), expected[name].dtype
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            raise ValueError(
                f"{whose} {name} is {tuple(tensor.shape)} {tensor.dtype}; this environment has {shape} {dtype}"
            )


def _require_fields(whose: str, tensors: Mapping[str, Any], names: list[str]) -> None:
    for name in names:
        if not isinstance(tensors.get(name), Tensor):
            raise ValueError(f"the saved {whose} have no tensor '{name}'")
    if unknown := [name for name in tensors if name not in names]:
        raise ValueError(f"the saved {whose} have '{unknown[0]}', which this version of trot does not know")


def _with(names: Iterable[str], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """With tensors of no columns under these names, where there are none."""
    joint_q = tensors.get("joint_q")
    if not isinstance(joint_q, Tensor):
        return {**tensors}
    return {**tensors, **{name: joint_q.new_zeros(len(joint_q), 0) for name in names if name not in tensors}}
