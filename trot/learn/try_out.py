"""`trot try` and `trot tasks`: see a task before training for it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trot.command_line import TaskName
from trot.envs.env import Env
from trot.envs.registry import TASKS, make_env, make_task
from trot.learn.play import Played, chance_acts, nothing_acts, play


@dataclass
class TrySettings:
    """Run a task for a few seconds with an agent that knows nothing."""

    task: TaskName
    """One of `trot tasks`, or path/to/file.py:Class."""
    agent: Literal["zero", "random"] = "random"
    """All actions zero, or drawn uniformly from [-1, 1]."""
    worlds: int = 64
    """Worlds in parallel."""
    steps: int = 300
    """Control steps."""
    seed: int = 0
    """Of the starts and of random actions."""
    device: str = "cpu"
    """cpu or cuda."""


@dataclass
class Tally:
    """Returns and lengths of finished episodes, and of those still running."""

    returns: Tensor
    lengths: Tensor
    finished_returns: list[float]
    finished_lengths: list[int]
    falls: int = 0
    time_outs: int = 0

    @classmethod
    def begin(cls, env: Env) -> Tally:
        zeros = torch.zeros(env.num_worlds, device=env.device)
        return cls(zeros, zeros.clone(), [], [])

    def add(self, played: Played) -> None:
        self.returns = self.returns + played.reward
        self.lengths = self.lengths + 1
        done = played.done
        self.finished_returns += self.returns[done].tolist()
        self.finished_lengths += [int(length) for length in self.lengths[done].tolist()]
        self.falls += int(played.terminated.sum())
        self.time_outs += int((played.truncated & ~played.terminated).sum())
        self.returns, self.lengths = self.returns.masked_fill(done, 0), self.lengths.masked_fill(done, 0)


def print_tasks() -> None:
    """One line per task."""
    print(f"{'task':<17}{'observation':>12}{'actions':>9}{'episode':>9}{'substeps':>10}  what to do")
    for name in TASKS:
        env = make_env(name, num_worlds=1)
        task = env.task
        print(
            f"{name:<17}{env.num_observations:>12}{env.num_actions:>9}{env.episode_length:>9}{task.substeps:>10}  "
            f"{task.summary}"
        )
    print("Your own: path/to/file.py:Class (docs/your_own.md). See one move: trot try ant")


def run_try(settings: TrySettings) -> None:
    """Step, and print what happens: a line per second of simulated time, then the returns."""
    if settings.steps < 1:
        raise ValueError(f"steps must be at least 1, not {settings.steps}")
    task = make_task(settings.task)
    env = make_env(task, settings.worlds, settings.device, settings.seed)
    act = nothing_acts(env) if settings.agent == "zero" else chance_acts(env, settings.seed)
    print(f"{settings.task}: {task.summary}. {settings.worlds} worlds, agent: {settings.agent}")
    episodes = Tally.begin(env)
    per_second = max(1, round(1 / task.control_dt))
    began, faults = time.perf_counter(), 0
    reward_since, terms_since = 0.0, dict[str, float]()
    for step, played in enumerate(play(env, act, settings.steps), start=1):
        episodes.add(played)
        faults = int(played.info["faults"].sum())
        reward_since += float(played.reward.mean())
        for name, term in played.info["reward_terms"].items():
            terms_since[name] = terms_since.get(name, 0.0) + float(term.mean())
        if step % per_second == 0 or step == settings.steps:
            steps = (step - 1) % per_second + 1
            shares = ", ".join(f"{name} {total / steps:.2f}" for name, total in terms_since.items())
            print(f"after {step * task.control_dt:4.1f} s: reward {reward_since / steps:8.2f} per step ({shares})")
            reward_since, terms_since = 0.0, {}
    seconds = time.perf_counter() - began
    _print_episodes(episodes, faults)
    print(f"{settings.steps * settings.worlds / seconds:,.0f} environment steps per second on {env.device}")


def _print_episodes(episodes: Tally, faults: int) -> None:
    if episodes.finished_returns:
        returns, lengths = torch.tensor(episodes.finished_returns), torch.tensor(episodes.finished_lengths).float()
        spread = float(returns.std()) if len(returns) > 1 else 0.0
        print(
            f"{len(returns)} episodes finished ({episodes.falls} fell, {episodes.time_outs} ran out of time): "
            f"return {float(returns.mean()):.1f} +- {spread:.1f}, length {float(lengths.mean()):.0f}"
        )
    else:
        print(
            f"no episode finished yet: return so far {float(episodes.returns.mean()):.1f} "
            f"after {int(episodes.lengths.max())} steps"
        )
    if faults:
        print(f"{faults} times a world blew up and was reset: the physics needs more substeps")
