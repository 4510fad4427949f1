"""REINFORCE in a file of one's own: a policy learns from returns alone, without a gradient of the simulation.

    trot train cartpole --algo examples/own_algorithm/reinforce.py:REINFORCE

docs/add_algorithm.md explains it part by part.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trot.envs.env import Env
from trot.learn.agent import AgentDescription
from trot.learn.learner import Algorithm, Learner, LearnerSettings, Phase
from trot.learn.optimizer import Adam, clip_


@dataclass(frozen=True)
class ReinforceSettings(LearnerSettings):
    """Beside the number of worlds and of iterations."""

    num_worlds: int = 256
    horizon: int = 32
    """Steps of a window."""
    gamma: float = 0.99
    """Discount per step."""
    lr: float = 3e-3
    """Learning rate."""
    hidden: tuple[int, ...] = (64, 64)


class Reinforce(Learner):
    """Actions that were followed by more reward than usual become likelier."""

    columns = ("gradient_norm",)
    shown = {"gradient": "gradient_norm"}  # noqa: RUF012

    def __init__(self, env: Env, settings: ReinforceSettings, seed: int = 0) -> None:
        super().__init__(env, settings, seed)
        self.settings = settings
        with self.seeded():
            self.make_agent(AgentDescription(env.num_observations, env.num_actions, settings.hidden))
        self.parameters_of_policy = list(self.agent.policy.parameters())
        self.optimizer = Adam(self.parameters_of_policy, betas=(0.9, 0.999))
        self.optimizer.rate.fill_(settings.lr)

    def phases(self) -> tuple[Phase, ...]:
        return Phase("rollout", self.rollout), Phase("update", self.update)

    @torch.no_grad()
    def rollout(self) -> None:
        """Act through a window, and remember it, (horizon, worlds, ...)."""
        env, seen, rewards, done = self.env, [self.env.begin_window()], [], []
        shape = (self.settings.horizon, env.num_worlds, env.num_actions)
        self.noise = torch.randn(shape, generator=self.generator, dtype=env.dtype, device=self.device)
        for sample in self.noise:
            observation, reward, terminated, truncated, _ = env.step(self.agent(seen[-1], sample))
            seen.append(observation)
            rewards.append(reward)
            done.append(terminated | truncated)
        self.seen, self.reward, self.done = torch.stack(seen[:-1]), torch.stack(rewards), torch.stack(done)

    def update(self) -> None:
        """Follow the gradient of the log-probability of what was done, weighed by what came of it."""
        with torch.no_grad():
            advantage, following = torch.zeros_like(self.reward), torch.zeros_like(self.reward[0])
            for step in reversed(range(len(self.reward))):
                following = self.reward[step] + self.settings.gamma * following.masked_fill(self.done[step], 0.0)
                advantage[step] = following
            advantage = (advantage - advantage.mean(dim=1, keepdim=True)) / (advantage.std() + 1e-6)
        mean, log_std = self.agent.policy.distribution(self.agent.normalizer(self.seen))
        assert log_std is not None
        sample = (mean + log_std.exp() * self.noise).detach()
        log_probability = (-((sample - mean) / log_std.exp()).square() / 2 - log_std).sum(dim=2)
        gradients = list(torch.autograd.grad(-(advantage * log_probability).mean(), self.parameters_of_policy))
        norm = clip_(gradients, largest=1.0)
        self.optimizer.step(gradients)
        self.agent.normalizer.update(self.seen)
        self.conclude(self.reward, self.done, {"gradient_norm": norm})


REINFORCE = Algorithm(
    name="reinforce",
    label="REINFORCE",
    summary="likelier becomes what was followed by more reward than usual",
    settings=ReinforceSettings,
    learner=Reinforce,
    presets={"tuned": lambda task: ReinforceSettings()},
)
