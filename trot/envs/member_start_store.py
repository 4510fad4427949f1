"""Starts in store for members of one batch, each with a generator of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trot.envs.start_store import StartSource, StartStore, starts_in_store
from trot.envs.worlds import Starts


class MemberStartStore(StartStore):
    """Each member is handed out the starts that a StartStore with its generator alone would hand out.

    Taken in rounds, those of a step, of all members, lie together.
    """

    def __init__(self, source: StartSource, each: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__(source, each * len(generators), generators[0])
        self.generators, self.members, self.each = generators, len(generators), each
        self.stored = starts_in_store(each)
        """Of each member."""
        self._used_of = [0] * self.members
        """How many of its starts each member has used, where that differs."""

    def draw(self) -> None:
        self.starts = self.source.draw(self.stored, self.generators)
        if self.in_rounds:
            rounds = self.stored // self.each
            self.starts = self.starts.map(
                lambda t: t.view(self.members, rounds, self.each, t.shape[1]).transpose(0, 1).reshape(t.shape)
            )
        self._begin()
        self._used_of = [0] * self.members

    def of_member(self, member: int) -> tuple[Starts, int]:
        """Its starts, and how many of them are used."""
        used = self.used // self.members if self.in_rounds else self._used_of[member]
        return self._by_member().map(lambda rows: rows[member].flatten(0, 1)), used

    def member_goes_on(self, member: int, starts: Starts, used: int) -> None:
        """From these, of which so many are used; the others stay."""
        self._store(member, starts)
        self._used_of[member] = used
        if self.in_rounds:
            # Behind all rounds that a member has used something of.
            self.used = max(self.used, -(-used // self.each) * self.num_worlds)

    def _by_member(self) -> Starts:
        """Views of the starts in store, (members, rounds, worlds of each, columns)."""
        assert self.starts is not None
        rounds = self.stored // self.each
        if self.in_rounds:
            return self.starts.map(lambda t: t.view(rounds, self.members, self.each, t.shape[1]).transpose(0, 1))
        return self.starts.map(lambda t: t.view(self.members, rounds, self.each, t.shape[1]))

    def _store(self, member: int, starts: Starts) -> None:
        for name, stored in self._by_member().tensors().items():
            stored[member].copy_(getattr(starts, name).view_as(stored[member]))

    def _as_needed(self, done: Tensor) -> Starts:
        ended = done.view(self.members, self.each)
        before = []
        for member, needed in enumerate(ended.sum(dim=1).tolist()):
            if self._used_of[member] + needed > self.stored:
                self._store(member, self.source.draw(self.stored, [self.generators[member]]))
                self._used_of[member] = 0
            before.append(member * self.stored + self._used_of[member] - 1)
            self._used_of[member] += needed
        assert self.starts is not None
        return self.starts.select((torch.tensor(before).unsqueeze(1) + ended.cumsum(dim=1)).flatten().clamp_(min=0))
