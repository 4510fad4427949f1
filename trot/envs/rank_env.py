"""The share of a batch's worlds that one process has, with the starts that they would have in a single process."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.envs.randomize import Randomize
from trot.envs.rank_start_store import RankStartStore
from trot.envs.ranks import Ranks
from trot.envs.situation import joined
from trot.envs.task import Task


class RankEnv(Env):
    """Some of the worlds of an Env, as many on every rank. All ranks draw the starts of all worlds.

    Its state is that of the whole Env: every rank is to ask for it at the same time, and is given the same.

    Args:
        task: What all of them do.
        num_worlds: Of all ranks together.
        ranks: That share them.
    """

    def __init__(
        self,
        task: Task[Any],
        num_worlds: int,
        ranks: Ranks,
        device: str | torch.device = "cpu",
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        stochastic_start: bool = True,
        randomize: Randomize | None = None,
    ) -> None:
        super().__init__(task, ranks.part(num_worlds), device, seed, dtype, stochastic_start, randomize)
        self.ranks: Ranks = ranks
        self._everywhere = num_worlds
        self._store: RankStartStore = RankStartStore(self._store.source, num_worlds, ranks, self.generator)

    def _places_in_line(self) -> tuple[Tensor, int]:
        return torch.arange(self._everywhere, device=self.device)[self.ranks.rows(self.num_worlds)], self._everywhere

    def get_state(self) -> dict[str, Any]:
        """Of all ranks' worlds, as an Env that has them all gives it."""
        saved = super().get_state()
        return {**saved, "worlds": {name: self.ranks.gathered(rows) for name, rows in saved["worlds"].items()}}

    def set_state(self, saved: dict[str, Any]) -> Tensor:
        """Go on exactly where get_state() was called, here or in an Env with all worlds. Returns the observation."""
        everyone, starts = self._saving.read(saved, self._everywhere)
        own = everyone.map(lambda rows: rows[self.ranks.rows(self.num_worlds)].contiguous())
        self.generator.set_state(saved["generator"].cpu())
        self._settle(own)
        self._store.go_on(starts, saved["used"])
        return own.observation

    def _shown(self, observation: dict[str, Tensor]) -> Tensor:
        clean = joined(observation)
        if self._disturbances is None:
            return clean
        # Every rank draws the noise of all worlds.
        noise = self._disturbances.noisy(clean.new_zeros(self._everywhere, clean.shape[1]), self.generators)
        return clean + noise[self.ranks.rows(self.num_worlds)]
