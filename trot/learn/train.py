"""`trot train` and `trot resume`: learning with a run folder, progress, checkpoints, and a clean end."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import torch
import tyro

from trot.envs.env import Env
from trot.envs.randomize import Randomize
from trot.envs.registry import make_env, make_task, names_task
from trot.learn.agent import shac_settings_from
from trot.learn.algorithms.shac import Shac
from trot.learn.settings import Algo, Preset, ShacSettings, resolve
from trot.learn.trainer import Schedule, Trainer, agent_state
from trot.runs.folder import RunFolder


@dataclass(frozen=True)
class TrainSettings:
    """Teach a policy by gradients through the simulation."""

    task: tyro.conf.Positional[str]
    """One of `trot tasks`, or path/to/file.py:Class."""
    algo: Algo = "shac"
    """shac; shac-no-critic: without the value function; bptt: long windows without it."""
    preset: Preset = "tuned"
    """tuned: per task; general: the paper's one setting for all tasks."""
    seed: int = 0
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    runs: Path = Path("runs")
    """Where run folders are made."""
    name: str | None = None
    """Of the run folder; task, algorithm and seed without it."""
    schedule: Annotated[Schedule, tyro.conf.OmitArgPrefixes] = field(default_factory=Schedule)
    shac: Annotated[ShacSettings, tyro.conf.OmitArgPrefixes] = field(default_factory=ShacSettings)
    randomize: Randomize = field(default_factory=Randomize)
    """Physics of its own for each world: ranges of factors."""


def train(settings: TrainSettings) -> RunFolder:
    """Start a run and see it through."""
    env = _make_env(settings)
    shac = Shac(env, settings.shac, settings.seed)
    # A file's class gives its name; a colon or a slash has no place in a folder's.
    name = settings.name or f"{env.task.name.rpartition(':')[2]}-{settings.algo}-{settings.seed}"
    described = _described(settings, env)
    run = RunFolder.create(settings.runs, name, described)
    print(
        f"{settings.task}, {settings.algo}, seed {settings.seed}, on {env.device}. Run folder: {run.path}", flush=True
    )
    run.save_checkpoint("initial", {"agent": agent_state(shac.policy, shac.normalizer)})
    Trainer(run, shac, settings.schedule).run_to_the_end()
    return run


def resume(path: Path, device: str = "auto", stop_at: float | None = None) -> RunFolder:
    """Go on with a run bit for bit as if it had never stopped; with stop_at towards another goal than its own."""
    run = RunFolder.open(path)
    saved = run.load_checkpoint("last")
    settings = _settings_of(run, device)
    shac = Shac(_make_env(settings), settings.shac, settings.seed)
    shac.load_state_dict(saved["learner"])
    run.truncate_metrics(saved["iteration"])
    schedule = settings.schedule if stop_at is None else replace(settings.schedule, stop_at=stop_at)
    if saved["finished"] and (stop_at is None or saved["iteration"] >= settings.shac.iterations):
        print(f"{run.path} is finished: {saved['iteration']} iterations", flush=True)
        return run
    print(
        f"{settings.task}: on from iteration {saved['iteration']}, on {shac.device}. Run folder: {run.path}", flush=True
    )
    Trainer(run, shac, schedule, saved["iteration"], saved["seconds"]).run_to_the_end()
    return run


def parse_settings(arguments: list[str]) -> TrainSettings:
    """From the command line: task, algorithm and preset choose the defaults of everything else."""
    if not arguments or arguments[0].startswith("-"):
        if not {"-h", "--help"} & set(arguments):
            raise ValueError("the task comes first: trot train ant --seed 1")
        return tyro.cli(TrainSettings, prog="trot train", args=["--help"])
    task, *options = arguments
    if not names_task(task):
        # Raises, and suggests the nearest name.
        make_task(task)
    first = argparse.ArgumentParser(prog="trot train", add_help=False)
    first.add_argument("--algo", choices=get_args(Algo), default="shac")
    first.add_argument("--preset", choices=get_args(Preset), default="tuned")
    chosen, _ = first.parse_known_args(options)
    default = TrainSettings(task, chosen.algo, chosen.preset, shac=resolve(task, chosen.algo, chosen.preset))
    return tyro.cli(TrainSettings, prog="trot train", default=default, args=arguments)


def choose_device(device: str) -> str:
    """`auto` is the GPU where there is one."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _make_env(settings: TrainSettings) -> Env:
    randomize = None if settings.randomize == Randomize() else settings.randomize
    device = choose_device(settings.device)
    return make_env(settings.task, settings.shac.num_worlds, device, settings.seed, randomize=randomize)


def _described(settings: TrainSettings, env: Env) -> dict[str, Any]:
    """Everything resolved, as settings.json keeps it."""
    return {
        "task": settings.task,
        "algo": settings.algo,
        "preset": settings.preset,
        "seed": settings.seed,
        "device": env.device.type,
        "iterations": settings.shac.iterations,
        "num_observations": env.num_observations,
        "num_actions": env.num_actions,
        "schedule": asdict(settings.schedule),
        "shac": asdict(settings.shac),
        "randomize": asdict(settings.randomize),
    }


def _settings_of(run: RunFolder, device: str) -> TrainSettings:
    given = run.settings
    try:
        return TrainSettings(
            task=given["task"],
            algo=given["algo"],
            preset=given["preset"],
            seed=given["seed"],
            device=given["device"] if device == "auto" else device,
            schedule=Schedule(**given["schedule"]),
            shac=shac_settings_from(given["shac"]),
            randomize=Randomize(**{name: tuple(bounds) for name, bounds in given["randomize"].items()}),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{run.path}/settings.json is not one of this version's: {error}") from None
