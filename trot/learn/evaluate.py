"""`trot eval`: how well an agent does, over episodes that all count once.

One episode per world, the first: were the next ones counted until some number is reached, short ones would be
over-represented. PyTorch is imported when it is needed, so that the command line's help answers at once.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from trot.command_line import RunPath, parse
from trot.runs.folder import RunFolder

if TYPE_CHECKING:
    import torch

    from trot.envs.env import Env
    from trot.envs.randomize import Randomize
    from trot.envs.task import Task
    from trot.learn.agent import Agent

SECONDS_BETWEEN_LINES = 5.0

Simulator = Literal["trot", "mujoco"]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """One episode per world."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    falls: int
    """Episodes that a fall ended."""
    faults: int
    """Episodes that ended because the world blew up."""
    distances: tuple[float, ...] = ()
    """How far the first coordinate of the robot went in each, m where that is a position."""
    figures: dict[str, float] = field(default_factory=dict)
    """The task's own, means over all steps."""

    def __repr__(self) -> str:
        told = f"return {self.mean_return:.1f}, standard deviation {self.std_return:.1f}"
        ends = f"length {self.mean_length:.1f}, {self.falls} falls, {self.faults} faults"
        return f"Evaluation({len(self.returns)} episodes: {told}, {ends})"

    @property
    def mean_return(self) -> float:
        return statistics.fmean(self.returns)

    @property
    def std_return(self) -> float:
        return statistics.stdev(self.returns) if len(self.returns) > 1 else 0.0

    @property
    def min_return(self) -> float:
        return min(self.returns)

    @property
    def max_return(self) -> float:
        return max(self.returns)

    @property
    def mean_length(self) -> float:
        return statistics.fmean(self.lengths)


@dataclass
class EvalSettings:
    """Play episodes with a trained policy."""

    run: RunPath
    """The run's folder."""
    checkpoint: str = "best"
    """Of the run: initial, iteration_000400, ..., best, last."""
    episodes: int = 128
    """As many worlds, one episode each."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is a device."""
    seed: int = 1000
    """Of the starts and of the policy's noise."""
    simulator: Annotated[Simulator, tyro.conf.arg(name="in")] = "trot"
    """mujoco: play the same episodes in MuJoCo too, with its own contact, on the CPU."""
    randomize: bool = False
    """Play with the random physics, pushes, noise and delay that the run was trained with, in MuJoCo with the latter
    three; without it the robot is the file's own, and nothing disturbs it."""


def eval_command(arguments: list[str]) -> int:
    """Play episodes with a trained policy, without and with its noise, and print the returns."""
    settings = parse(EvalSettings, "trot eval", eval_command.__doc__, arguments)

    import torch

    from trot.learn.agent import load_agent

    run = RunFolder.open(settings.run)
    agent = load_agent(run, settings.checkpoint)
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    task = str(run.settings["task"])
    randomize = _random_of(run) if settings.randomize else None
    print(f"{task}: checkpoint {settings.checkpoint} of {settings.run}, {settings.episodes} episodes each, on {device}")
    if randomize is not None:
        print(f"random as in training: {_told(randomize)}")
    print(
        f"{'':<24}{'return':>10}{'std':>10}{'min':>10}{'max':>10}{'length':>8}{'distance':>10}{'falls':>7}{'faults':>8}"
    )
    for simulator in dict.fromkeys(("trot", settings.simulator)):
        for name, stochastic in (("deterministic", False), ("stochastic", True)):
            place = device if simulator == "trot" else "cpu"
            there = randomize if randomize is None or simulator == "trot" else randomize.with_own_physics()
            result = evaluate(agent, task, settings.episodes, place, settings.seed, stochastic, True, simulator, there)
            print(_line(name if simulator == "trot" else f"{name}, MuJoCo", result))
    return 0


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
        f"{name:<24}{''.join(f'{number:>10.1f}' for number in numbers)}{result.mean_length:>8.1f}"
        f"{statistics.fmean(result.distances):>10.1f}{result.falls:>7}{result.faults:>8}"
    )
    return "".join([line, *(f"   {figure} {mean:.3f}" for figure, mean in result.figures.items())])


def evaluate(
    agent: Agent,
    task_name: str | Task[Any],
    episodes: int = 128,
    device: str | torch.device = "cpu",
    seed: int = 1000,
    stochastic: bool = False,
    show_progress: bool = False,
    simulator: Simulator = "trot",
    randomize: Randomize | None = None,
) -> Evaluation:
    """Play this many episodes from random starts; stochastic: with the policy's noise, else its mean.

    The same seed gives the same starts with and without noise, and in both simulators; MuJoCo's runs on the CPU. The
    agent itself stays where it is. Nothing disturbs the worlds unless randomize says so. show_progress writes a line to
    stderr every few seconds.
    """
    import torch

    from trot.envs.mujoco_env import MujocoEnv
    from trot.envs.registry import make_env, make_task
    from trot.learn.play import agent_acts, play
    from trot.learn.torch_threads import one_torch_thread

    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, not {episodes}")
    if simulator == "mujoco":
        env: Env = MujocoEnv(make_task(task_name), episodes, seed, randomize=randomize)
    else:
        env = make_env(task_name, episodes, device, seed, randomize=randomize)
    act = agent_acts(agent, env, stochastic, seed)
    returns = torch.zeros(episodes, dtype=torch.float64, device=env.device)
    lengths = torch.zeros(episodes, dtype=torch.int64, device=env.device)
    fell, blew_up = (torch.zeros(episodes, dtype=torch.bool, device=env.device) for _ in range(2))
    running = torch.ones_like(fell)
    distances, figures = torch.zeros_like(returns), dict[str, torch.Tensor]()
    told = time.monotonic()
    # More threads for the network would take from the physics what they gain, even with layers of 512.
    with one_torch_thread():
        played_steps = play(env, act, env.episode_length, lambda: distances.copy_(-env.worlds.joint_q[:, 0]))
        for step, played in enumerate(played_steps, start=1):
            fault, after = played.info["fault"], played.info["final_state"]
            distances += torch.where(running & played.done, after.joint_q[:, 0], 0.0)
            for name, value in env.task.figures(env.task.measure(after)).items():
                figures[name] = figures.get(name, 0.0) + torch.where(running, value.reshape(-1), 0.0).double()
            returns += torch.where(running, played.reward, 0.0)
            lengths += running
            blew_up |= running & fault
            fell |= running & played.terminated & ~fault
            running &= ~played.done
            if not running.any():
                break
            if show_progress and time.monotonic() - told >= SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                ended = episodes - int(running.sum())
                print(f"step {step} of {env.episode_length}: {ended} of {episodes} episodes ended", file=sys.stderr)
    return Evaluation(
        tuple(returns.tolist()),
        tuple(lengths.tolist()),
        int(fell.sum()),
        int(blew_up.sum()),
        tuple(distances.tolist()),
        {name: float(total.sum() / lengths.sum()) for name, total in figures.items()},
    )
