"""How well an agent does, over episodes that all count once.

One episode per world, the first: were the next ones counted until some number is reached, short ones would be
over-represented. PyTorch is imported when it is needed, so that the command line's help answers at once.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

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
