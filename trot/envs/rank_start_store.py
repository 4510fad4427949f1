"""Starts in store for one process's share of the worlds: those that they would have in a single process."""

from __future__ import annotations

import torch
from torch import Tensor

from trot.envs.ranks import Ranks
from trot.envs.start_store import StartSource, StartStore, starts_in_store
from trot.envs.worlds import Starts


class RankStartStore(StartStore):
    """Every rank draws the starts of all worlds, and hands out its own.

    Args:
        source: What is drawn.
        everywhere: Worlds of all ranks together.
        ranks: That share them.
        generator: In the same state on every rank.
    """

    def __init__(self, source: StartSource, everywhere: int, ranks: Ranks, generator: torch.Generator) -> None:
        super().__init__(source, ranks.part(everywhere), generator)
        self.everywhere, self.ranks = everywhere, ranks
        self._places: Tensor | None = None
        """In store, of the starts for this rank's worlds, where they are known already."""

    def draw(self) -> None:
        self.starts = self.source.draw(starts_in_store(self.everywhere), [self.generator])
        self._places = None
        self._begin()

    def some_begin(self, done: Tensor) -> bool:
        if not self.in_rounds:
            # Also where none of this rank's is done: the others' starts are used up here, too.
            self._places = self._places_of(done)
        return super().some_begin(done)

    def _one_each(self) -> Starts:
        self.require_captured()
        first = self._take(self.everywhere) + self.ranks.rows(self.num_worlds).start
        assert self.starts is not None
        return self.starts.rows(first, self.num_worlds)

    def _as_needed(self, done: Tensor) -> Starts:
        places, self._places = self._places_of(done) if self._places is None else self._places, None
        assert self.starts is not None
        return self.starts.select(places)

    def _places_of(self, done: Tensor) -> Tensor:
        everyone = self.ranks.gathered(done).squeeze(1)
        first = self._take(int(everyone.sum()))
        return (first - 1 + everyone.cumsum(0)).clamp_(min=0)[self.ranks.rows(self.num_worlds)]
