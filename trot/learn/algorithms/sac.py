"""Soft Actor-Critic: a policy learns from all that its worlds ever did, and is paid for staying random.

An iteration is a number of steps. To each of them belong, top to bottom in this file:

    take_step        every world takes a step, which goes into the replay buffer
    draw             batches of past steps, for the updates beside the next one
    critic_gradient  on a batch: the reward, and what the target critics make of the policy's next action
    policy_gradient  towards actions that the critics value, and towards randomness
    cool             the temperature, which weighs randomness against value, follows the entropy

On a GPU the step and both gradients are worked out side by side: the updates of a step learn from what was remembered
before it, and the policy climbs the critics as they were. The first iterations act at random and learn nothing. With
more critics, of which a few are drawn for each target, and many updates a step, it is REDQ (redq.py); MBPO (mbpo.py)
adds batches that a learned model imagines.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from trot.command_line import WorldCount
from trot.envs.env import Env
from trot.envs.move import Move
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
from trot.learn.networks import move_towards, perceptron, zero_biases_
from trot.learn.optimizer import Adam
from trot.learn.replay_buffer import Field, ReplayBuffer
from trot.learn.saturation import SATURATION_COLUMNS, saturation
from trot.learn.shared_rows import mean_over_rows
from trot.learn.side_by_side import Milestone, SideBySide

Batch = dict[str, Tensor]
"""Rows of `observation`, `action`, `reward`, `next_observation` and `end`."""


@dataclass(frozen=True)
class SacSettings(LearnerSettings):
    """Defaults are the paper's settings for the Ant; BY_TASK holds what differs elsewhere."""

    num_worlds: WorldCount = 128
    iterations: int = 5000
    horizon: int = 128
    """Steps of an iteration, each followed by updates."""
    random_iterations: int = 4
    """That begin the training with random actions and without updates."""
    updates: int = 1
    """Of the critics after each step of all worlds."""
    policy_updates: Literal["once", "each"] = "once"
    """Whether the policy follows with the last of them, or with each."""
    batch: int = 4096
    """Past steps in an update."""
    memory: int = 1_000_000
    """Past steps that are kept."""
    gamma: float = 0.99
    """Discount per step."""
    actor_lr: float = 5e-4
    """Learning rate of the policy."""
    critic_lr: float = 5e-4
    """Learning rate of the critics."""
    temperature_lr: float = 5e-3
    """Learning rate of the temperature."""
    initial_temperature: float = 1.0
    """What a unit of entropy is worth, at the start."""
    entropy_per_action: float = -0.5
    """What the temperature steers the policy's entropy to."""
    target_keep: float = 0.995
    """Share of themselves that the target critics keep in each update."""
    critics: int = 2
    """How many there are."""
    critics_in_target: int = 2
    """Drawn at random for each update; the least of their values counts."""
    policy_trusts: Literal["least", "mean"] = "least"
    """What the policy climbs: the least of the critics' values, or their mean."""
    time_outs: TimeOuts = "bootstrap"
    """Ends of episodes by the clock. bootstrap: they are worth the value of what would have come; end: nothing, like
    falls."""
    normalize_observations: bool = True
    """By the mean and deviation of those seen so far."""
    log_std_bounds: tuple[float, float] = (-5.0, 2.0)
    """Of the logarithm of the deviation of actions, the least and the most."""
    hidden: tuple[int, ...] = (256, 128, 64)
    """Of policy and critics."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(
            self, "horizon", "updates", "batch", "memory", "random_iterations", "critics", "critics_in_target"
        )
        if self.critics_in_target > self.critics:
            raise ValueError(f"critics_in_target {self.critics_in_target} is more than the critics: {self.critics}")
        if self.memory < self.num_worlds:
            raise ValueError(f"memory {self.memory} holds not even one step of num_worlds {self.num_worlds}")
        require_share(self, "gamma", "target_keep")
        require_positive(self, "actor_lr", "critic_lr", "temperature_lr", "initial_temperature")
        low, high = self.log_std_bounds
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"log_std_bounds must be a smaller and a larger number, not {self.log_std_bounds}")
        if not math.isfinite(self.entropy_per_action):
            raise ValueError(f"entropy_per_action must be finite, not {self.entropy_per_action}")
        require_widths(self, "hidden")
        if self.policy_updates not in ("once", "each"):
            raise ValueError(f"policy_updates must be once or each, not '{self.policy_updates}'")
        if self.policy_trusts not in ("least", "mean"):
            raise ValueError(f"policy_trusts must be least or mean, not '{self.policy_trusts}'")
        require_time_outs(self.time_outs)

    def agent(self, env: Env) -> AgentDescription:
        return AgentDescription(
            num_observations=env.num_observations,
            num_actions=env.num_actions,
            hidden=self.hidden,
            kind="state_dependent",
            initial_log_std=0.0,
            activation="relu",
            layer_norm=False,
            normalize=self.normalize_observations,
            clip_observations=5.0 if self.normalize_observations else None,
            log_std_bounds=self.log_std_bounds,
        )


OF_UPDATES = ("policy_loss", "value_loss", "value", "temperature", "entropy")
"""Columns of metrics.csv that the updates of an iteration give."""


class Sac(Learner):
    """Policy, critics, temperature and memory, and the worlds they learn in."""

    columns: ClassVar[tuple[str, ...]] = (*OF_UPDATES, *SATURATION_COLUMNS)
    shown = {"value loss": "value_loss", "value": "value", "temperature": "temperature"}  # noqa: RUF012

    def __init__(self, env: Env, settings: SacSettings, seed: int = 0) -> None:
        super().__init__(env, settings, seed)
        self.settings = settings
        with self.seeded():
            self.make_agent(settings.agent(env))
            self.critics, self.target_critics = (
                perceptron(
                    env.num_observations + env.num_actions, settings.hidden, 1,
                    activation="relu", layer_norm=False, members=settings.critics,
                ).to(self.device, env.dtype)
                for _ in range(2)
            )  # fmt: skip
        for network in (self.agent, self.best.agent, self.critics):
            zero_biases_(network)
        self.target_critics.load_state_dict(self.critics.state_dict())
        self.target_critics.requires_grad_(False)
        first = torch.full((), math.log(settings.initial_temperature), dtype=env.dtype, device=self.device)
        self.log_temperature = nn.Parameter(first)
        self.target_entropy = settings.entropy_per_action * env.num_actions
        self._policy_weights: list[Tensor] = list(self.agent.policy.parameters())
        self._critic_weights: list[Tensor] = list(self.critics.parameters())
        # The policy climbs critics whose own gradient nobody wants: these have none, and the same numbers in memory.
        # Networks of their own: torch.func.functional_call() would exchange the weights of the critics, and threads
        # that share the rows of a batch would find each other's. Not a member: the learner's state would have it twice.
        fixed = copy.deepcopy(self.critics).requires_grad_(False)
        for same, weight in zip(fixed.parameters(), self.critics.parameters(), strict=True):
            same.data = weight.data
        self._fixed_critics = partial(fixed)
        self.policy_optimizer = Adam(self._policy_weights, betas=(0.9, 0.999))
        self.critic_optimizer = Adam(self._critic_weights, betas=(0.9, 0.999))
        self.temperature_optimizer = Adam([self.log_temperature], betas=(0.9, 0.999))
        for optimizer, rate in (
            (self.policy_optimizer, settings.actor_lr),
            (self.critic_optimizer, settings.critic_lr),
            (self.temperature_optimizer, settings.temperature_lr),
        ):
            optimizer.rate.fill_(rate)
        self.memory = ReplayBuffer(settings.memory, step_fields(env), self.device)
        self._step_beside, self._gradients_beside, self._target_beside = (SideBySide(self.device) for _ in range(3))
        self._acted = Milestone(self.device)

    @property
    def updates_per_iteration(self) -> int:
        return self.settings.horizon * self.settings.updates

    def phases(self) -> tuple[Phase, ...]:
        begin = self.settings.random_iterations
        return (
            Phase("explore", self.explore, due=lambda iteration: iteration < begin),
            Phase("learn", self.learn, due=lambda iteration: iteration >= begin),
        )

    @torch.no_grad()
    def explore(self) -> None:
        """An iteration of random actions."""
        self.begin()
        shape = (self.settings.horizon, self.env.num_worlds, self.env.num_actions)
        chance = torch.rand(shape, generator=self.generator, dtype=self.env.dtype, device=self.device)
        for action in 2 * chance - 1:
            self.remember(action, self.advance(action))
        nothing = torch.zeros_like(self.episodes.mean_return)
        self.finish({name: nothing for name in OF_UPDATES} | {"temperature": self.temperature})

    def learn(self) -> None:
        """An iteration of steps and updates."""
        self.begin()
        told, rows = [], self.draw(self.settings.updates)
        for left in reversed(range(self.settings.horizon)):
            rows, numbers = self._step_beside(
                partial(self.step_and_draw, self.settings.updates if left else 0), partial(self.update, rows)
            )
            told.append(numbers)
        means = torch.stack(told).mean(dim=0).unbind()
        self.finish(dict(zip(OF_UPDATES, means, strict=True)))

    def begin(self) -> None:
        self.observation = self.env.begin_window()
        self.normalized = self.agent.normalization_now(self.env.dtype)
        self.seen: list[Tensor] = []
        self.actions: list[Tensor] = []
        self.rewards: list[Tensor] = []
        self.done: list[Tensor] = []

    @torch.no_grad()
    def take_step(self) -> None:
        """Every world acts, and remembers it."""
        action = self.agent.policy(self.normalized(self.observation), self._noise(self.env.num_worlds))
        self._acted.reach()
        self.remember(action, self.advance(action))

    def step_and_draw(self, batches: int) -> Batch:
        """A step of all worlds, and so many batches for the updates beside the next one."""
        self.take_step()
        return self.draw(batches) if batches else {}

    def advance(self, action: Tensor) -> Move:
        """A step of all worlds."""
        return self.env.advance(action)

    @torch.no_grad()
    def remember(self, action: Tensor, move: Move) -> None:
        """Put a step of all worlds into the memory, and go on from there."""
        reward = self.env.rewards([move])[0]
        self.memory.add(**self.rows(action, move, reward))
        self.seen.append(self.observation)
        self.actions.append(action)
        self.rewards.append(reward)
        self.done.append(move.terminated | move.truncated)
        self.observation = move.observation

    def rows(self, action: Tensor, move: Move, reward: Tensor) -> Batch:
        """What is remembered of a step."""
        bootstrap = self.settings.time_outs == "bootstrap"
        return {
            "observation": self.observation,
            "action": action,
            "reward": reward,
            "next_observation": move.final_obs,
            "end": (move.terminated if bootstrap else move.terminated | move.truncated).to(reward.dtype),
        }

    def update(self, rows: Batch) -> Tensor:
        """All updates that follow a step, on the rows of their batches. Returns the numbers of OF_UPDATES."""
        settings = self.settings
        if settings.policy_updates == "once" and settings.updates > 1:
            # The policy stays as it is until the last of them.
            rows = self.foresee(rows)
        parts = [part.chunk(settings.updates) for part in rows.values()]
        batches = [dict(zip(rows, batch, strict=True)) for batch in zip(*parts, strict=True)]
        *early, last = zip(batches, self._lots(), strict=True)
        for batch, lots in early:
            if settings.policy_updates == "each":
                self.improve(batch, lots)
            else:
                self.follow(self.critic_gradient(batch, lots))
        return self.improve(*last)

    def improve(self, batch: Batch, lots: Tensor | None) -> Tensor:
        """An update of critics, policy and temperature, on one batch."""
        of_critics, of_policy = self._gradients_beside(
            partial(self.critic_gradient, batch, lots), partial(self.policy_gradient, batch)
        )
        policy_loss, log_probability, *_ = of_policy
        (value_loss, value), _ = self._gradients_beside(
            partial(self.follow, of_critics), partial(self.follow_policy, of_policy)
        )
        return torch.stack([policy_loss, value_loss, value, self.temperature, -log_probability])

    def _lots(self) -> list[Tensor | None]:
        """For every update of a step, which critics make its target; None where all do."""
        settings = self.settings
        if settings.critics_in_target == settings.critics:
            return [None] * settings.updates
        lots = torch.rand(settings.updates, settings.critics, generator=self.generator, device=self.device)
        return list(lots.topk(settings.critics_in_target, dim=1).indices)

    def draw(self, batches: int = 1) -> Batch:
        """What so many updates learn from, one batch after the other: past steps, observations normalised."""
        return self.with_normal_observations(self.memory.sample(batches * self.settings.batch, self.generator))

    def with_normal_observations(self, rows: Batch) -> Batch:
        normal = {name: self.normalized(rows[name]) for name in ("observation", "next_observation")}
        return {**rows, **normal}

    def critic_gradient(self, batch: Batch, lots: Tensor | None = None) -> list[Tensor]:
        """The critics' loss, their mean value, and the loss's gradient."""
        if "next_action" not in batch:
            # Here for all rows, which threads may share.
            batch = {**batch, "next_noise": self._noise(len(batch["action"]))}

        def work(*columns: Tensor) -> list[Tensor]:
            rows = dict(zip(batch, columns, strict=True))
            values, target = self._target_beside(
                partial(values_of, self.critics, rows["observation"], rows["action"]),
                partial(self.target_value, rows, lots),
            )
            error = values.detach() - target
            # Of the sum over critics of the mean square over rows; in fewer kernels than by a loss with a graph.
            gradients = torch.autograd.grad(values, self._critic_weights, 2 / error.shape[1] * error)
            return [error.square().mean(dim=1).sum(), values.detach().mean(), *gradients]

        return mean_over_rows(work, *batch.values(), widths=self.settings.hidden)

    def follow(self, critic_gradient: list[Tensor]) -> tuple[Tensor, Tensor]:
        """A step of Adam for all critics; their targets come after them. Returns the loss and the mean value."""
        loss, value, *gradients = critic_gradient
        self.critic_optimizer.step(gradients)
        move_towards(self.target_critics, self.critics, self.settings.target_keep)
        return loss, value

    @torch.no_grad()
    def target_value(self, batch: Batch, lots: Tensor | None = None) -> Tensor:
        """The reward, and the least that the target critics expect after it; only those drawn by lot, if given."""
        batch = batch if "next_action" in batch else self.foresee(batch)
        values = values_of(self.target_critics, batch["next_observation"], batch["next_action"])
        if lots is not None:
            values = values.index_select(0, lots)
        expected = torch.addcmul(values.amin(dim=0), self.temperature, batch["next_log_probability"], value=-1)
        return torch.addcmul(batch["reward"], 1 - batch["end"], expected, value=self.settings.gamma)

    @torch.no_grad()
    def foresee(self, rows: Batch) -> Batch:
        """Rows with what the policy would do next."""
        action, log_probability = self.sample(rows["next_observation"], rows.get("next_noise"))
        return {**rows, "next_action": action, "next_log_probability": log_probability}

    def policy_gradient(self, batch: Batch) -> list[Tensor]:
        """The policy's loss, the mean log-probability of its actions, and the loss's gradient."""
        temperature = self.temperature

        def work(observation: Tensor, noise: Tensor) -> list[Tensor]:
            action, log_probability = self.sample(observation, noise)
            values = values_of(self._fixed_critics, observation, action)
            trusted, by_value = self.trusted(values.detach())
            rows = len(observation)
            # Of the mean over rows of temperature * log_probability - trusted; in fewer kernels than by a graph of it.
            gradients = torch.autograd.grad(
                [log_probability, values],
                self._policy_weights,
                [(temperature / rows).expand(rows), -by_value / rows],
            )
            mean = log_probability.detach().mean()
            return [temperature * mean - trusted.mean(), mean, *gradients]

        noise = self._noise(len(batch["action"]))
        return mean_over_rows(work, batch["observation"], noise, widths=self.settings.hidden)

    def trusted(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """What the policy climbs, of what the critics expect of each row; and its derivative by their values."""
        if self.settings.policy_trusts == "mean":
            return values.mean(dim=0), torch.full_like(values, 1 / len(values))
        least, which = values.min(dim=0, keepdim=True)
        return least[0], torch.zeros_like(values).scatter_(0, which, 1.0)

    def follow_policy(self, policy_gradient: list[Tensor]) -> None:
        """A step of Adam for the policy, and one for the temperature."""
        _, log_probability, *gradients = policy_gradient
        self._acted.wait()
        self.policy_optimizer.step(gradients)
        self.cool(log_probability)

    @torch.no_grad()
    def cool(self, log_probability: Tensor) -> None:
        """A step of Adam for the temperature: lower while the policy is more random than it is to be."""
        self.temperature_optimizer.step([self.temperature * (-log_probability - self.target_entropy)])

    @property
    def temperature(self) -> Tensor:
        return self.log_temperature.detach().exp()

    def sample(self, observation: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Actions for normalised observations, and their log-probabilities."""
        noise = self._noise(len(observation)) if noise is None else noise
        mean, log_std = self.agent.policy.distribution(observation)
        assert log_std is not None
        sample = torch.addcmul(mean, log_std.exp(), noise)
        return torch.tanh(sample), log_density_of_tanh(sample, noise, log_std)

    def _noise(self, rows: int) -> Tensor:
        shape = (rows, self.env.num_actions)
        return torch.randn(shape, generator=self.generator, dtype=self.env.dtype, device=self.device)

    @torch.no_grad()
    def finish(self, columns: dict[str, Tensor]) -> None:
        """Learn what observations look like, and write down how it went."""
        self.agent.normalizer.update(torch.stack(self.seen))
        columns = columns | saturation(torch.stack(self.actions))
        self.conclude(torch.stack(self.rewards), torch.stack(self.done), columns)


def values_of(critics: Callable[[Tensor], Tensor], observation: Tensor, action: Tensor) -> Tensor:
    """What critics expect of actions, (critics, rows)."""
    return critics(torch.cat([observation, action], dim=1)).squeeze(-1)


def step_fields(env: Env) -> dict[str, Field]:
    """What is remembered of a step."""
    return {
        "observation": Field(env.num_observations, env.dtype),
        "action": Field(env.num_actions, env.dtype),
        "reward": Field(None, env.dtype),
        "next_observation": Field(env.num_observations, env.dtype),
        "end": Field(None, env.dtype),
    }


def log_density_of_tanh(sample: Tensor, noise: Tensor, log_std: Tensor) -> Tensor:
    """Of tanh(sample), summed over actions, where the sample is a mean and exp(log_std) times the noise."""
    # The logarithm of tanh's slope is 2 log(2) - 2 (sample + log(1 + exp(-2 sample))), the latter in a form that does
    # not overflow. In as few operations as can be: each is a kernel.
    steep = torch.add(sample, softplus(sample, beta=-2), alpha=-2)
    negative = torch.addcmul(torch.add(log_std, steep, alpha=-2), noise, noise, value=0.5)
    return -negative.sum(dim=-1) - sample.shape[-1] * (math.log(2 * math.pi) / 2 + 2 * math.log(2))


SLOW: dict[str, Any] = {"actor_lr": 3e-4, "critic_lr": 3e-4, "temperature_lr": 2e-4, "random_iterations": 1}
BY_TASK: dict[str, dict[str, Any]] = {
    "cartpole": {"num_worlds": 32, "batch": 1024, "hidden": (64, 64), "iterations": 1000},
    "hopper": {"num_worlds": 64, "batch": 2048},
    "half_cheetah": {"num_worlds": 64, "batch": 2048},
    "ant": {},
    "humanoid": {"num_worlds": 64, "batch": 2048, "hidden": (512, 256), **SLOW},
    "muscle_humanoid": {"num_worlds": 256, "hidden": (512, 512, 512, 256), "iterations": 10_000, **SLOW},
}


def tuned(task: str) -> SacSettings:
    """As the paper found best for each task; a task of your own is taken for an Ant."""
    return replace(SacSettings(), **BY_TASK.get(task, {}))


SAC = Algorithm(
    name="sac",
    label="SAC",
    summary="returns alone, all past steps: fewer samples than PPO, more time for each",
    settings=SacSettings,
    learner=Sac,
    presets={"tuned": tuned},
)
