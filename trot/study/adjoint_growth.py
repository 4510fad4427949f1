"""How the gradient by the state grows backward in time, and where chaos begins: the measurement.

Worlds act through a window of steps. One backward pass gives the gradient of what the window ends with by the state
of every step before; its norm, against the steps in between, is the growth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trot.envs.device import existing_device
from trot.envs.env import Env
from trot.envs.move import Move
from trot.envs.situation import Situation
from trot.envs.task import Task
from trot.learn.play import Act, agent_acts, chance_acts, nothing_acts
from trot.learn.torch_threads import one_torch_thread
from trot.learn.train import choose_device
from trot.study.subject import Studied, Subject, find_subject, varied
from trot.study.window_memory import require_window_room

Acting = Literal["auto", "policy", "mean", "chance", "nothing"]
"""Who acts: the run's policy with its noise or without, uniform random actions, or nobody; auto: the policy of a run,
chance in a task."""
Objective = Literal["last", "return"]
"""What is differentiated: the reward of the last step, or the sum of all."""
Falls = Literal["auto", "end", "ignore"]
"""Whether a fall ends an episode. auto: where a policy acts; a robot that nobody steers goes on where it lies."""

CPU_STEPS, CPU_WORLDS, CUDA_WORLDS = 256, 32, 128
MOST_STEPS = 1000
"""Of a window, unless more are asked for."""


@dataclass(frozen=True, eq=False)
class Growth:
    """Norms of the gradient by the state, one window of one task."""

    name: str
    substeps: int
    control_dt: float
    norms: NDArray[np.float64]
    """(steps + 1, worlds) so many steps before the end; NaN before the episode that the window ends in began, and
    where the last step blew up; infinite where the gradient is not finite."""
    blown_up: int
    """Worlds that blew up within the window."""

    @property
    def reach(self) -> int:
        """How many steps back the episodes of at least half of the worlds reach; -1 where their last step blew up."""
        there = (~np.isnan(self.norms)).sum(axis=1) * 2 >= self.norms.shape[1]
        return int(there.sum()) - 1

    def quantile(self, share: float) -> NDArray[np.float64]:
        """(reach + 1,) over the worlds whose episode is as long; a number that one of the worlds has."""
        reached = np.sort(self.norms[: self.reach + 1], axis=1)
        # NaN comes last.
        count = (~np.isnan(reached)).sum(axis=1)
        index = np.floor(share * (count - 1) + 0.5).astype(int)
        return np.take_along_axis(reached, index[:, None], axis=1)[:, 0]

    @property
    def per_second(self) -> float:
        """Slope of the straight line through the logarithm of the median, per second backward; NaN where it has none.

        Multiplied by the time, the power of e that gradients grow by.
        """
        median = self.quantile(0.5)
        seconds = np.arange(len(median)) * self.control_dt
        usable = np.isfinite(median) & (median > 0)
        if usable.sum() < 2:
            return math.nan
        return float(np.polyfit(seconds[usable], np.log(median[usable]), 1)[0])

    @property
    def farthest(self) -> float:
        """The median as far back as it reaches."""
        return float(self.quantile(0.5)[-1]) if self.reach >= 0 else math.nan

    def first_above(self, level: float) -> int | None:
        """Steps backward after which the median first exceeds this; None where it does not."""
        above = self.quantile(0.5) > level
        return int(above.argmax()) if above.any() else None


def growth(
    studied: Studied,
    substeps: int | None = None,
    steps: int | None = None,
    num_worlds: int | None = None,
    acting: Acting = "auto",
    objective: Objective = "last",
    falls: Falls = "auto",
    checkpoint: str = "best",
    device: str = "auto",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Growth:
    """How gradients by the state grow backward through a window of steps from fresh starts.

    A task or a run, with the task's own substeps unless others are given. Steps and worlds are by default a whole
    episode of at most 1000 steps in 128 worlds on CUDA, and 256 steps in 32 worlds on the CPU. Where a policy acts,
    gradients flow through it too, as in learning.
    """
    window = prepare(studied, substeps, steps, num_worlds, acting, falls, checkpoint, device, seed, dtype)
    return window.measure(objective)


@dataclass(frozen=True, eq=False)
class PreparedWindow:
    """Worlds of a task, who acts in them, and for how long: nothing that is known to fail is left."""

    name: str
    env: Env
    act: Act
    steps: int

    def measure(self, objective: Objective) -> Growth:
        """Act, and differentiate."""
        env, task = self.env, self.env.task
        with one_torch_thread():
            states, moves = _window(env, self.act, self.steps)
            rewards = env.rewards(moves)
            target = rewards[-1] if objective == "last" else rewards
            norms = _state_norms(target.sum(), states)
        norms[~_reached(moves)] = np.nan
        blown_up = int((env.worlds.faults > 0).sum())
        return Growth(self.name, task.substeps, task.control_dt, norms[::-1], blown_up)


def prepare(
    studied: Studied,
    substeps: int | None,
    steps: int | None,
    num_worlds: int | None,
    acting: Acting,
    falls: Falls,
    checkpoint: str,
    device: str,
    seed: int,
    dtype: torch.dtype,
) -> PreparedWindow:
    """A window with the arguments of growth(), or ValueError that says what is wrong with them."""
    subject = find_subject(studied)
    place = existing_device(choose_device(device))
    steps = default_steps(subject.task, place) if steps is None else steps
    if num_worlds is None:
        num_worlds = CUDA_WORLDS if place.type == "cuda" else CPU_WORLDS
    if not 1 <= steps <= subject.task.episode_length:
        raise ValueError(f"steps must be 1 to {subject.task.episode_length}, an episode of {subject.name}, not {steps}")
    acting = ("chance" if subject.run is None else "policy") if acting == "auto" else acting
    task = subject.task if substeps is None else varied(subject.task, substeps=substeps)
    if falls == "ignore" or (falls == "auto" and acting not in ("policy", "mean")):
        task = varied(task, fallen=_never_falls)
    env = Env(task, num_worlds, place, seed, dtype)
    require_window_room(env, steps)
    return PreparedWindow(subject.name, env, _actor(subject, env, acting, checkpoint, seed), steps)


def default_steps(task: Task[object], device: torch.device) -> int:
    """Of a window: an episode on CUDA, less on the CPU."""
    return min(task.episode_length, MOST_STEPS if device.type == "cuda" else CPU_STEPS)


def _never_falls(measured: object) -> None:
    return None


def _actor(subject: Subject, env: Env, acting: Acting, checkpoint: str, seed: int) -> Act:
    if acting == "chance":
        return chance_acts(env, seed)
    if acting == "nothing":
        return nothing_acts(env)
    agent = subject.agent(checkpoint)
    agent.policy.to(env.dtype)
    return agent_acts(agent, env, acting == "policy", seed)


def _window(env: Env, act: Act, steps: int) -> tuple[list[Situation], list[Move]]:
    """The states before, between and after these steps, from fresh starts, and the moves."""
    env.reset()
    start = env.state
    joint_q, joint_qd = (part.clone().requires_grad_() for part in (start.joint_q, start.joint_qd))
    first = Situation(joint_q, joint_qd, start.memory, activation=start.activation)
    observation, moves = env.place(first), []
    for _ in range(steps):
        moves.append(env.advance(act(observation)))
        observation = moves[-1].observation
    return [first, *(move.final_state for move in moves)], moves


def _state_norms(target: Tensor, states: Sequence[Situation]) -> NDArray[np.float64]:
    """(states, worlds) of the gradient by joint_q and joint_qd together."""
    tensors = [tensor for state in states for tensor in (state.joint_q, state.joint_qd)]
    found = torch.autograd.grad(target, tensors, materialize_grads=True)
    # Squares of large numbers are beyond single precision.
    squares = torch.stack([bar.double().square().sum(dim=1) for bar in found])
    norms: NDArray[np.float64] = squares.view(len(states), 2, -1).sum(dim=1).sqrt().cpu().numpy()
    norms[~np.isfinite(norms)] = np.inf
    return norms


def _reached(moves: Sequence[Move]) -> NDArray[np.bool_]:
    """(moves + 1, worlds) whether a state lies in the episode of the last step, and that step did not blow up."""
    done = torch.stack([move.terminated | move.truncated for move in moves]).cpu().numpy()
    # An episode that the last step ends is still the one that it belongs to.
    done[-1] = ~moves[-1].sound.squeeze(1).cpu().numpy()
    unbroken: NDArray[np.bool_] = ~np.logical_or.accumulate(done[::-1])[::-1]
    return np.concatenate([unbroken[:1], unbroken])
