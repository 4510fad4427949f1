"""Worlds of several members in one batch, each member with the starts that its seed alone would give it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trot.envs.env import Env, Info
from trot.envs.member_start_store import MemberStartStore
from trot.envs.randomize import Randomize
from trot.envs.task import Task
from trot.envs.worlds import Worlds


class MemberEnv(Env):
    """As many environments as there are seeds, in one batch of worlds: one member's after the other's.

    Each member draws starts, random physics and memory as an Env with its seed does. A member's state is that of such
    an Env, cut out and put back.

    Args:
        task: What all of them do.
        num_worlds: Of each member.
        seeds: One for each member.
    """

    def __init__(
        self,
        task: Task[Any],
        num_worlds: int,
        seeds: Sequence[int],
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        stochastic_start: bool = True,
        randomize: Randomize | None = None,
    ) -> None:
        if not seeds:
            raise ValueError("seeds must name at least one member")
        super().__init__(task, len(seeds) * num_worlds, device, seeds[0], dtype, stochastic_start, randomize)
        self.members: int = len(seeds)
        self._each = num_worlds
        self._generators = [self.generator, *(self._seeded(seed) for seed in seeds[1:])]
        self._store: MemberStartStore = MemberStartStore(self._store.source, num_worlds, self._generators)

    @property
    def generators(self) -> list[torch.Generator]:
        return self._generators

    def reset(self, seed: int | None = None) -> tuple[Tensor, Info]:
        """Begin a new episode in every world. Members keep their own seeds: it takes none."""
        if seed is not None:
            raise ValueError("reset() takes no seed here: every member has its own")
        return super().reset()

    def _places_in_line(self) -> tuple[Tensor, int]:
        return torch.arange(self._each, device=self.device).repeat(self.members), self._each

    def get_state(self) -> dict[str, Any]:
        """A copy of everything, for set_state(): the members' states."""
        return {"members": [self.member_state(member) for member in range(self.members)]}

    def set_state(self, saved: dict[str, Any]) -> Tensor:
        """Go on exactly where get_state() was called. Returns the observation."""
        states = saved.get("members")
        if not isinstance(states, list) or len(states) != self.members:
            raise ValueError(f"the saved state is not that of {self.members} members; it must be what get_state() gave")
        self._store.used = 0
        for member, state in enumerate(states):
            self.set_member_state(member, state)
        return self.worlds.observation

    def member_state(self, member: int) -> dict[str, Any]:
        """What get_state() of an Env with this member's worlds alone would give."""
        worlds = self.worlds.map(lambda rows: rows[self._rows(member)])
        return self._saving.write(worlds, *self._store.of_member(member), self._generators[member])

    def set_member_state(self, member: int, saved: dict[str, Any]) -> None:
        """Let this member go on where member_state(), or get_state() of an Env, was called; the others stay."""
        worlds, starts = self._saving.read(saved, self._each)
        stored = self._store.stored
        if starts.count != stored:
            raise ValueError(f"the saved state has {starts.count} starts in store; this environment has {stored}")
        if self._worlds is None:
            self.reset()
        everyone = self.worlds.clone()
        self._generators[member].set_state(saved["generator"].cpu())
        for name, tensor in everyone.tensors().items():
            tensor[self._rows(member)] = getattr(worlds, name)
        self._settle(everyone)
        self._store.member_goes_on(member, starts, saved["used"])

    def _rows(self, member: int) -> slice:
        return slice(member * self._each, (member + 1) * self._each)


def member_worlds(worlds: Worlds, members: int | None) -> Worlds:
    """Views (members, worlds of each, columns); the worlds themselves where there are no members."""
    return worlds if members is None else worlds.map(lambda rows: split_axis(rows, 0, members))


def split_axis(tensor: Tensor, dim: int, members: int) -> Tensor:
    """The tensor with an axis of all worlds in two: members, and the worlds of each."""
    shape = tensor.shape
    return tensor.view(*shape[:dim], members, shape[dim] // members, *shape[dim + 1 :])
