"""`trot check TASK`, method by method: which of the parts that a task returns has a wrong gradient by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.envs.situation import Situation, as_columns
from trot.envs.source_line import task_error
from trot.envs.task import Task, task_control
from trot.envs.window_rewards import Inputs, Windows
from trot.sim.differences import Direction
from trot.sim.gradient_check import Row, check_input, gradients
from trot.sim.manifold import retract

CUT = "the gradient is cut. Look for .detach(), .item(), torch.no_grad() or an integer"
NOT_FINITE = "look for the root of zero, acos(1), a norm of zeros or a division by zero in the task"

UNIT = {"action": 1.0, "joint_q": 0.1, "joint_qd": 0.1}
"""Of steps along each input; a memory's are like those of a coordinate."""


@dataclass(frozen=True, eq=False)
class _Moments:
    """Rows out of the windows, one per step and world that did not blow up."""

    begin: Situation
    """Where a step begins: what control() is told."""
    judged: Situation
    """After it, with the memory that it began with: what the reward and next_memory() are told."""
    seen: Situation
    """With the memory from there on: what observation() is told."""
    action: Tensor


Method = Callable[[Situation, Tensor], dict[str, Tensor]]


def check_methods(env: Env, windows: Windows, tolerance: float, directions: int, seed: int) -> tuple[list[str], bool]:
    """What is wrong with single methods, and whether all is well enough to train.

    An observation or a memory that is cut off on purpose is told of, but is no fault. Reward terms are compared with
    differences elsewhere, together with the physics; here it shows which of them is not finite.
    """
    task, moments = env.task, _moments(env, windows)
    if not len(moments.action):
        return [], True
    generator = torch.Generator().manual_seed(seed + 2)
    found: list[str] = []
    sound = True
    for method, (where, call) in _methods(task, moments).items():
        rows = _Rows(task, where, moments.action, call)
        for part, row in rows.check(method, tolerance, directions, generator).items():
            bad, cut = math.isinf(row.error), row.largest == 0
            if not row.wrong or (method == "reward_terms" and not bad):
                continue
            sound &= cut
            problem = f"{row.reading}; {NOT_FINITE}" if bad else CUT if cut else row.reading
            found.append(str(task_error(task, part, f"alone: {problem}")))
    return found, sound


def _methods(task: Task[Any], moments: _Moments) -> dict[str, tuple[Situation, Method]]:
    """Each with the rows that it is told, and the parts that it returns."""
    return {
        "control": (moments.begin, lambda state, action: {"": task_control(task, action, state)}),
        "reward_terms": (moments.judged, lambda state, action: task.reward_terms(task.measure(state), action)),
        "next_memory": (moments.judged, lambda state, action: task.next_memory(task.measure(state), action)),
        "observation": (moments.seen, lambda state, action: task.observation(task.measure(state), action)),
    }


@torch.no_grad()
def _moments(env: Env, windows: Windows) -> _Moments:
    env.worlds = windows.begin
    env.detach()
    begin, judged, seen, actions = [], [], [], []
    for action in windows.actions:
        before = env.state
        move = env.advance(action.clamp(-1, 1))
        rows = move.sound.squeeze(1)
        after = move.final_state
        begin.append(_selected(before, rows))
        judged.append(_selected(replace(after, memory=before.memory), rows))
        seen.append(_selected(after, rows))
        actions.append(move.action[rows])
    return _Moments(_joined(begin), _joined(judged), _joined(seen), torch.cat(actions))


def _selected(state: Situation, rows: Tensor) -> Situation:
    memory = {name: part[rows] for name, part in state.memory.items()}
    activation = None if state.activation is None else state.activation[rows]
    return Situation(state.joint_q[rows], state.joint_qd[rows], memory, activation=activation)


def _joined(states: list[Situation]) -> Situation:
    joint_q, joint_qd = (torch.cat([getattr(state, name) for state in states]) for name in ("joint_q", "joint_qd"))
    memory = {name: torch.cat([state.memory[name] for state in states]) for name in states[0].memory}
    activations = [state.activation for state in states if state.activation is not None]
    activation = torch.cat(activations) if activations else None
    return Situation(joint_q, joint_qd, memory, activation=activation)


@dataclass(frozen=True, eq=False)
class _Rows:
    """A method as a function of offsets on all that it is told."""

    task: Task[Any]
    state: Situation
    action: Tensor
    method: Method

    def check(self, name: str, tolerance: float, count: int, generator: torch.Generator) -> dict[str, Row]:
        """The verdict on every part of floating-point numbers, by what the part is called."""
        zeros = self._zeros()
        leaves = {key: zero.requires_grad_() for key, zero in zeros.items()}
        ways = [
            {key: UNIT.get(key, 0.1) * torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)
             for key, leaf in leaves.items()}
            for _ in range(count)
        ]  # fmt: skip
        rows = {}
        for part, values in self._call(leaves).items():
            if not values.is_floating_point():
                continue
            by_leaf = gradients(values.sum(), leaves)
            slopes = torch.stack([_along(by_leaf, way) for way in ways])
            moves = [Direction("", 1.0, partial(self._moved, part, way)) for way in ways]
            title = f"{name}()['{part}']" if part else f"{name}()"
            rows[title] = check_input(title, values, moves, slopes, tolerance)
        return rows

    def _zeros(self) -> Inputs:
        still = torch.zeros_like(self.state.joint_qd)
        memory = {f"memory {name}": torch.zeros_like(part) for name, part in self.state.memory.items()}
        zeros = {"action": torch.zeros_like(self.action), "joint_q": still, "joint_qd": still.clone(), **memory}
        if self.state.activation is not None:
            zeros["activation"] = torch.zeros_like(self.state.activation)
        return zeros

    def _moved(self, part: str, way: Inputs, distance: float) -> Tensor:
        return self._call({name: distance * along for name, along in way.items()})[part]

    def _call(self, moved: Inputs) -> dict[str, Tensor]:
        state = self.state
        memory = {name: part + moved[f"memory {name}"] for name, part in state.memory.items()}
        joint_q = retract(self.task.model, state.joint_q, moved["joint_q"])
        activation = None if state.activation is None else state.activation + moved["activation"]
        situation = Situation(joint_q, state.joint_qd + moved["joint_qd"], memory, activation=activation)
        return as_columns(self.method(situation, self.action + moved["action"]))


def _along(gradient: Inputs, way: Inputs) -> Tensor:
    """The slope of each row."""
    return torch.cat([gradient[name] * along for name, along in way.items()], dim=1).sum(dim=1)
