"""The losses of many policies at once, under common random numbers, and their exact gradients.

Two losses: that of a window, which SHAC minimises, and that of the whole episode, which back-propagation through time
would have to. Every policy is a member of one network, and its worlds are rows of one batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.learn.agent import Agent
from trot.learn.learner import NOISE_STREAM
from trot.study.common_worlds import CommonWorlds, Conditions, fresh_worlds
from trot.study.learned import Learned
from trot.study.members_rollout import Rollout, Rule, Tick
from trot.study.moved_weights import Moves, Weights, unmoved

WORLDS_AT_ONCE = {"cpu": 1024, "cuda": 32_768}
"""More policies are taken one batch after the other."""


def silent(_: float) -> None:
    """For whoever need not know how far it is."""


@dataclass(frozen=True, eq=False)
class Objective:
    """A loss, and the conditions under which it is measured."""

    agent: Agent
    env: Env
    """Its task, device, precision and physics are those of the worlds."""
    conditions: Conditions
    rule: Rule

    @property
    def weights(self) -> Weights:
        """Of the agent's policy."""
        return dict(self.agent.policy.named_parameters())

    @property
    def steps(self) -> int:
        return self.conditions.steps

    @torch.no_grad()
    def losses(self, moves: Moves, tick: Tick = silent) -> Tensor:
        """Of every policy, in float64."""
        return torch.cat([self._rollout(part).loss(tick) for part in self._batches(moves)])

    @torch.no_grad()
    def derivatives(self, moves: Moves, tick: Tick = silent) -> tuple[Tensor, Tensor]:
        """Losses of every policy, and (policies, directions) their derivatives by the shifts."""
        losses, slopes = [], []
        for part in self._batches(moves):
            loss, gradient = self._rollout(part).gradient(tick)
            losses.append(loss)
            slopes.append(part.along(gradient))
        return torch.cat(losses), torch.cat(slopes)

    @torch.no_grad()
    def gradients(self, parts: int = 1, tick: Tick = silent) -> tuple[Tensor, Weights]:
        """Loss and gradient of the policy itself, apart for so many equal parts of the worlds: (parts, ...)."""
        if self.conditions.num_worlds % parts:
            raise ValueError(f"{self.conditions.num_worlds} worlds do not split into {parts} equal parts")
        return self._rollout(unmoved(self.weights, parts), split=True).gradient(tick)

    def _batches(self, moves: Moves) -> list[Moves]:
        size = max(1, WORLDS_AT_ONCE[self.env.device.type] // self.conditions.num_worlds)
        return [moves.part(first, first + size) for first in range(0, len(moves), size)]

    def _rollout(self, moves: Moves, split: bool = False) -> Rollout:
        worlds = CommonWorlds(self.env, self.conditions, len(moves), split)
        return Rollout(self.rule, self.agent, worlds, self.conditions.noise, moves.stacked())


def window_objective(learned: Learned, worlds: int, seed: int) -> Objective:
    """What SHAC minimises: a window from states that training meets, and the critic's value of what lies beyond it."""
    env, settings = learned.env(worlds, seed), learned.settings
    _, starts = fresh_worlds(env)
    conditions = Conditions(learned.met_worlds(worlds, seed), starts, _noise(env, settings.horizon, seed))
    return Objective(learned.agent, env, conditions, Rule(settings.gamma, learned.critic))


def episode_objective(learned: Learned, worlds: int, seed: int, gamma: float | None = None) -> Objective:
    """Whole episodes from fresh starts, to their fall or the end of their time; discounted as windows by default."""
    env = learned.env(worlds, seed)
    begin, starts = fresh_worlds(env)
    conditions = Conditions(begin, starts, _noise(env, env.episode_length, seed))
    gamma = learned.settings.gamma if gamma is None else gamma
    return Objective(learned.agent, env, conditions, Rule(gamma, one_episode=True))


def _noise(env: Env, steps: int, seed: int) -> Tensor:
    generator = torch.Generator(env.device).manual_seed(seed + NOISE_STREAM)
    shape = (steps, env.num_worlds, env.num_actions)
    return torch.randn(shape, generator=generator, dtype=env.dtype, device=env.device)
