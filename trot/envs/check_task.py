"""`trot check TASK`: is the gradient right from action to reward? Against central differences, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import tyro
from torch import Tensor

from trot.envs.env import Env
from trot.envs.registry import make_env
from trot.envs.worlds import Worlds
from trot.sim.manifold import retract
from trot.sim.state import State

DIFFERENCE = {"actions": 1e-5, "joint_q": 1e-6, "joint_qd": 1e-6}
"""Step of the central differences; two of them, at this and at half of it, give a fourth-order estimate. An action
does less than a displacement, so that rounding asks for a longer step."""

SMOOTH = 3e-7
"""How far slopes may drift when the step is halved, relative to the largest of the world, to count as smooth."""

NUDGE = 1e-4
"""A fresh start may lie exactly at a joint's limit, which is a kink: every window begins this far from where it was."""

END_STEP = 4
"""Worlds that end inside the window do so in this step of it."""

MOTION_STEPS = 240
"""Length of the random motion that the windows are cut from."""


@dataclass
class TaskCheckSettings:
    """Check the gradient of a task's reward against finite differences."""

    task: tyro.conf.Positional[str]
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


@dataclass(frozen=True)
class TaskRow:
    """The verdict on one input."""

    name: str
    largest: float
    """Largest slope found."""
    error: float
    """Largest error, relative to the largest slope of that input in the same world."""
    checked: int
    skipped: int
    """Slopes across a kink: a contact, a limit, sliding or a fall begins within the difference."""


@dataclass(frozen=True)
class Windows:
    """Where each world begins and what it does there."""

    begin: Worlds
    actions: Tensor
    """(steps, worlds, actions)"""


Inputs = dict[str, Tensor]


def run_task_check(settings: TaskCheckSettings) -> bool:
    """Print a table of errors per input; True when all pass."""
    env = make_env(settings.task, settings.worlds, seed=settings.seed, dtype=torch.float64)
    windows = draw_windows(env, settings)
    falls, time_outs = count_ends(env, windows)
    print(
        f"{settings.task}: sum of {settings.steps} rewards in {settings.worlds} worlds, of which {falls} fall "
        f"and {time_outs} run out of time inside the window"
    )
    rows = check_task_gradients(env, windows, settings)
    print(f"{'input':<12}{'largest slope':>15}{'relative error':>16}{'checked':>9}{'kinks':>7}")
    for row in rows:
        verdict = "  FAILS" if row.error > settings.tolerance else "" if row.checked else "  NOT CHECKED"
        print(f"{row.name:<12}{row.largest:>15.3e}{row.error:>16.1e}{row.checked:>9}{row.skipped:>7}{verdict}")
    if any(row.error > settings.tolerance for row in rows):
        print("gradients are WRONG: see the table")
        return False
    if any(row.checked == 0 for row in rows):
        print("some inputs could NOT be checked, a kink in every direction: try fewer steps or another seed")
        return False
    print(f"gradients are right to {settings.tolerance:g}")
    return True


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
    ends = [env.step(action)[2:4] for action in windows.actions]
    return sum(int(fell.sum()) for fell, _ in ends), sum(int((late & ~fell).sum()) for fell, late in ends)


def check_task_gradients(env: Env, windows: Windows, settings: TaskCheckSettings) -> list[TaskRow]:
    """One row per input: the actions of the window, and joint_q and joint_qd of its start."""
    model, begin = env.task.model, windows.begin
    env.worlds = begin
    env.detach()
    saved = env.get_state()
    zeros: Inputs = {
        "actions": torch.zeros_like(windows.actions),
        "joint_q": torch.zeros_like(begin.joint_qd),
        "joint_qd": torch.zeros_like(begin.joint_qd),
    }

    def rewards(moved: Inputs) -> Tensor:
        """Each world's sum, with these offsets on the inputs; the same fresh starts every time."""
        env.set_state(saved)
        state = State(retract(model, begin.joint_q, moved["joint_q"]), begin.joint_qd + moved["joint_qd"])
        env.place(state, begin.previous_action)
        return torch.stack([env.step(action)[1] for action in windows.actions + moved["actions"]]).sum(dim=0)

    leaves = {name: value.clone().requires_grad_() for name, value in zeros.items()}
    gradients = torch.autograd.grad(rewards(leaves).sum(), list(leaves.values()))
    generator = torch.Generator().manual_seed(settings.seed + 1)
    rows = []
    with torch.no_grad():
        here = rewards(zeros)
        for (name, zero), gradient in zip(zeros.items(), gradients, strict=True):
            found, coarse, fine = list[Tensor](), list[_Differences](), list[_Differences]()
            for _ in range(settings.directions):
                direction = torch.randn(zero.shape, generator=generator, dtype=torch.float64)
                found.append(_per_world(gradient * direction))
                for differences, h in ((coarse, DIFFERENCE[name]), (fine, DIFFERENCE[name] / 2)):
                    above, below = (rewards({**zeros, name: sign * h * direction}) for sign in (1, -1))
                    differences.append(_Differences((above - below) / (2 * h), (above - 2 * here + below) / h))
            rows.append(_row(name, torch.stack(found), _stacked(coarse), _stacked(fine)))
    return rows


@dataclass(frozen=True)
class _Differences:
    slope: Tensor
    bend: Tensor
    """Slope above minus slope below."""


def _stacked(differences: list[_Differences]) -> _Differences:
    return _Differences(torch.stack([d.slope for d in differences]), torch.stack([d.bend for d in differences]))


def _per_world(values: Tensor) -> Tensor:
    """Sum over everything but the worlds, which are the last dimension but one."""
    return values.sum(dim=-1) if values.dim() == 2 else values.sum(dim=(0, 2))


def _row(name: str, found: Tensor, coarse: _Differences, fine: _Differences) -> TaskRow:
    expected = fine.slope + (fine.slope - coarse.slope) / 3
    scale = expected.abs().amax(dim=0, keepdim=True).clamp(min=1e-9)
    # On smooth ground slopes agree and bends halve with the step. A kink within the step breaks one of the two: far
    # from the middle the first, close to it the second.
    drift = torch.maximum((fine.slope - coarse.slope).abs(), (2 * fine.bend - coarse.bend).abs())
    smooth = drift <= SMOOTH * scale
    error = torch.where(smooth, (found - expected).abs() / scale, 0.0)
    error[~expected.isfinite() | ~found.isfinite()] = torch.inf
    return TaskRow(name, float(found.abs().max()), float(error.max()), int(smooth.sum()), int((~smooth).sum()))
