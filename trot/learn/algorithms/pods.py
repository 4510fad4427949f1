"""PODS, first order: a policy imitates sequences of actions that a gradient through whole episodes has improved.

One iteration, top to bottom in this file:

    rollout        an episode in every world from a fresh start, its actions the deterministic policy's
    differentiate  each episode's return by its actions, all of them at once
    try_step       a step along that gradient, simulated; run again with half the step, and again
    resimulate     the improved sequences once more, for what is seen along them
    imitate        a step of Adam towards a policy that answers what is seen with the improved actions; run many times
    finish         one row of metrics

Every simulated step counts as a sample. Episodes must be of one length, so a task that can fall is refused. No part
asks the device for an answer, so that on CUDA each is captured in a graph once and then replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from trot.command_line import WorldCount
from trot.envs.env import Env
from trot.envs.task import Task
from trot.learn.agent import AgentDescription
from trot.learn.learner import (
    Algorithm,
    Learner,
    LearnerSettings,
    Phase,
    require_at_least_one,
    require_positive,
    require_widths,
)
from trot.learn.optimizer import Adam
from trot.learn.saturation import SATURATION_COLUMNS, saturation

Choice = Literal["first", "best"]


@dataclass(frozen=True)
class PodsSettings(LearnerSettings):
    """Where the paper on PODS gives no number, a common one stands; TUNED holds what differs per task."""

    num_worlds: WorldCount = 64
    """Worlds in parallel, each for one episode per iteration."""
    iterations: int = 500
    """Of the whole training."""
    first_step: float = 1.0
    """First step that the line search tries: how far it moves the action with the largest gradient."""
    halvings: int = 10
    """How often the line search halves its step. A world where no step returns more keeps its actions."""
    line_search: Choice = "first"
    """Which of the steps that return more than before is kept: the first, so the longest, or the best."""
    imitation_steps: int = 50
    """Steps of Adam in each iteration, each over all that was seen in it."""
    imitation_lr: float = 1e-3
    """Learning rate of the policy."""
    adam_betas: tuple[float, float] = (0.9, 0.999)
    """Adam's memory of gradients and of their squares."""
    normalize_observations: bool = True
    """By the mean and deviation of those seen so far."""
    actor_hidden: tuple[int, ...] = (128, 64, 32)
    """Widths of the policy's hidden layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least_one(self, "imitation_steps")
        if self.halvings < 0:
            raise ValueError(f"halvings must be at least 0, not {self.halvings}")
        if self.line_search not in get_args(Choice):
            raise ValueError(f"line_search must be one of {', '.join(get_args(Choice))}, not '{self.line_search}'")
        require_positive(self, "first_step", "imitation_lr")
        if not all(0 <= beta < 1 for beta in self.adam_betas):
            raise ValueError(f"adam_betas must be 0 or more and below 1, not {self.adam_betas}")
        require_widths(self, "actor_hidden")

    @property
    def trials(self) -> int:
        return 1 + self.halvings

    def agent(self, env: Env) -> AgentDescription:
        return AgentDescription(
            num_observations=env.num_observations,
            num_actions=env.num_actions,
            hidden=self.actor_hidden,
            kind="deterministic",
            normalize=self.normalize_observations,
        )


@dataclass
class Episode:
    """One in every world, (steps, worlds, ...)."""

    seen: Tensor
    """Observations, each answered by the action of its step."""
    actions: list[Tensor]
    reward: Tensor
    done: Tensor
    sound: Tensor
    """(worlds,) False where a world blew up, so that the episode is none."""

    @property
    def value(self) -> Tensor:
        """(worlds,) undiscounted return; NaN, which is neither more nor less than another, where a world blew up."""
        return torch.where(self.sound, self.reward.detach().sum(dim=0), torch.nan)


class LineSearch:
    """Steps along a direction, each half of the one before; a world where none returns more keeps what it had.

    Every trial is simulated in all worlds, whatever they have found. What changes from one to the next does so in
    place: a captured trial is replayed.
    """

    def __init__(
        self, actions: Tensor, value: Tensor, direction: Tensor, first_step: float, choice: Choice
    ) -> None:  # fmt: skip
        self.begin, self.direction, self.choice = actions, direction, choice
        self.step = value.new_full((), first_step)
        """Of the next trial."""
        self.actions, self.value = actions.clone(), value.clone()
        """What is kept so far, (steps, worlds, actions), and what it returns, (worlds,)."""
        self.kept_step = torch.zeros_like(value)
        """(worlds,) that led there; 0 where none did."""

    def proposal(self) -> Tensor:
        """What to try next. Actions stay within their bounds: beyond them no gradient points anywhere."""
        return (self.begin + self.step * self.direction).clamp(-1, 1)

    def judge(self, tried: Tensor, value: Tensor) -> None:
        """Take or leave what was tried by what it returns, (worlds,), and halve the step."""
        better = value > self.value
        if self.choice == "first":
            better &= self.kept_step == 0
        self.actions.copy_(torch.where(better.unsqueeze(1), tried, self.actions))
        self.value.copy_(torch.where(better, value, self.value))
        self.kept_step.copy_(torch.where(better, self.step, self.kept_step))
        self.step /= 2


class Pods(Learner):
    """A policy, and the worlds that show it what is better."""

    columns = (
        "imitation_loss",
        "gradient_norm",
        "lost_gradients",
        "improved_worlds",
        "step_size",
        "gain",
        *SATURATION_COLUMNS,
    )
    shown = {"gain": "gain", "improved": "improved_worlds", "imitation": "imitation_loss"}  # noqa: RUF012

    def __init__(self, env: Env, settings: PodsSettings, seed: int = 0) -> None:
        require_one_length(env.task)
        super().__init__(env, settings, seed)
        self.settings = settings
        with self.seeded():
            self.make_agent(settings.agent(env))
        self._parameters_to_fit: list[Tensor] = list(self.agent.policy.parameters())
        self.optimizer = Adam(self._parameters_to_fit, settings.adam_betas)
        self.optimizer.rate.fill_(settings.imitation_lr)

    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase("rollout", self.rollout),
            Phase("backward", self.differentiate),
            Phase("line search", self.try_step, times=self.settings.trials),
            Phase("resimulation", self.resimulate),
            Phase("imitation", self.imitate, times=self.settings.imitation_steps),
            Phase("other", self.finish),
        )

    def simulate(self, act: Callable[[int, Tensor], Tensor]) -> Episode:
        """A whole episode in every world, from where this iteration's begin; act takes step and observation."""
        env, observation = self.env, self.env.begin_window()
        seen, actions, moves = [], [], []
        for step in range(env.episode_length):
            seen.append(observation.detach())
            actions.append(act(step, observation))
            moves.append(env.advance(actions[-1]))
            observation = moves[-1].observation
        blown_up = torch.stack([move.terminated for move in moves])
        done = blown_up | torch.stack([move.truncated for move in moves])
        return Episode(torch.stack(seen), actions, env.rewards(moves), done, ~blown_up.any(dim=0))

    def rollout(self) -> None:
        """Act by the policy. Its actions are the beginning of gradients: they reach no weight and no observation."""
        shift, scale = self.agent.normalization(self.env.dtype)

        def act(step: int, observation: Tensor) -> Tensor:
            with torch.no_grad():
                action: Tensor = self.agent.policy((observation - shift) * scale)
            return action.requires_grad_()

        self.played = self.simulate(act)

    def action_gradient(self) -> Tensor:
        """(steps, worlds, actions) each world's return by its own actions: one backward pass through the episode."""
        # Worlds do not know of each other, so that the gradient of the sum is that of each return.
        found = torch.autograd.grad(self.played.reward.sum(), self.played.actions, materialize_grads=True)
        return torch.stack(found)

    def differentiate(self) -> None:
        """Find out where each return grows, and begin the line search in that direction."""
        settings, gradient = self.settings, self.action_gradient()
        largest = gradient.abs().amax(dim=(0, 2))
        self.lost = ~largest.isfinite()
        self.gradient_norm = torch.linalg.vector_norm(gradient, dim=(0, 2)).nan_to_num(nan=torch.inf).median()
        # Over hundreds of steps gradients differ by orders of magnitude from world to world; only where they point
        # counts. A world without a gradient to follow stays as it is.
        usable = (~self.lost & (largest > 0)).unsqueeze(1)
        direction = torch.where(usable, gradient / largest.unsqueeze(1), 0.0)
        actions = torch.stack(self.played.actions).detach()
        self.search = LineSearch(actions, self.played.value, direction, settings.first_step, settings.line_search)

    @torch.no_grad()
    def try_step(self) -> None:
        """One trial of the line search, in all worlds."""
        tried = self.search.proposal()
        self.search.judge(tried, self.simulate(lambda step, _: tried[step]).value)

    @torch.no_grad()
    def resimulate(self) -> None:
        """What is seen along the improved sequences, and from now on the normalisation that it asks for."""
        improved = self.simulate(lambda step, _: self.search.actions[step])
        self.agent.normalizer.update(improved.seen)
        shift, scale = self.agent.normalization(self.env.dtype)
        self.inputs = (improved.seen - shift) * scale
        self.counts = improved.sound.to(self.env.dtype)

    def imitate(self) -> None:
        """Half the squared distance to the improved actions: summed over an episode, mean over the worlds."""
        distance = (self.agent.policy(self.inputs) - self.search.actions).square().sum(dim=(0, 2)) / 2
        loss = (self.counts * distance).mean()
        self.optimizer.step(torch.autograd.grad(loss, self._parameters_to_fit))
        self.imitation_loss = loss.detach()

    @torch.no_grad()
    def finish(self) -> None:
        """Write down how it went; every world begins anew."""
        played, search = self.played, self.search
        improved = search.kept_step > 0
        columns = {
            "imitation_loss": self.imitation_loss,
            "gradient_norm": self.gradient_norm,
            "lost_gradients": self.lost.to(self.env.dtype).mean(),
            "improved_worlds": improved.to(self.env.dtype).mean(),
            "step_size": search.kept_step.mean(),
            "gain": torch.where(improved, search.value - played.value, 0.0).mean(),
            **saturation(torch.stack(played.actions)),
        }
        # Where a world blew up another episode has begun, which is given up.
        self.env.end_episodes()
        simulations = 1 + self.settings.trials + 1
        self.conclude(played.reward.detach(), played.done, columns, simulated=simulations * played.reward.numel())
        self.episodes.forget_running()

    def warning(self, row: Mapping[str, float]) -> str | None:
        lost = row["lost_gradients"]
        return f"{lost:.0%} of worlds have a gradient that is not finite, and did not improve" if lost else None

    def forget(self) -> None:
        del self.played


def require_one_length(task: Task[Any]) -> None:
    """Raise where an episode can end before its time: its return has no gradient by actions that were never taken."""
    if type(task).fallen is not Task.fallen:
        raise ValueError(
            f"PODS needs episodes that are all of one length, but in '{task.name}' they can end early, by its "
            "fallen(); take a task that never does, as cartpole and half_cheetah, or another of `trot algorithms`"
        )


TUNED: dict[str, dict[str, Any]] = {"cartpole": {"actor_hidden": (64, 64)}}


def tuned(task: str) -> PodsSettings:
    """A task that is not in the table gets the general setting."""
    return PodsSettings(**TUNED.get(task, {}))


PODS = Algorithm(
    name="pods",
    label="PODS",
    summary="improves the actions of whole episodes by their gradient, and imitates them; for tasks without falls",
    settings=PodsSettings,
    learner=Pods,
    presets={"tuned": tuned},
)
