"""The share of a batch's worlds that one process has, with the starts that they would have in a single process."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trot.envs.device import capturing
from trot.envs.env import Env, starts_in_store
from trot.envs.randomize import Randomize
from trot.envs.ranks import Ranks
from trot.envs.task import Task
from trot.envs.worlds import Starts


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
        self._next_starts: Tensor | None = None
        """Places in store of the starts for this rank's worlds, where they are known already."""

    def get_state(self) -> dict[str, Any]:
        """Of all ranks' worlds, as an Env that has them all gives it."""
        saved = super().get_state()
        return {**saved, "worlds": {name: self.ranks.gathered(rows) for name, rows in saved["worlds"].items()}}

    def set_state(self, saved: dict[str, Any]) -> Tensor:
        """Go on exactly where get_state() was called, here or in an Env with all worlds. Returns the observation."""
        everyone, starts = self._read_saved(saved, self._everywhere)
        own = everyone.map(lambda rows: rows[self.ranks.rows(self.num_worlds)].contiguous())
        self.generator.set_state(saved["generator"].cpu())
        self._settle(own)
        self._starts, self._used, self._starts_captured = starts, saved["used"], False
        return own.observation

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        """Begin a new episode in every world of every rank."""
        self._next_starts = None
        return super().reset(seed)

    def _some_begin(self, done: Tensor) -> bool:
        if done.is_cuda:
            return True
        # Also where none of this rank's is done: the others' starts are used up here, too.
        self._next_starts = self._places(done)
        return bool(done.any())

    def _fresh_starts(self, done: Tensor) -> Starts:
        if done.is_cuda:
            return self._one_each()
        places = self._places(done) if self._next_starts is None else self._next_starts
        self._next_starts = None
        assert self._starts is not None
        return self._starts.select(places)

    def _places(self, done: Tensor) -> Tensor:
        everyone = self.ranks.gathered(done).squeeze(1)
        first = self._take(int(everyone.sum()))
        return (first - 1 + everyone.cumsum(0)).clamp_(min=0)[self.ranks.rows(self.num_worlds)]

    def _one_each(self) -> Starts:
        if capturing(self.device) and not self._starts_captured:
            raise RuntimeError("call env.detach() first inside the capture, or every replay repeats the same starts")
        first = self._take(self._everywhere) + self.ranks.rows(self.num_worlds).start
        assert self._starts is not None
        return self._starts.rows(first, self.num_worlds)

    def _draw_starts(self) -> None:
        self._starts = self._drawn(starts_in_store(self._everywhere), [self.generator])
        self._starts_captured = capturing(self.device)
        self._used = 0
