"""Worlds for many policies at once, all under the same conditions: starts, restarts and noise differ by world alone.

Differences between the losses of two policies are then the policies' own, not those of their luck.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.envs.start_store import StartStore
from trot.envs.worlds import Starts, Worlds

ROUNDS = 8
"""Starts in store per world. A world that has used up its own begins with the first again."""


@dataclass(frozen=True, eq=False)
class Conditions:
    """What every policy meets in the same way."""

    begin: Worlds
    """Where each world begins."""
    starts: Starts
    """Where it begins anew: its first start, and behind those of all worlds its second, and so on."""
    noise: Tensor
    """(steps, worlds, actions) of the policy."""

    @property
    def num_worlds(self) -> int:
        return len(self.begin.joint_q)

    @property
    def steps(self) -> int:
        return len(self.noise)


def fresh_worlds(env: Env) -> tuple[Worlds, Starts]:
    """Worlds at the beginning of an episode, and where they begin anew."""
    first, *others = [_reset(env) for _ in range(1 + ROUNDS)]
    names = [field.name for field in fields(Starts)]
    return first, Starts(**{name: torch.cat([getattr(worlds, name) for worlds in others]) for name in names})


def _reset(env: Env) -> Worlds:
    env.reset()
    return env.worlds.clone()


@dataclass(frozen=True, eq=False)
class Mark:
    """A moment to go on from."""

    worlds: Worlds
    begun: Tensor
    """How often each world has begun anew."""


class GivenStarts(StartStore):
    """The starts of the conditions: each world has its own, one after the other."""

    def __init__(self, like: StartStore, conditions: Conditions, world: Tensor) -> None:
        super().__init__(like.source, len(world), like.generator)
        self.starts = conditions.starts
        self._world, self._count = world, conditions.num_worlds
        self.begun = torch.zeros_like(world)
        """How often each world has begun anew."""

    def draw(self) -> None:
        """They are given."""

    @property
    def one_each(self) -> bool:
        return False

    def fresh(self, done: Tensor) -> Starts:
        assert self.starts is not None
        row = self.begun % ROUNDS * self._count + self._world
        self.begun = self.begun + done.squeeze(1)
        return self.starts.select(row)


class CommonWorlds(Env):
    """The worlds of all policies, those of the first before those of the second.

    World i of each has the conditions of world i. With `split` they have different ones: the policies then share the
    worlds of the conditions among themselves.
    """

    def __init__(self, like: Env, conditions: Conditions, policies: int, split: bool = False) -> None:
        count = conditions.num_worlds
        if like.randomize is not None and like.randomize.observation_noise:
            raise ValueError(
                "with observation noise two policies never meet the same conditions: study a run without "
                "randomize.observation_noise"
            )
        super().__init__(
            like.task, count if split else policies * count, like.device, dtype=like.dtype, randomize=like.randomize
        )
        world = torch.arange(self.num_worlds, device=self.device) % count
        self._store: GivenStarts = GivenStarts(self._store, conditions, world)
        begin = conditions.begin.map(lambda rows: rows[world])
        self.beginning = Mark(begin, self._store.begun)
        self.go_on(self.beginning)

    @property
    def mark(self) -> Mark:
        return Mark(self.worlds, self._store.begun)

    def go_on(self, mark: Mark) -> None:
        """From there, gradients included."""
        self._worlds, self._store.begun = mark.worlds, mark.begun

    @property
    def record_bytes(self) -> int:
        """Of what a step keeps of one world for its backward pass through the physics."""
        return self.task.substeps * self._physics.run.kernels.sizes.record * self.dtype.itemsize
