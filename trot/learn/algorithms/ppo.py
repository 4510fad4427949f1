"""Proximal Policy Optimisation: a policy learns from returns alone, in small safe steps on what it has just done.

One iteration, top to bottom in this file:

    rollout    h steps in every world with sampled actions
    judge      TD(lambda) returns from rewards and values; the advantage is what a return is better than the value
    update     some passes of mini-batches: clipped losses, one step of Adam each, at a rate that the KL divergence sets
    finish     normaliser, one row of metrics

As in the SHAC paper's comparison, which took rl_games': one trunk for policy and value, one free deviation per action,
actions that are cut at [-1, 1] rather than squashed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from trot.command_line import WorldCount
from trot.envs.env import Env
from trot.learn.agent import AgentDescription
from trot.learn.learner import (
    Algorithm,
    Learner,
    LearnerSettings,
    Phase,
    TimeOuts,
    require_at_least_one,
    require_positive,
    require_share,
    require_time_outs,
    require_widths,
)
from trot.learn.networks import Linear, squashed, zero_biases_
from trot.learn.normalizer import Normalizer
from trot.learn.optimizer import Adam, clip_
from trot.learn.returns import td_lambda
from trot.learn.shared_rows import mean_over_rows

SOFT_BOUND = 1.1
"""Means beyond this are pulled back: the worlds cut actions at 1."""
RATE_BOUNDS = (1e-6, 1e-2)
RATE_FACTOR = 1.5
"""By which the learning rate rises or falls at once."""
SPARE_VARIANCE = 1e-5
"""As in rl_games: policies that have become narrow count as less far from each other, and learn faster at the end."""


@dataclass(frozen=True)
class PpoSettings(LearnerSettings):
    """Defaults are the paper's settings for the Ant; BY_TASK holds what differs elsewhere."""

    num_worlds: WorldCount = 2048
    iterations: int = 5000
    horizon: int = 32
    """Steps of a window."""
    passes: int = 5
    """Over a window's data, in each iteration."""
    batches: int = 4
    """Mini-batches of a pass: the windows of neighbouring worlds."""
    gamma: float = 0.99
    """Discount per step."""
    gae_lambda: float = 0.95
    """Mixes long returns (1) with one-step ones (0) in the advantages."""
    lr: float = 3e-4
    """Learning rate at the start; it follows the KL divergence from there."""
    target_kl: float = 0.008
    """Of the policy between two passes: above its double the rate falls, below its half the rate rises."""
    clip: float = 0.2
    """How far a pass may move the ratio of probabilities, and a value, and still gain by it."""
    value_weight: float = 4.0
    """Of half the value's squared error, beside the policy's loss."""
    entropy_weight: float = 0.0
    """What a unit of entropy is worth."""
    bound_weight: float = 1e-4
    """Of what means exceed 1.1 by, squared."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    reward_scale: float = 0.01
    """For learning; metrics show rewards as they are."""
    time_outs: TimeOuts = "bootstrap"
    """Ends of episodes by the clock. bootstrap: they are worth the value of what would have come; end: nothing, like
    falls."""
    normalize_observations: bool = True
    """By the mean and deviation of those seen so far."""
    initial_log_std: float = 0.0
    """Logarithm of the deviation of actions, at the start."""
    hidden: tuple[int, ...] = (128, 64, 32)
    """Of the trunk that policy and value share."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "horizon", "passes", "batches")
        if self.num_worlds % self.batches:
            raise ValueError(f"num_worlds {self.num_worlds} does not split into batches {self.batches}")
        require_share(self, "gamma", "gae_lambda")
        require_positive(self, "lr", "target_kl", "clip", "max_grad_norm", "reward_scale")
        for name in ("value_weight", "entropy_weight", "bound_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if not math.isfinite(self.initial_log_std):
            raise ValueError(f"initial_log_std must be finite, not {self.initial_log_std}")
        require_widths(self, "hidden")
        require_time_outs(self.time_outs)

    def agent(self, env: Env) -> AgentDescription:
        return AgentDescription(
            num_observations=env.num_observations,
            num_actions=env.num_actions,
            hidden=self.hidden,
            initial_log_std=self.initial_log_std,
            layer_norm=False,
            normalize=self.normalize_observations,
            clip_observations=5.0 if self.normalize_observations else None,
            squash="clamp",
        )


@dataclass
class Window:
    """What a rollout leaves, (horizon, worlds, ...)."""

    seen: Tensor
    """Observations as they came."""
    seen_last: Tensor
    """The observation that each step led to, before any reset."""
    samples: Tensor
    """Actions before they are cut."""
    reward: Tensor
    fell: Tensor
    done: Tensor


@dataclass
class Lesson:
    """What is to be learned from a mini-batch, a row per step."""

    inputs: Tensor
    """Normalised observations."""
    samples: Tensor
    """Actions before they are cut."""
    log_probability: Tensor
    """Of the samples when they were drawn."""
    advantage: Tensor
    value: Tensor
    """When the samples were drawn, normalised, as is the following."""
    target: Tensor
    mean: Tensor
    """Of the policy in the pass before."""

    def rows(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]


class Ppo(Learner):
    """One network, and the worlds it learns in."""

    columns = ("policy_loss", "value_loss", "kl", "rate", "gradient_norm")
    shown = {"value loss": "value_loss", "KL": "kl", "rate": "rate"}  # noqa: RUF012
    rate: Tensor

    def __init__(self, env: Env, settings: PpoSettings, seed: int = 0) -> None:
        super().__init__(env, settings, seed)
        self.settings = settings
        with self.seeded():
            self.make_agent(settings.agent(env))
            self.value_head = self.make_value().to(self.device, env.dtype)
        for network in (self.agent, self.best.agent, self.value_head):
            zero_biases_(network)
        self.value_scale = Normalizer(1).to(self.device)
        self._weights: list[Tensor] = [*self.agent.policy.parameters(), *self.value_head.parameters()]
        self.optimizer = Adam(self._weights, betas=(0.9, 0.999))
        self.register_buffer("rate", torch.full_like(self.optimizer.rate, settings.lr))

    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase("rollout", self.rollout),
            Phase("judge", self.judge),
            Phase("update", self.update),
            Phase("other", self.finish),
        )

    @property
    def updates_per_iteration(self) -> int:
        return self.settings.passes * self.settings.batches

    def make_value(self) -> nn.Module:
        """What gives the value: another head on the policy's trunk."""
        trunk_width = (self.env.num_observations, *self.settings.hidden)[-1]
        return Linear(trunk_width, 1)

    def policy_and_value(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of the samples and the normalised value, through one trunk."""
        *trunk, head = self.agent.policy.network
        for layer in trunk:
            inputs = layer(inputs)
        return head(inputs), self.value_head(inputs).squeeze(-1)

    @property
    def log_std(self) -> Tensor:
        return self.agent.policy.log_std

    @torch.no_grad()
    def rollout(self) -> None:
        """Act through a window, and remember it."""
        env = self.env
        shape = (self.settings.horizon, env.num_worlds, env.num_actions)
        noise = torch.randn(shape, generator=self.generator, dtype=env.dtype, device=self.device)
        seen, samples, moves = [env.begin_window()], [], []
        normalized = self.agent.normalization_now(env.dtype)
        for offset in noise * self.log_std.exp():
            mean, _ = self.agent.policy.distribution(normalized(seen[-1]))
            samples.append(mean + offset)
            moves.append(env.advance(squashed(samples[-1], self.agent.description.squash)))
            seen.append(moves[-1].observation)
        fell = torch.stack([move.terminated for move in moves])
        self.window = Window(
            seen=torch.stack(seen[:-1]),
            seen_last=torch.stack([move.final_obs for move in moves]),
            samples=torch.stack(samples),
            reward=env.rewards(moves),
            fell=fell,
            done=fell | torch.stack([move.truncated for move in moves]),
        )

    @torch.no_grad()
    def judge(self) -> None:
        """Find what each action was worth, and lay the data out in mini-batches."""
        settings, window = self.settings, self.window
        inputs = self.agent.normalized(window.seen)
        mean, value = self.policy_and_value(inputs)
        # A Gaussian's logarithm, without the constant that every ratio cancels.
        log_probability = log_normal(window.samples, mean, self.log_std)
        _, next_value = self.policy_and_value(self.agent.normalized(window.seen_last))
        value, next_value = self._in_units_of_reward(value), self._in_units_of_reward(next_value)
        ends = window.fell if settings.time_outs == "bootstrap" else window.done
        target = td_lambda(
            settings.reward_scale * window.reward,
            torch.where(ends, 0.0, next_value),
            window.done,
            settings.gamma,
            settings.gae_lambda,
        )
        # Generalised advantage estimation is the TD(lambda) return less the value.
        advantage = target - value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        self.value_scale.update(target.unsqueeze(-1))
        normal_value, normal_target = (self.value_scale(part.unsqueeze(-1)).squeeze(-1) for part in (value, target))
        rows = (inputs, window.samples, log_probability, advantage, normal_value, normal_target, mean)
        # World by world, then step by step: whoever is in a batch stays in it.
        by_world = [part.transpose(0, 1).flatten(0, 1).chunk(settings.batches) for part in rows]
        self.lessons = [Lesson(*batch) for batch in zip(*by_world, strict=True)]
        self.log_std_before = [self.log_std.detach().clone() for _ in self.lessons]

    def _in_units_of_reward(self, normal_value: Tensor) -> Tensor:
        shift, scale = self.value_scale.affine(normal_value.dtype)
        return normal_value / scale + shift

    def update(self) -> None:
        """Some passes over the mini-batches."""
        batches = list(zip(self.lessons, self.log_std_before, strict=True))
        told = [self._learn(*batch) for _ in range(self.settings.passes) for batch in batches]
        self.policy_loss, self.value_loss, self.kl, self.gradient_norm = torch.stack(told).mean(dim=0).unbind()

    def _learn(self, lesson: Lesson, log_std_before: Tensor) -> Tensor:
        """One step of Adam. Returns both losses, the KL divergence since the last pass, and the gradient's norm."""

        def work(*block: Tensor) -> list[Tensor]:
            part = Lesson(*block)
            mean, value = self.policy_and_value(part.inputs)
            policy, of_value, loss = self._losses(mean, value, part)
            kl = kl_divergence(mean.detach(), self.log_std.detach(), part.mean, log_std_before)
            part.mean.copy_(mean.detach())
            return [policy, of_value, kl, *torch.autograd.grad(loss, self._weights)]

        policy, of_value, kl, *gradients = mean_over_rows(work, *lesson.rows(), widths=self.settings.hidden)
        log_std_before.copy_(self.log_std.detach())
        gradients = self.followed(gradients)
        norm = clip_(gradients, self.settings.max_grad_norm)
        self.stopped |= ~norm.isfinite()
        self.optimizer.rate.copy_(torch.where(self.stopped, 0.0, self.rate))
        self.optimizer.step([gradient.masked_fill_(self.stopped, 0.0) for gradient in gradients])
        self.rate.copy_(self.next_rate(kl))
        return torch.stack([policy, of_value, kl, norm])

    def followed(self, gradients: list[Tensor]) -> list[Tensor]:
        """Those that a step follows: of the policy's weights, and behind them of the value's."""
        return gradients

    def next_rate(self, kl: Tensor) -> Tensor:
        """The learning rate behind a step that moved the policy so far."""
        return followed_rate(self.rate, kl, self.settings.target_kl)

    def _losses(self, mean: Tensor, value: Tensor, lesson: Lesson) -> tuple[Tensor, Tensor, Tensor]:
        """Of the policy and of the value, for the record, and their sum with all else that is to become small."""
        settings = self.settings
        log_ratio = log_normal(lesson.samples, mean, self.log_std) - lesson.log_probability
        policy = clipped_policy_loss(log_ratio, lesson.advantage, settings.clip)
        of_value = clipped_value_loss(value, lesson.value, lesson.target, settings.clip)
        beyond = (mean.abs() - SOFT_BOUND).clamp(min=0).square().sum(dim=1).mean()
        loss = policy + settings.value_weight / 2 * of_value + settings.bound_weight * beyond
        if settings.entropy_weight:
            loss = loss - settings.entropy_weight * self.log_std.sum()
        return policy.detach(), of_value.detach(), loss

    @torch.no_grad()
    def finish(self) -> None:
        """Learn what observations look like, and write down how it went."""
        self.agent.normalizer.update(self.window.seen)
        columns = {name: getattr(self, name) for name in self.columns}
        self.conclude(self.window.reward, self.window.done, columns)


def log_normal(samples: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """The logarithm of a Gaussian's density, summed over actions, up to a constant."""
    return -(((samples - mean) * (-log_std).exp()).square() / 2 + log_std).sum(dim=-1)


def clipped_policy_loss(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Minus the advantage gained by new probabilities, where moving further than `clip` gains nothing more."""
    ratio = log_ratio.exp()
    return torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip)).mean()


def clipped_value_loss(value: Tensor, before: Tensor, target: Tensor, clip: float) -> Tensor:
    """The squared error, where moving further than `clip` from the value before gains nothing more."""
    near = before + (value - before).clamp(-clip, clip)
    return torch.maximum((value - target).square(), (near - target).square()).mean()


def kl_divergence(mean: Tensor, log_std: Tensor, other_mean: Tensor, other_log_std: Tensor) -> Tensor:
    """Of Gaussians from others whose variance is SPARE_VARIANCE larger, summed over actions, mean over rows."""
    square = (2 * log_std).exp() + (mean - other_mean).square()
    variance = (2 * other_log_std).exp() + SPARE_VARIANCE
    return (other_log_std - log_std + square / (2 * variance) - 0.5).sum(dim=-1).mean()


def followed_rate(rate: Tensor, kl: Tensor, target: float) -> Tensor:
    """Slower where the policy moved too far, faster where it hardly moved."""
    changed = torch.where(kl > 2 * target, rate / RATE_FACTOR, rate)
    return torch.where(kl < target / 2, changed * RATE_FACTOR, changed).clamp(*RATE_BOUNDS)


BY_TASK: dict[str, dict[str, Any]] = {
    "cartpole": {"num_worlds": 32, "horizon": 240, "hidden": (64, 64), "iterations": 500},
    "hopper": {"num_worlds": 1024},
    "half_cheetah": {"num_worlds": 1024},
    "ant": {},
    "humanoid": {"num_worlds": 1024, "hidden": (256, 128, 64)},
    "muscle_humanoid": {"num_worlds": 1024, "hidden": (512, 512, 256), "passes": 6, "iterations": 20_000},
}


def tuned(task: str) -> PpoSettings:
    """As the paper found best for each task; a task of your own is taken for an Ant."""
    return replace(PpoSettings(), **BY_TASK.get(task, {}))


PPO = Algorithm(
    name="ppo",
    label="PPO",
    summary="returns alone, thousands of worlds: quick in the first minute, many samples; rewards without a gradient",
    settings=PpoSettings,
    learner=Ppo,
    presets={"tuned": tuned},
)
