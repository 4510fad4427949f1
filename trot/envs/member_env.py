"""Worlds of several members in one batch, each member with the starts that its seed alone would give it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trot.envs.device import capturing
from trot.envs.env import Env, Info, starts_in_store
from trot.envs.randomize import Randomize
from trot.envs.task import Task
from trot.envs.worlds import Starts, Worlds


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
        self._each, self._stored = num_worlds, starts_in_store(num_worlds)
        self._generators = [self.generator, *(self._seeded(seed) for seed in seeds[1:])]
        self._in_rounds = self.device.type == "cuda"
        """Whether every step takes a start for each world; those of a step, of all members, lie together then."""
        self._used_of = [0] * self.members
        """How many of its starts each member has used, where that differs."""

    @property
    def generators(self) -> list[torch.Generator]:
        return self._generators

    def reset(self, seed: int | None = None) -> tuple[Tensor, Info]:
        """Begin a new episode in every world. Members keep their own seeds: it takes none."""
        if seed is not None:
            raise ValueError("reset() takes no seed here: every member has its own")
        return super().reset()

    def get_state(self) -> dict[str, Any]:
        """A copy of everything, for set_state(): the members' states."""
        return {"members": [self.member_state(member) for member in range(self.members)]}

    def set_state(self, saved: dict[str, Any]) -> Tensor:
        """Go on exactly where get_state() was called. Returns the observation."""
        states = saved.get("members")
        if not isinstance(states, list) or len(states) != self.members:
            raise ValueError(f"the saved state is not that of {self.members} members; it must be what get_state() gave")
        self._used = 0
        for member, state in enumerate(states):
            self.set_member_state(member, state)
        return self.worlds.observation

    def member_state(self, member: int) -> dict[str, Any]:
        """What get_state() of an Env with this member's worlds alone would give."""
        worlds = self.worlds.map(lambda rows: rows[self._rows(member)])
        used = self._used // self.members if self._in_rounds else self._used_of[member]
        starts = self._by_member().map(lambda rows: rows[member].flatten(0, 1))
        return self._saved(worlds, starts, used, self._generators[member])

    def set_member_state(self, member: int, saved: dict[str, Any]) -> None:
        """Let this member go on where member_state(), or get_state() of an Env, was called; the others stay."""
        worlds, starts = self._read_saved(saved, self._each)
        if starts.count != self._stored:
            raise ValueError(f"the saved state has {starts.count} starts in store; this environment has {self._stored}")
        if self._worlds is None:
            self.reset()
        everyone = self.worlds.clone()
        self._generators[member].set_state(saved["generator"].cpu())
        for name, tensor in everyone.tensors().items():
            tensor[self._rows(member)] = getattr(worlds, name)
        self._settle(everyone)
        self._store(member, starts)
        self._used_of[member] = saved["used"]
        if self._in_rounds:
            # Behind all rounds that a member has used something of.
            self._used = max(self._used, -(-saved["used"] // self._each) * self.num_worlds)

    def _rows(self, member: int) -> slice:
        return slice(member * self._each, (member + 1) * self._each)

    def _by_member(self) -> Starts:
        """Views of the starts in store, (members, rounds, worlds of each, columns)."""
        assert self._starts is not None
        rounds = self._stored // self._each
        if self._in_rounds:
            return self._starts.map(lambda t: t.view(rounds, self.members, self._each, t.shape[1]).transpose(0, 1))
        return self._starts.map(lambda t: t.view(self.members, rounds, self._each, t.shape[1]))

    def _store(self, member: int, starts: Starts) -> None:
        for name, stored in self._by_member().tensors().items():
            stored[member].copy_(getattr(starts, name).view_as(stored[member]))

    def _draw_starts(self) -> None:
        self._starts = self._drawn(self._stored, self._generators)
        if self._in_rounds:
            rounds = self._stored // self._each
            self._starts = self._starts.map(
                lambda t: t.view(self.members, rounds, self._each, t.shape[1]).transpose(0, 1).reshape(t.shape)
            )
        self._starts_captured = capturing(self.device)
        self._used, self._used_of = 0, [0] * self.members

    def _fresh_starts(self, done: Tensor) -> Starts:
        if self._in_rounds:
            return self._one_each()
        ended = done.view(self.members, self._each)
        before = []
        for member, needed in enumerate(ended.sum(dim=1).tolist()):
            if self._used_of[member] + needed > self._stored:
                self._store(member, self._drawn(self._stored, [self._generators[member]]))
                self._used_of[member] = 0
            before.append(member * self._stored + self._used_of[member] - 1)
            self._used_of[member] += needed
        assert self._starts is not None
        return self._starts.select((torch.tensor(before).unsqueeze(1) + ended.cumsum(dim=1)).flatten().clamp_(min=0))


def member_worlds(worlds: Worlds, members: int | None) -> Worlds:
    """Views (members, worlds of each, columns); the worlds themselves where there are no members."""
    return worlds if members is None else worlds.map(lambda rows: split_axis(rows, 0, members))


def split_axis(tensor: Tensor, dim: int, members: int) -> Tensor:
    """The tensor with an axis of all worlds in two: members, and the worlds of each."""
    shape = tensor.shape
    return tensor.view(*shape[:dim], members, shape[dim] // members, *shape[dim + 1 :])
