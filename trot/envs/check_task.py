"""`trot check TASK`: is the gradient right from action to reward? Against central differences, in float64.

Then in float32, which trains, against float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from trot.command_line import TaskName
from trot.envs.check_methods import CUT, NOT_FINITE, check_methods
from trot.envs.check_precision import check_in_single
from trot.envs.env import Env
from trot.envs.randomize import Randomize
from trot.envs.registry import make_env
from trot.envs.window_rewards import WindowRewards, Windows
from trot.envs.worlds import Worlds
from trot.sim.differences import Direction
from trot.sim.gradient_check import Row, check_input, gradients, report, require_sensible
from trot.sim.manifold import retract

UNIT = {"actions": 1.0, "joint_q": 0.1, "joint_qd": 0.1}
"""What steps of the differences are shares of: a displacement does more than an action."""

NUDGE = 1e-4
"""A fresh start may lie exactly at a joint's limit, which is a kink: every window begins this far from where it was."""

END_STEP = 4
"""Worlds that end inside the window do so in this step of it."""

MOTION_STEPS = 240
"""Length of the random motion that the windows are cut from."""


@dataclass
class TaskCheckSettings:
    """Check the gradient of a task's reward against finite differences."""

    task: TaskName
    """One of `trot tasks`, or path/to/file.py:Class."""
    worlds: int = 32
    """Worlds, each with another window out of a random motion: some fall inside it, some run out of time."""
    steps: int = 8
    """Control steps whose rewards are added up."""
    directions: int = 4
    """Random directions per input, in which slopes are compared."""
    tolerance: float = 1e-6
    """Largest relative error that passes."""
    seed: int = 0
    """Of the windows and of the directions."""
    randomize: Randomize = field(default_factory=Randomize)
    """Random physics, pushes, noise and delay in these windows."""


def run_task_check(settings: TaskCheckSettings) -> bool:
    """Print a table of errors per input; True when all pass."""
    require_sensible(
        settings.tolerance,
        settings.seed,
        worlds=settings.worlds,
        steps=settings.steps,
        directions=settings.directions,
    )
    if settings.steps >= MOTION_STEPS:
        raise ValueError(f"steps must be less than {MOTION_STEPS}, not {settings.steps}")
    # First, because a task that does not fit the precision that trains is refused here.
    randomize = None if settings.randomize == Randomize() else settings.randomize
    single = make_env(settings.task, settings.worlds, seed=settings.seed, randomize=randomize)
    env = make_env(settings.task, settings.worlds, seed=settings.seed, dtype=torch.float64, randomize=randomize)
    windows = draw_windows(env, settings)
    falls, time_outs = count_ends(env, windows)
    print(
        f"{settings.task}: sum of {settings.steps} rewards in {settings.worlds} worlds, of which {falls} fall "
        f"and {time_outs} run out of time inside the window"
    )
    blown_up = int((env.worlds.faults > windows.begin.faults).sum())
    if blown_up:
        print(f"{blown_up} worlds blow up inside the window and are not checked: the physics needs more substeps")
    right = report(check_task_gradients(env, windows, settings), settings.tolerance)
    problems, sound = check_methods(env, windows, settings.tolerance, settings.directions, settings.seed)
    for problem in problems:
        print(f"  {problem}")
    return check_in_single(single, env, windows) and right and sound


@torch.no_grad()
def draw_windows(env: Env, settings: TaskCheckSettings) -> Windows:
    """Cut windows out of a random motion: shortly before a fall where there is one, at random where not."""
    generator = torch.Generator().manual_seed(settings.seed)
    env.reset(settings.seed)
    rows, count = settings.worlds, settings.worlds * env.num_actions
    leaning = 1.6 * torch.rand(count, generator=generator, dtype=torch.float64).view(rows, -1) - 0.8
    moments, actions, fell = [], [], []
    for _ in range(MOTION_STEPS):
        wiggle = 0.38 * torch.rand(count, generator=generator, dtype=torch.float64).view(rows, -1) - 0.19
        moments.append(env.worlds)
        actions.append(leaning + wiggle)
        _, _, terminated, _, _ = env.step(actions[-1])
        fell.append(terminated)
    first_fall = torch.stack(fell).int().argmax(dim=0)
    falls = torch.stack(fell).any(dim=0) & (first_fall >= END_STEP)
    # A third of the worlds shall not fall even where they could.
    falls[2 * rows // 3 :] = False
    anywhere = torch.randint(MOTION_STEPS - settings.steps, (rows,), generator=generator)
    begins = torch.where(falls, (first_fall - END_STEP + 1).clamp(max=MOTION_STEPS - settings.steps), anywhere)
    pick = torch.arange(rows)
    tensors = {
        name: torch.stack([moment.tensors()[name] for moment in moments])[begins, pick] for name in env.worlds.tensors()
    }
    last_sixth = pick >= rows - rows // 6
    tensors["clock"][last_sixth] = env.episode_length - END_STEP
    tensors["clock"][~last_sixth] = 0
    chosen = torch.stack([torch.stack(actions)[begins + k, pick] for k in range(settings.steps)])
    nudge = NUDGE * torch.randn(tensors["joint_qd"].shape, generator=generator, dtype=torch.float64)
    tensors["joint_q"] = retract(env.task.model, tensors["joint_q"], nudge)
    return Windows(Worlds(**tensors), chosen)


@torch.no_grad()
def count_ends(env: Env, windows: Windows) -> tuple[int, int]:
    """Falls and time-outs inside the windows."""
    env.worlds = windows.begin
    env.detach()
    ends = [(fell & ~info["fault"], late & ~fell) for _, _, fell, late, info in map(env.step, windows.actions)]
    falls, time_outs = zip(*ends, strict=True)
    return int(torch.stack(falls).sum()), int(torch.stack(time_outs).sum())


def check_task_gradients(env: Env, windows: Windows, settings: TaskCheckSettings) -> list[Row]:
    """One row per input: the actions of the window, and joint_q and joint_qd of its start."""
    rewards = WindowRewards(env, windows)
    leaves = {name: value.clone().requires_grad_() for name, value in rewards.zeros.items()}
    terms = rewards(leaves)
    rewards.require_finite(terms)
    rewards.require_double(terms)
    generator = torch.Generator().manual_seed(settings.seed + 1)
    rows = []
    for name, leaf in leaves.items():
        ways = [torch.randn(leaf.shape, generator=generator, dtype=torch.float64) for _ in range(settings.directions)]
        moves = _Moves(rewards, name, leaf, ways)
        row = moves.check(name, terms, slice(None), settings.tolerance)
        if row.wrong:
            row = replace(row, reading=row.reading + _blame(moves, terms, settings.tolerance))
        rows.append(row)
    return rows


@dataclass(frozen=True, eq=False)
class _Moves:
    """Random ways through one input of the rewards."""

    rewards: WindowRewards
    name: str
    leaf: Tensor
    ways: list[Tensor]
    seen: dict[tuple[int, float], Tensor] = field(default_factory=dict)
    """The terms by way and distance: who is to blame is found in the same windows, not in ones that are run again."""

    def check(self, title: str, terms: Tensor, columns: slice, tolerance: float) -> Row:
        """Judge the gradient of the sum of these columns of the terms."""
        terms = terms[:, columns]
        gradient = gradients(terms.sum(), {self.name: self.leaf})[self.name]
        found = torch.stack([_per_world(gradient * way) for way in self.ways])
        directions = [
            Direction(f"direction {k}", UNIT[self.name], partial(self._moved, k, columns))
            for k in range(len(self.ways))
        ]
        return check_input(title, terms, directions, found, tolerance)

    def _moved(self, way: int, columns: slice, distance: float) -> Tensor:
        if (way, distance) not in self.seen:
            moved = {**self.rewards.zeros, self.name: distance * self.ways[way]}
            self.seen[way, distance] = self.rewards(moved)
        return self.seen[way, distance][:, columns]


def _blame(moves: _Moves, terms: Tensor, tolerance: float) -> str:
    """Lines that name the reward terms whose gradient is wrong by itself."""
    names = moves.rewards.names
    wrong = {name: moves.check(name, terms, moves.rewards.columns(k), tolerance) for k, name in enumerate(names)}
    wrong = {name: row for name, row in wrong.items() if row.wrong}
    if any(math.isinf(row.error) for row in wrong.values()):
        # One term's NaN reaches the others' gradients too, as zero times NaN: they cannot be told apart.
        return f"\n  {NOT_FINITE}"
    cut = [name for name, row in wrong.items() if row.largest == 0]
    lines = f"\n  reward term {', '.join(map(repr, cut))}: {CUT}" if cut else ""
    for name in (name for name in wrong if name not in cut):
        lines += f"\n  reward term '{name}', {wrong[name].worst}: {wrong[name].reading}"
    return lines


def _per_world(values: Tensor) -> Tensor:
    """Sum over everything but the worlds, which are the last dimension but one."""
    return values.sum(dim=-1) if values.dim() == 2 else values.sum(dim=(0, 2))
