"""Model-Based Policy Optimisation: SAC that learns from what a learned model imagines, a few steps off real ones.

An iteration is a number of steps. From time to time, before one, top to bottom in this file:

    train_model   an ensemble learns what steps do, from all real ones
    imagine       short rollouts of the present policy in the model, branched off real observations, into a pool

and then SAC (sac.py) as ever, on batches of which a small share is real. Rewards are predicted; whether an imagined
world has fallen is told by the task's own rule, looks_fallen().
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from trot.command_line import WorldCount
from trot.envs.env import Env
from trot.envs.move import Move
from trot.learn.algorithms.sac import Batch, Sac, SacSettings, step_fields
from trot.learn.dynamics_model import DynamicsModel, Ensemble
from trot.learn.learner import Algorithm, Phase, require_at_least_one
from trot.learn.replay_buffer import ReplayBuffer


@dataclass(frozen=True)
class MbpoSettings(SacSettings):
    """Defaults are MBPO's for a new task, but for several worlds and fewer updates a step; BY_TASK says what differs.

    Epochs and intervals count the steps of all worlds together.
    """

    num_worlds: WorldCount = 16
    iterations: int = 800
    horizon: int = 16
    random_iterations: int = 20
    updates: int = 20
    policy_updates: Literal["once", "each"] = "each"
    batch: int = 256
    actor_lr: float = 3e-4
    critic_lr: float = 3e-4
    temperature_lr: float = 3e-4
    normalize_observations: bool = False
    log_std_bounds: tuple[float, float] = (-20.0, 2.0)
    hidden: tuple[int, ...] = (256, 256)
    real_share: float = 0.05
    """Of a batch, cut to whole steps; the rest is imagined."""
    model_interval: int = 8
    """Iterations between two trainings of the model."""
    rollouts: int = 20_000
    """Branched off real steps after each training."""
    rollouts_kept: int = 4
    """Trainings whose rollouts are learned from."""
    epoch_steps: int = 1000
    """Environment steps of an epoch, which rollout_epochs counts from the first update on."""
    rollout_epochs: tuple[int, int] = (20, 150)
    """Until the first, rollouts have the first length; from there it grows to the second, at the second."""
    rollout_lengths: tuple[int, int] = (1, 15)
    """Steps that the model imagines, at first and at last."""
    model_hidden: tuple[int, ...] = (200, 200, 200, 200)
    """Widths of the model's hidden layers."""
    model_members: int = 7
    """Models that learn side by side."""
    model_elites: int = 5
    """The members that predict best, which rollouts ask."""
    model_lr: float = 1e-3
    """Learning rate of the model."""
    model_batch: int = 1024
    """Steps that a member learns from at once."""
    model_passes: int = 1000
    """Over the data in one training, at most: it ends when no member has become better for 6 passes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(
            self, "model_interval", "rollouts", "rollouts_kept", "epoch_steps", "model_members", "model_elites",
            "model_batch", "model_passes",
        )  # fmt: skip
        if not 0 <= self.real_share <= 1:
            raise ValueError(f"real_share must be between 0 and 1, not {self.real_share}")
        if not 0 < self.model_lr < float("inf"):
            raise ValueError(f"model_lr must be above 0, not {self.model_lr}")
        if self.model_elites > self.model_members:
            raise ValueError(f"model_elites {self.model_elites} is more than the members: {self.model_members}")
        if not self.model_hidden or not all(width >= 1 for width in self.model_hidden):
            raise ValueError(f"model_hidden must be widths of at least 1, not {self.model_hidden}")
        (begin, end), lengths = self.rollout_epochs, self.rollout_lengths
        if not 0 <= begin < end:
            raise ValueError(f"rollout_epochs must be an epoch and a later one, not {self.rollout_epochs}")
        if not all(length >= 1 for length in lengths):
            raise ValueError(f"rollout_lengths must be at least 1, not {lengths}")

    def rollout_length(self, epoch: int) -> int:
        """Steps of a rollout in an epoch, counted from 0."""
        (begin, end), (first, last) = self.rollout_epochs, self.rollout_lengths
        grown = min(max(epoch - begin, 0) / (end - begin), 1.0)
        return int(first + grown * (last - first))

    def ensemble(self) -> Ensemble:
        return Ensemble(
            self.model_hidden, self.model_members, self.model_elites, self.model_lr, self.model_batch, self.model_passes
        )


class Mbpo(Sac):
    """SAC's parts, a model of what steps do, and a pool of what it imagines."""

    columns = (*Sac.columns, "model_error", "model_passes", "rollout_length", "imagined", "not_finite", "misjudged")
    shown = {"value": "value", "model error": "model_error", "rollouts": "rollout_length"}  # noqa: RUF012
    settings: MbpoSettings
    rollout_length: Tensor
    imagined: Tensor
    """Steps of the last rollouts."""
    not_finite: Tensor
    """Imagined steps that were not finite, and left out, so far."""
    fresh: Tensor
    """Rows of the pool that are learned from: those that came last."""

    def __init__(self, env: Env, settings: MbpoSettings, seed: int = 0) -> None:
        super().__init__(env, settings, seed)
        require_rule(env)
        with self.seeded():
            self.model = DynamicsModel(
                env.num_observations, env.num_actions, settings.ensemble(), self.device, env.dtype
            )  # fmt: skip
        room = settings.rollouts_kept * settings.rollouts * max(settings.rollout_lengths)
        self.pool = ReplayBuffer(room, step_fields(env), self.device)
        for name in ("rollout_length", "imagined", "not_finite", "fresh"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64, device=self.device))

    def phases(self) -> tuple[Phase, ...]:
        explore, learn = super().phases()
        begin, every = self.settings.random_iterations, self.settings.model_interval

        def due(iteration: int) -> bool:
            return iteration >= begin and ((iteration - begin) % every == 0 or not bool(self.fresh))

        return (
            explore,
            Phase("model", self.train_model, captured=False, due=due),
            Phase("imagine", self.imagine, captured=False, due=due),
            learn,
        )

    def train_model(self) -> None:
        """On all real steps, from where the last training ended."""
        real = self.memory.everything()
        inputs = torch.cat([real["observation"], real["action"]], dim=1)
        change = real["next_observation"] - real["observation"]
        learned = self.model.fit(inputs, torch.cat([real["reward"].unsqueeze(1), change], dim=1), self.generator)
        self.stopped |= ~learned.all()

    @torch.no_grad()
    def imagine(self) -> None:
        """Rollouts of the present policy in the model, each until it falls or has its length."""
        settings = self.settings
        length = settings.rollout_length(self.epoch())
        observation = self.memory.sample(settings.rollouts, self.generator)["observation"]
        imagined = 0
        for _ in range(length):
            action, _ = self.sample(self.agent.normalized(observation))
            following, reward = self.model.imagine(observation, action, self.generator)
            end = self.looks_fallen(following)
            finite = following.isfinite().all(dim=1) & reward.isfinite()
            rows = {
                "observation": observation,
                "action": action,
                "reward": reward,
                "next_observation": following,
                "end": end.to(reward.dtype),
            }
            self.pool.add(**{name: part[finite] for name, part in rows.items()})
            self.not_finite += (~finite).sum()
            imagined += int(finite.sum())
            observation = following[finite & ~end]
        # The pool has room for the longest rollouts; while they are shorter, as many trainings take less of it.
        kept = settings.rollouts_kept * settings.rollouts * length
        self.fresh.copy_((self.fresh + imagined).clamp(max=kept))
        self.imagined.fill_(imagined)
        self.rollout_length.fill_(length)
        self.stopped |= self.fresh == 0

    def epoch(self) -> int:
        """Of the schedule, counted from 0 at the first update."""
        begin = self.settings.random_iterations * self.settings.horizon * self.env.num_worlds
        return (int(self.steps) - begin) // self.settings.epoch_steps

    def looks_fallen(self, observation: Tensor) -> Tensor:
        """Where observations are of worlds that have fallen, (rows,), by the task's rule."""
        parts = {name: observation[:, columns] for name, columns in self.env.observation_layout.items()}
        fallen = self.env.task.looks_fallen(parts)
        return torch.zeros_like(observation[:, 0], dtype=torch.bool) if fallen is None else fallen.reshape(-1)

    def draw(self, batches: int = 1) -> Batch:
        """What so many updates learn from, one batch after the other: each a few real steps, then imagined ones."""
        real = int(self.settings.real_share * self.settings.batch)
        remembered = self.memory.sample(batches * real, self.generator)
        imagined = self.pool.sample(batches * (self.settings.batch - real), self.generator, newest=self.fresh)
        return self.with_normal_observations(
            {name: _alternating(batches, remembered[name], imagined[name]) for name in remembered}
        )

    def begin(self) -> None:
        super().begin()
        self.misjudged: list[Tensor] = []

    @torch.no_grad()
    def remember(self, action: Tensor, move: Move) -> None:
        super().remember(action, move)
        # Where a world blew up, an episode ends that did not fall.
        differs = self.looks_fallen(move.final_obs) != move.terminated
        self.misjudged.append((differs & move.sound.squeeze(1)).sum())

    def finish(self, columns: dict[str, Tensor]) -> None:
        ours = {
            "model_error": self.model.error,
            "model_passes": self.model.passes,
            "rollout_length": self.rollout_length,
            "imagined": self.imagined,
            "not_finite": self.not_finite,
            "misjudged": torch.stack(self.misjudged).sum(),
        }
        super().finish(columns | ours)

    def warning(self, row: Mapping[str, float]) -> str | None:
        if row["misjudged"]:
            task = type(self.env.task).__name__
            return f"{task}.looks_fallen() and fallen() differ on {row['misjudged']:.0f} of the last steps"
        if row["not_finite"]:
            return f"{row['not_finite']:.0f} imagined steps so far were not finite, and were left out"
        return None


def _alternating(batches: int, first: Tensor, second: Tensor) -> Tensor:
    """A part of the first rows and a part of the second, again and again."""
    parts = [part.view(batches, len(part) // batches, *part.shape[1:]) for part in (first, second)]
    return torch.cat(parts, dim=1).flatten(0, 1)


def require_rule(env: Env) -> None:
    """Refuse a task that can fall and does not tell how that looks."""
    task = env.task
    measured = task.measure(env.state)
    parts = {name: env.worlds.observation[:, columns] for name, columns in env.observation_layout.items()}
    if task.fallen(measured) is not None and task.looks_fallen(parts) is None:
        raise ValueError(
            f"{type(task).__name__} can fall, and MBPO must tell whether a world that it imagines has: give the task "
            "looks_fallen(self, observation), which says what fallen() says from the parts of an observation alone, "
            'such as observation["height"] < 0.3. If they do not tell, observe what does'
        )


ONE_WORLD: dict[str, Any] = {
    "num_worlds": 1, "horizon": 10, "random_iterations": 500, "updates": 20, "model_interval": 25,
    "rollouts": 100_000, "model_batch": 256,
}  # fmt: skip
"""MBPO's program: one environment, 5000 random steps, a training every 250 steps."""
LIKE_HUMANOID: dict[str, Any] = {
    "rollout_epochs": (20, 300), "rollout_lengths": (1, 25), "model_interval": 100, "rollouts_kept": 5,
    "model_hidden": (400, 400, 400, 400), "iterations": 30_500,
}  # fmt: skip
PAPER: dict[str, dict[str, Any]] = {
    # A swing-up is a new task to MBPO's program, which knows a pendulum that stands already: its template.
    "cartpole": {"entropy_per_action": -1.0},
    "hopper": {"entropy_per_action": -1 / 3},
    "half_cheetah": {"updates": 40, "rollout_lengths": (1, 1), "entropy_per_action": -3 / 6},
    "ant": {
        "rollout_epochs": (20, 100), "rollout_lengths": (1, 25), "entropy_per_action": -4 / 8, "iterations": 10_500,
    },
    "humanoid": {**LIKE_HUMANOID, "entropy_per_action": -2 / 21},
    "muscle_humanoid": {**LIKE_HUMANOID, "entropy_per_action": -2 / 152},
}  # fmt: skip
"""Of MBPO's program, entropies for all actions of a task together; it ends where the schedule does."""

BY_TASK: dict[str, dict[str, Any]] = {
    # Its values are hundreds, and rates of 3e-4 would take hours to get there.
    "cartpole": {
        "iterations": 120, "random_iterations": 8, "hidden": (64, 64), "actor_lr": 1e-3, "critic_lr": 3e-3,
        "temperature_lr": 1e-3, "target_keep": 0.99, "model_interval": 4, "rollouts": 4000,
        "rollout_epochs": (1, 10), "rollout_lengths": (1, 8), "model_hidden": (64, 64, 64, 64), "model_batch": 256,
        "model_passes": 40,
    },
    "half_cheetah": {"rollout_lengths": (1, 1)},
    "ant": {"rollout_epochs": (20, 100), "rollout_lengths": (1, 25)},
    "humanoid": {"rollout_epochs": (20, 300), "rollout_lengths": (1, 25), "model_hidden": (400, 400, 400, 400)},
    "muscle_humanoid": {"rollout_epochs": (20, 300), "rollout_lengths": (1, 25), "model_hidden": (400, 400, 400, 400)},
}  # fmt: skip


def tuned(task: str) -> MbpoSettings:
    """Several worlds, and updates so few that a run takes minutes."""
    return replace(MbpoSettings(), **BY_TASK.get(task, {}))


def paper(task: str) -> MbpoSettings:
    """As MBPO's program has it; a task of your own gets its template."""
    template = {"iterations": 15_500, "entropy_per_action": -1.0}
    return replace(MbpoSettings(), **(ONE_WORLD | template | PAPER.get(task, {})))


MBPO = Algorithm(
    name="mbpo",
    label="MBPO",
    summary="SAC on steps that a learned model imagines: few samples, and much time for each",
    settings=MbpoSettings,
    learner=Mbpo,
    presets={"tuned": tuned, "paper": paper},
)
