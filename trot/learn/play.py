"""The one loop that plays: an agent, random actions or none at all, in an environment, step by step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from trot.envs.env import Env, Info
from trot.learn.agent import Agent
from trot.learn.learner import NOISE_STREAM

Act = Callable[[Tensor], Tensor]
"""Observations to actions in [-1, 1]."""


@dataclass(frozen=True)
class Played:
    """One step of all worlds."""

    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    info: Info
    """As env.step() returns it."""

    @property
    def done(self) -> Tensor:
        return self.terminated | self.truncated


def agent_acts(agent: Agent, env: Env, stochastic: bool, seed: int) -> Act:
    """The agent's mean action, or with its noise. The agent itself stays where it is.

    The same seed as the environment's is safe: noise comes from another stream than the starts of episodes.
    """
    agent.require_fit(env)
    player = copy.deepcopy(agent).to(env.device)
    generator = torch.Generator(env.device).manual_seed(seed + NOISE_STREAM)
    shape = (env.num_worlds, env.num_actions)

    def act(observation: Tensor) -> Tensor:
        noise = None
        if stochastic:
            noise = torch.randn(shape, generator=generator, dtype=env.dtype, device=env.device)
        action: Tensor = player(observation, noise)
        return action

    return act


def nothing_acts(env: Env) -> Act:
    """All actions zero."""
    zero = torch.zeros(env.num_worlds, env.num_actions, dtype=env.dtype, device=env.device)
    return lambda observation: zero


def chance_acts(env: Env, seed: int) -> Act:
    """Actions drawn uniformly from [-1, 1]."""
    generator = torch.Generator(env.device).manual_seed(seed)
    like = torch.zeros(env.num_worlds, env.num_actions, dtype=env.dtype, device=env.device)
    return lambda observation: torch.empty_like(like).uniform_(-1, 1, generator=generator)


def play(env: Env, act: Act, steps: int, on_start: Callable[[], object] | None = None) -> Iterator[Played]:
    """Begin new episodes, and act in them for so many steps. Whoever asks may stop before.

    on_start is called once, after the reset.
    """
    with torch.no_grad():
        observation, _ = env.reset()
    if on_start is not None:
        on_start()
    for _ in range(steps):
        # Not around the loop: between two steps it would hold for whoever asked.
        with torch.no_grad():
            action = act(observation).clamp(-1, 1)
            observation, reward, terminated, truncated, info = env.step(action)
        yield Played(action, reward, terminated, truncated, info)
