"""Where episodes begin, drawn in advance and handed out as they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trot.envs.disturbances import Disturbances
from trot.envs.randomize import Randomize
from trot.envs.situation import joined, situation_of
from trot.envs.task import Task
from trot.envs.worlds import Starts
from trot.sim.capturing import capturing

START_ROUNDS = 32
"""Starts drawn at once, per world."""
STARTS_AT_ONCE = 32_768
"""With very many worlds fewer are drawn, so that they do not fill the memory."""


@dataclass(frozen=True, eq=False)
class StartSource:
    """What is drawn for the start of an episode, and how."""

    task: Task[Any]
    zero: Tensor
    """With the dtype and device of all that is drawn."""
    stochastic: bool
    """Whether poses and memory are drawn by chance; they are nominal where not."""
    randomize: Randomize | None
    memory_widths: Mapping[str, int]
    disturbances: Disturbances | None

    @torch.no_grad()
    def draw(self, count: int, generators: Sequence[torch.Generator]) -> Starts:
        """So many starts from each generator, those of the first before those of the second."""
        task, model, rows = self.task, self.task.model, count * len(generators)
        streams = generators[0] if len(generators) == 1 else generators
        state = task.start.draw(model, rows, streams if self.stochastic else None, self.zero)
        parameter = strength = memory = disturbance = self.zero.new_zeros(rows, 0)
        if self.randomize is not None and self.randomize.changes_physics:
            parameter, strength = self.randomize.draw(model, rows, streams, self.zero)
        if self.memory_widths:
            each = generators if self.stochastic else [None] * len(generators)
            memory = torch.cat([joined(task.draw_memory(count, generator, self.zero)) for generator in each])
        start = situation_of(state.joint_q, state.joint_qd, memory, state.activation, self.memory_widths)
        previous_action = self.zero.new_zeros(rows, task.num_actions)
        observation = joined(task.observation(task.measure(start), previous_action))
        if self.disturbances is not None:
            disturbance = self.disturbances.draw(rows, streams, self.zero)
            observation = self.disturbances.noisy(observation, streams)
        return Starts(state.joint_q, state.joint_qd, observation, parameter, strength, memory, disturbance)


class StartStore:
    """Starts in store for worlds that draw from one generator.

    On CUDA nobody is asked how many episodes ended: every step takes a start for each world.
    """

    def __init__(self, source: StartSource, num_worlds: int, generator: torch.Generator) -> None:
        self.source, self.num_worlds, self.generator = source, num_worlds, generator
        self.in_rounds = source.zero.is_cuda
        """Whether every step takes a start for each world."""
        self.starts: Starts | None = None
        self.used = 0
        self._captured = False

    def __getstate__(self) -> dict[str, Any]:
        """For pickles and deep copies, which no CUDA graph knows."""
        return {**vars(self), "_captured": False}

    def draw(self) -> None:
        """Fill the store anew."""
        self.starts = self.source.draw(starts_in_store(self.num_worlds), [self.generator])
        self._begin()

    def _begin(self) -> None:
        self._captured = capturing(self.source.zero.device)
        self.used = 0

    def draw_if_empty(self) -> None:
        if self.starts is None:
            self.draw()

    def go_on(self, starts: Starts, used: int) -> None:
        """From these, of which so many are used."""
        self.starts, self.used, self._captured = starts, used, False

    @property
    def one_each(self) -> bool:
        """Whether fresh() takes a start for every world, whichever are done."""
        return self.in_rounds

    def some_begin(self, done: Tensor) -> bool:
        """Whether starts are to be looked at; a GPU is not asked."""
        return self.in_rounds or bool(done.any())

    def fresh(self, done: Tensor) -> Starts:
        """A row per world, a start that was never used before in those that are done."""
        return self._one_each() if self.in_rounds else self._as_needed(done)

    def _one_each(self) -> Starts:
        """A start for every world: the GPU is not asked how many are done."""
        self.require_captured()
        first = self._take(self.num_worlds)
        assert self.starts is not None
        return self.starts.rows(first, self.num_worlds)

    def require_captured(self) -> None:
        """Raise where a graph is being captured that would hand out the same starts in every replay."""
        if capturing(self.source.zero.device) and not self._captured:
            raise RuntimeError("call env.detach() first inside the capture, or every replay repeats the same starts")

    def _as_needed(self, done: Tensor) -> Starts:
        first = self._take(int(done.sum()))
        assert self.starts is not None
        return self.starts.select((first - 1 + done.squeeze(1).cumsum(0)).clamp_(min=0))

    def _take(self, needed: int) -> int:
        """The place of the first of so many starts; new ones are drawn where there are not enough."""
        assert self.starts is not None
        if self.used + needed > self.starts.count:
            self.draw()
        first, self.used = self.used, self.used + needed
        return first


def starts_in_store(num_worlds: int) -> int:
    """How many starts are drawn at once for so many worlds."""
    return num_worlds * max(1, min(START_ROUNDS, STARTS_AT_ONCE // num_worlds))
