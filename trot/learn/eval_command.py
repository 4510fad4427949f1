"""`trot eval`: episodes with trained policies. PyTorch is imported when it is needed, so that help answers at once."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from trot.command_line import parse
from trot.learn.evaluate import Evaluation, Simulator, evaluate
from trot.learn.mean_interval import mean_interval
from trot.runs.folder import RunFolder

if TYPE_CHECKING:
    from trot.envs.randomize import Randomize
    from trot.learn.agent import Agent

COLUMNS = f"{'return':>10}{'std':>10}{'min':>10}{'max':>10}{'length':>8}{'distance':>10}{'falls':>7}{'faults':>8}"
NAME_WIDTH = 24


@dataclass
class EvalSettings:
    """Play episodes with trained policies."""

    runs: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...", help_behavior_hint="(required)")
    ]
    """Run folders. Of several with the same task and algorithm, also the mean over the runs and how sure it is."""
    checkpoint: str = "best"
    """Of the run: initial, iteration_000400, ..., best, last."""
    episodes: int = 128
    """As many worlds, one episode each."""
    actions: Literal["both", "deterministic", "stochastic"] = "both"
    """deterministic: without the policy's noise; stochastic: with it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is a device."""
    seed: int = 1000
    """Of the starts and of the policy's noise."""
    simulator: Annotated[Simulator, tyro.conf.arg(name="in")] = "trot"
    """mujoco: play the same episodes in MuJoCo too, with its own contact, on the CPU."""
    randomize: bool = False
    """Play with the random physics, pushes, noise and delay that the run was trained with, in MuJoCo with the latter
    three; without it the robot is the file's own, and nothing disturbs it."""


@dataclass(frozen=True)
class Evaluated:
    """What is played: a policy, and the disturbances it was trained with where these are asked for."""

    run: RunFolder
    agent: Agent
    randomize: Randomize | None

    @property
    def task(self) -> str:
        return str(self.run.settings["task"])

    @property
    def kind(self) -> tuple[str, str]:
        """What runs of one mean have in common."""
        return self.task, str(self.run.settings.get("label", self.run.settings["algo"]))


def eval_command(arguments: list[str]) -> int:
    """Play episodes with trained policies, without and with their noise, and print the returns."""
    settings = parse(EvalSettings, "trot eval", eval_command.__doc__, arguments)
    if not settings.runs:
        raise ValueError("name one run or more: trot eval RUN...")

    import torch

    from trot.learn.agent import load_agent

    found = []
    for path in dict.fromkeys(settings.runs):
        run = RunFolder.open(path)
        agent = load_agent(run, settings.checkpoint)
        found.append(Evaluated(run, agent, _random_of(run) if settings.randomize else None))
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    for kind in dict.fromkeys(one.kind for one in found):
        _play([one for one in found if one.kind == kind], settings, device)
    return 0


def _play(found: Sequence[Evaluated], settings: EvalSettings, device: str) -> None:
    """Of runs with the same task and algorithm: a line for each, and below them one for all."""
    task, label = found[0].kind
    alone = len(found) == 1
    whose = f"of {found[0].run.path}" if alone else f"of {len(found)} runs of {label}"
    print(f"{task}: checkpoint {settings.checkpoint} {whose}, {settings.episodes} episodes each, on {device}")
    for told in dict.fromkeys(_told(one.randomize) for one in found if one.randomize is not None):
        print(f"random as in training: {told}")
    names = [one.run.path.name for one in found]
    if len(set(names)) < len(names):
        names = [str(one.run.path) for one in found]
    width = NAME_WIDTH if alone else max(map(len, names)) + NAME_WIDTH
    print(f"{'':<{width}}{COLUMNS}", flush=True)
    summaries = []
    for simulator in dict.fromkeys(("trot", settings.simulator)):
        for kind in ("deterministic", "stochastic"):
            if settings.actions not in ("both", kind):
                continue
            heading = kind if simulator == "trot" else f"{kind}, MuJoCo"
            results = []
            for one, name in zip(found, names, strict=True):
                place = device if simulator == "trot" else "cpu"
                there = one.randomize
                if there is not None and simulator == "mujoco":
                    there = there.with_own_physics()
                result = evaluate(
                    one.agent, task, settings.episodes, place, settings.seed, kind == "stochastic", True, simulator,
                    there,
                )  # fmt: skip
                results.append(result)
                print(_line(f"{heading if alone else f'{name}, {heading}':<{width}}", result), flush=True)
            if not alone:
                summaries.append(f"{heading}: {summary(results)}")
    if summaries:
        print("\n".join([f"Mean over {len(found)} runs", *summaries]))


def summary(results: Sequence[Evaluation]) -> str:
    """Mean over runs, how far they lie apart, and how sure the mean is; of the task's own figures the range."""
    returns = [result.mean_return for result in results]
    mean, low, high = statistics.fmean(returns), *mean_interval(returns)
    lowest, highest = min(returns), max(returns)
    # Of returns that may be below 0 a share says nothing.
    share = f", {lowest / mean:.0%} of the mean" if lowest > 0 else ""
    told = (
        f"return {mean:.1f}, standard deviation {statistics.stdev(returns):.1f}, 95 % interval of the mean {low:.1f} "
        f"to {high:.1f}, lowest {lowest:.1f}{share}, highest {highest:.1f}"
    )
    for name in results[0].figures:
        values = [result.figures[name] for result in results]
        told += f"; {name} {statistics.fmean(values):.3f}, {min(values):.3f} to {max(values):.3f}"
    return told


def _random_of(run: RunFolder) -> Randomize:
    """What differed from world to world while it was trained; refused where nothing did."""
    from trot.envs.randomize import Randomize

    found = Randomize.from_saved(run.settings.get("randomize") or {})
    if found == Randomize():
        raise ValueError(f"--randomize: {run.path} was trained with nothing random in its worlds")
    return found


def _told(randomize: Randomize) -> str:
    from trot.envs.randomize import Randomize

    given = {one.name: getattr(randomize, one.name) for one in fields(randomize)}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value != getattr(Randomize(), name))


def _line(name: str, result: Evaluation) -> str:
    numbers = (result.mean_return, result.std_return, result.min_return, result.max_return)
    line = (
        f"{name}{''.join(f'{number:>10.1f}' for number in numbers)}{result.mean_length:>8.1f}"
        f"{statistics.fmean(result.distances):>10.1f}{result.falls:>7}{result.faults:>8}"
    )
    return "".join([line, *(f"   {figure} {mean:.3f}" for figure, mean in result.figures.items())])
