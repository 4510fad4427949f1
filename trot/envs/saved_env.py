"""What get_state() of an environment gives, and set_state() takes: tensors and a number, safe to save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from trot.envs.situation import require_same_memory
from trot.envs.worlds import Columns, Starts, Worlds
from trot.sim.manifold import with_unit_quaternions
from trot.sim.model import Model


@dataclass(frozen=True)
class SavedEnv:
    """Writes and reads the states of environments whose worlds have these fields."""

    model: Model
    columns: Mapping[str, Columns]
    memory: Mapping[str, int]
    """Widths of what the task remembers, by name."""
    device: torch.device

    def write(self, worlds: Worlds, starts: Starts, used: int, generator: torch.Generator) -> dict[str, Any]:
        """A copy of it all."""
        return {
            "worlds": worlds.clone().tensors(),
            "memory": dict(self.memory),
            "starts": {name: tensor.clone() for name, tensor in starts.tensors().items()},
            "used": used,
            "generator": generator.get_state(),
        }

    def read(self, saved: Mapping[str, Any], rows: int) -> tuple[Worlds, Starts]:
        """Copies on this device of what write() gave of so many worlds. ValueError where they do not fit in here."""
        for name in ("worlds", "starts", "used", "generator"):
            if name not in saved:
                raise ValueError(f"the saved state has no '{name}'; it must be what get_state() gave")
        require_same_memory(saved.get("memory", {}), self.memory, "the saved state")
        worlds = self.read_worlds(saved["worlds"], rows)
        starts = Starts.from_saved(self._copied(saved["starts"]), self.columns)
        if not isinstance(saved["used"], int) or not 0 <= saved["used"] <= starts.count:
            raise ValueError(f"the saved state says that {saved['used']!r} of its {starts.count} starts are used")
        return worlds, replace(starts, joint_q=with_unit_quaternions(self.model, starts.joint_q))

    def read_worlds(self, tensors: Mapping[str, Any], rows: int) -> Worlds:
        """The same of what Worlds.tensors() gave alone."""
        return upright(self.model, Worlds.from_saved(self._copied(tensors), self.columns, rows))

    def _copied(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: tensor.detach().to(self.device, copy=True).contiguous() if isinstance(tensor, Tensor) else tensor
            for name, tensor in tensors.items()
        }


def upright(model: Model, worlds: Worlds) -> Worlds:
    """With quaternions of length 1."""
    return replace(worlds, joint_q=with_unit_quaternions(model, worlds.joint_q))
