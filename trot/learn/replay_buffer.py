"""What off-policy algorithms learn from: the last so many steps, in memory that is taken once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Field:
    """One named part of every row."""

    width: int | None = None
    """None: a single number, so that a batch of it is (rows,) and not (rows, width)."""
    dtype: torch.dtype = torch.float32

    def shape(self, rows: int) -> tuple[int, ...]:
        return (rows,) if self.width is None else (rows, self.width)


class ReplayBuffer(nn.Module):
    """A ring of rows: new ones take the place of the oldest.

    Neither add() nor sample() asks the GPU for an answer or has a branch on data, so that both can be captured in CUDA
    graphs. Everything is a buffer of this module, so that it is saved and resumed with the learner that it belongs to.
    """

    position: Tensor
    """Where the next row goes."""
    filled: Tensor
    """How many rows there are to draw from."""

    def __init__(self, capacity: int, fields: Mapping[str, Field], device: str | torch.device = "cpu") -> None:
        super().__init__()
        if capacity < 1:
            raise ValueError(f"a replay buffer's capacity must be at least 1, not {capacity}")
        if not fields:
            raise ValueError("a replay buffer needs at least one field")
        self.capacity, self.fields = capacity, dict(fields)
        for name in ("position", "filled"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64, device=device))
        for name, field in self.fields.items():
            empty = torch.zeros(field.shape(capacity), dtype=field.dtype, device=device)
            self.register_buffer(f"rows_{name}", empty)

    @torch.no_grad()
    def add(self, **rows: Tensor) -> None:
        """Write a batch, as many rows of every field."""
        count = self._require_fit(rows)
        places = (self.position + torch.arange(count, device=self.position.device)) % self.capacity
        for name, new in rows.items():
            self._kept(name).index_copy_(0, places, new)
        self.position.copy_((self.position + count) % self.capacity)
        self.filled.copy_((self.filled + count).clamp(max=self.capacity))

    @torch.no_grad()
    def sample(self, count: int, generator: torch.Generator, newest: Tensor | None = None) -> dict[str, Tensor]:
        """Draw rows, each with the same chance and independently of the others, so that one may come twice.

        With `newest`, a whole number, only from so many rows that came last. An empty buffer raises on the CPU. A GPU
        is not asked: it gives rows of zeros.
        """
        if self.filled.device.type == "cpu" and not self.filled:
            raise ValueError("there is nothing to draw from: the replay buffer is empty")
        # float32 has 24 bits: of some millions of rows it would choose some twice as often as others, and some never.
        share = torch.rand(count, generator=generator, dtype=torch.float64, device=self.filled.device)
        # The largest share is 1 - 2^-53, and its product with a whole number is never rounded up to that number.
        if newest is None:
            places = (share * self.filled).long()
        else:
            back = (share * torch.minimum(newest, self.filled)).long()
            places = (self.position - 1 - back) % self.capacity
        return {name: self._kept(name).index_select(0, places) for name in self.fields}

    def everything(self) -> dict[str, Tensor]:
        """All rows there are. A GPU is asked how many."""
        return {name: self._kept(name)[: int(self.filled)] for name in self.fields}

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Only the rows that there are: an empty memory of a million takes no room in a checkpoint."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in self.fields:
            key = f"{prefix}rows_{name}"
            destination[key] = destination[key][: int(self.filled)]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """The way back. Rows beyond those that are given are never drawn, and stay as they are."""
        for name in self.fields:
            saved = state_dict.get(f"{prefix}rows_{name}")
            kept = self._kept(name)
            if isinstance(saved, Tensor) and len(saved) < self.capacity and saved.shape[1:] == kept.shape[1:]:
                state_dict[f"{prefix}rows_{name}"] = torch.cat([saved.to(kept.device), kept[len(saved) :]])
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _kept(self, name: str) -> Tensor:
        return self.get_buffer(f"rows_{name}")

    def _require_fit(self, rows: Mapping[str, Tensor]) -> int:
        """How many rows these are; raises where they are not the fields of this buffer."""
        if rows.keys() != self.fields.keys():
            given_names = ", ".join(rows) or "nothing"
            raise ValueError(f"the replay buffer has the fields {', '.join(self.fields)}; given: {given_names}")
        first = next(iter(rows.values()))
        count = len(first) if first.dim() else 1
        if count > self.capacity:
            raise ValueError(f"{count} rows at once do not fit into a replay buffer of {self.capacity}")
        for name, field in self.fields.items():
            given, wanted = rows[name], field.shape(count)
            if given.shape != wanted or given.dtype != field.dtype:
                raise ValueError(
                    f"'{name}' must be {wanted} of {field.dtype}, not {tuple(given.shape)} of {given.dtype}"
                )
        return count
