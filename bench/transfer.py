"""Why a policy does, or does not, run in MuJoCo as in trot: the laws exchanged one by one, and what it lives on here.

python -m bench.transfer ant                          the policy that comes with trot; some minutes
python -m bench.transfer half_cheetah --run runs/half_cheetah-shac-0

Laws: MuJoCo moves the robot, in trot's substeps, with trot's laws as applied forces or with its own. Constants: trot
moves it, with other constants than it learned with. Both in the first seconds of the same episodes, without noise.
"""

from __future__ import annotations

import copy
import itertools
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

from bench.report import describe_machine, markdown_table
from bench.swapped_laws import Instant, Law, Laws, SwappedEnv
from trot.envs.env import Env
from trot.envs.mujoco_env import MujocoEnv
from trot.envs.registry import make_task
from trot.envs.task import Task
from trot.learn.agent import Agent, load_agent
from trot.learn.packaged_policy import load_packaged
from trot.learn.play import agent_acts, play
from trot.learn.saturation import SATURATED
from trot.learn.torch_threads import one_torch_thread
from trot.runs.folder import RunFolder

CONSTANTS = {
    "contact stiffness": "shape_stiffness",
    "contact damping": "shape_damping",
    "friction stiffness": "shape_friction_stiffness",
    "friction": "shape_friction",
    "stiffness of limits": "joint_limit_stiffness",
}
FACTORS = {
    "contact stiffness": (0.5, 2.0),
    "contact damping": (0.25, 4.0),
    "friction stiffness": (0.1, 10.0),
    "friction": (0.67, 1.5),
    "stiffness of limits": (0.5, 2.0, 4.0),
}


@dataclass(frozen=True)
class TransferSettings:
    """Which policy, and for how long."""

    task: tyro.conf.Positional[str] = "ant"
    """One that a policy comes for; with --run, that run's."""
    run: Path | None = None
    """A run folder, whose best policy plays."""
    episodes: int = 8
    seconds: float = 5.0
    seed: int = 1000
    """Of the starts."""
    constants: bool = True
    """Change constants of trot's laws too."""


@dataclass(frozen=True)
class Race:
    """How far a policy came, an episode per world."""

    distances: tuple[float, ...]
    returns: tuple[float, ...]
    falls: int
    saturated: float
    """Share of its actions."""

    def cells(self) -> list[str]:
        spread = statistics.stdev(self.distances) if len(self.distances) > 1 else 0.0
        distance = f"{statistics.fmean(self.distances):.1f} ± {spread:.1f}"
        return [distance, f"{statistics.fmean(self.returns):.0f}", str(self.falls), f"{self.saturated:.0%}"]


RACE_HEAD = ["distance, m", "return", "falls", "saturated actions"]


def run_transfer(settings: TransferSettings) -> None:
    """Measure and print, a table after the other."""
    task, agent = _find(settings)
    print(describe_machine(None))
    print(f"{task.name}: {settings.episodes} episodes of {settings.seconds:g} s, starts of seed {settings.seed}")

    def race(env: Env, name: str) -> list[str]:
        print(name, file=sys.stderr, flush=True)
        return [name, *run_race(env, agent, round(settings.seconds / task.control_dt)).cells()]

    worlds, seed, seen = settings.episodes, settings.seed, list[Instant]()
    rows = [race(Env(task, worlds, seed=seed), "trot")]
    for laws in every_choice():
        watch = seen.append if laws == Laws() else None
        rows.append(race(SwappedEnv(task, worlds, laws, seed, watch), f"MuJoCo's here: {laws}"))
    rows.append(race(MujocoEnv(task, worlds, seed), "MuJoCo as it is"))
    print(f"\n### Laws exchanged\n\n{markdown_table(['', *RACE_HEAD], rows)}")
    print(f"\n### What it lives on, all laws trot's\n\n{markdown_table(['', ''], figures(task, seen))}", flush=True)
    if settings.constants:
        rows = [race(Env(changed, worlds, seed=seed), name) for name, changed in other_constants(task)]
        print(f"\n### Other constants in trot\n\n{markdown_table(['', *RACE_HEAD], rows)}")


def _find(settings: TransferSettings) -> tuple[Task[Any], Agent]:
    if settings.run is None:
        return make_task(settings.task), load_packaged(settings.task).agent
    run = RunFolder.open(settings.run)
    return make_task(str(run.settings["task"])), load_agent(run, "best")


def every_choice() -> Iterator[Laws]:
    """All of trot's laws first, then one of MuJoCo's, two, and all."""
    both: tuple[Law, Law] = ("trot", "MuJoCo")
    choices = [Laws(*whose) for whose in itertools.product(both, both, both)]
    yield from sorted(choices, key=lambda laws: list(vars(laws).values()).count("MuJoCo"))


def run_race(env: Env, agent: Agent, steps: int) -> Race:
    """Play for so many steps; a world that falls stops there."""
    starts, distances, returns = torch.zeros(3, env.num_worlds, dtype=torch.float64)
    running, fell = torch.ones(env.num_worlds, dtype=torch.bool), torch.zeros(env.num_worlds, dtype=torch.bool)
    saturated = played_steps = 0
    with one_torch_thread():
        act = agent_acts(agent, env, stochastic=False, seed=0)
        for played in play(env, act, steps, lambda: starts.copy_(env.worlds.joint_q[:, 0])):
            after = played.info["final_state"].joint_q[:, 0]
            distances = torch.where(running, after - starts, distances)
            returns += torch.where(running, played.reward, 0.0)
            saturated += int((played.action[running].abs() > SATURATED).sum())
            played_steps += int(running.sum())
            fell |= running & played.terminated
            running &= ~played.done
    share = saturated / (played_steps * env.num_actions)
    return Race(tuple(distances.tolist()), tuple(returns.tolist()), int(fell.sum()), share)


def other_constants(task: Task[Any]) -> Iterator[tuple[str, Task[Any]]]:
    """The task with one of its robot's constants changed; in four times the substeps, so that none is too stiff."""
    fine = copy.copy(task)
    fine.substeps = 4 * task.substeps  # type: ignore[misc]
    yield f"{fine.substeps} substeps", fine
    for name, factors in FACTORS.items():
        for factor in factors:
            changed, field = copy.copy(fine), CONSTANTS[name]
            changed.model = replace(task.model, **{field: factor * getattr(task.model, field)})
            yield f"{name} times {factor:g}", changed


def figures(task: Task[Any], seen: list[Instant]) -> list[list[str]]:
    """How deep, how far beyond its limits, how much slip, and where the power goes: means over worlds and time."""
    normal = np.concatenate([at.normal for at in seen])
    depth, velocity, drag = (
        np.concatenate(parts)
        for parts in zip(*((at.touches.depth, at.touches.velocity, at.drag) for at in seen), strict=True)
    )
    beyond, limit_force, motor_force, rates = (
        np.stack(parts)
        for parts in zip(*((at.beyond, at.limit_force, at.motor_force, at.rates) for at in seen), strict=True)
    )
    friction = np.concatenate([at.touches.friction for at in seen])
    sliding = np.linalg.norm(velocity[:, :2], axis=1)
    slides = drag * sliding > 0.999 * friction * normal
    ground_power, limit_power, motor_power = normal * velocity[:, 2], limit_force * rates, motor_force * rates
    limited = np.isfinite(task.model.joint_upper[-len(beyond[0]) :])

    def watts(power: np.ndarray[Any, np.dtype[np.float64]]) -> str:
        return f"{power.sum() / len(seen) / 1000:.2f} kW"

    def under_load(values: np.ndarray[Any, np.dtype[Any]]) -> float:
        return float((values * normal).sum() / normal.sum())

    return [
        ["depth of what touches, mean under load", f"{1000 * under_load(depth):.0f} mm"],
        ["deepest", f"{1000 * depth.max():.0f} mm"],
        ["largest normal force, in weights of the robot", f"{normal.max() / _weight(task):.1f}"],
        ["slip, mean under load", f"{under_load(sliding):.2f} m/s"],
        ["slip along x, mean under load", f"{under_load(velocity[:, 0]):.2f} m/s"],
        ["share of the load that slides freely", f"{under_load(slides):.0%}"],
        ["joints beyond a limit, share of the time", f"{(beyond[:, limited] != 0).mean():.0%}"],
        ["how far, 99th percentile", f"{np.quantile(np.abs(beyond[:, limited]), 0.99):.2f} rad"],
        ["largest force of a limit", f"{np.abs(limit_force).max():.0f} N m"],
        ["largest force of a motor", f"{np.abs(motor_force).max():.0f} N m"],
        ["motors give, take", f"{watts(motor_power.clip(0))}, {watts(-motor_power.clip(None, 0))}"],
        ["limits take, give back", f"{watts(-limit_power.clip(None, 0))}, {watts(limit_power.clip(0))}"],
        ["the ground takes, gives back", f"{watts(-ground_power.clip(None, 0))}, {watts(ground_power.clip(0))}"],
        ["friction takes", watts(drag * sliding**2)],
    ]


def _weight(task: Task[Any]) -> float:
    return float(task.model.body_mass.sum() * np.linalg.norm(task.model.gravity))


if __name__ == "__main__":
    description = (__doc__ or "").partition("\n")[0]
    run_transfer(tyro.cli(TransferSettings, prog="python -m bench.transfer", description=description))
