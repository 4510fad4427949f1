"""What landscapes and histograms look at: the policy of a run's checkpoint, and all that its loss depends on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trot.envs.env import Env
from trot.envs.randomize import Randomize
from trot.envs.registry import make_env, names_task
from trot.envs.task import Task
from trot.envs.worlds import Worlds
from trot.learn.agent import Agent
from trot.learn.algorithms import ALGORITHMS, find_algorithm
from trot.learn.algorithms.several_critics import SeveralCriticsSettings
from trot.learn.algorithms.shac import Shac
from trot.learn.algorithms.shac_settings import ShacSettings
from trot.learn.learner import NOISE_STREAM
from trot.learn.networks import Critic
from trot.learn.older_runs import upgraded_checkpoint
from trot.learn.resume import load_state, settings_of
from trot.learn.train import choose_device, make_learner, make_training_env
from trot.runs.folder import RunFolder

Run = str | os.PathLike[str]


@dataclass(frozen=True)
class Learned:
    """One checkpoint."""

    name: str
    task: Task[Any]
    label: str
    """The algorithm's."""
    settings: ShacSettings
    randomize: Randomize | None
    agent: Agent
    critic: Critic | None
    """The target critic, which values what lies beyond a window; None where the run has none."""
    worlds: dict[str, Tensor] | None
    """Where the next window of the training would have begun; None where the checkpoint does not tell."""
    device: torch.device
    dtype: torch.dtype

    def env(self, num_worlds: int, seed: int = 0) -> Env:
        """New worlds of the run's task."""
        return make_env(self.task, num_worlds, self.device, seed, self.dtype, randomize=self.randomize)

    @torch.no_grad()
    def met_worlds(self, num_worlds: int, seed: int) -> Worlds:
        """Worlds as the training met them; more than the checkpoint has are its own over again.

        Where it keeps none, those that the policy meets after a window from fresh starts.
        """
        env = self.env(num_worlds, seed)
        if self.worlds is not None:
            rows = torch.arange(num_worlds) % len(self.worlds["joint_q"])
            return env.saved_worlds({name: self._converted(part[rows]) for name, part in self.worlds.items()})
        observation, _ = env.reset()
        generator = torch.Generator(self.device).manual_seed(seed + 2 * NOISE_STREAM)
        shape = (num_worlds, env.num_actions)
        for _ in range(self.settings.horizon):
            noise = torch.randn(shape, generator=generator, dtype=self.dtype, device=self.device)
            observation = env.advance(self.agent(observation, noise)).observation
        return env.worlds.detach()

    def _converted(self, part: Tensor) -> Tensor:
        return part.to(self.dtype) if part.is_floating_point() else part


def load_learned(
    run: Run, checkpoint: str = "last", device: str = "auto", dtype: torch.dtype = torch.float32
) -> Learned:  # fmt: skip
    """The policy of a checkpoint with its critic and its worlds. Raises ValueError where the run is none for this."""
    folder = open_run(run)
    settings = settings_of(folder, choose_device(device))
    algorithm = find_algorithm(settings.algo)
    learner = make_learner(algorithm, make_training_env(settings), settings)
    assert isinstance(learner, Shac)
    saved = upgraded_checkpoint(folder.load_checkpoint(checkpoint))
    complete = "learner" in saved
    if complete:
        load_state(learner, _with_luck_of(learner, saved["learner"]), folder)
    else:
        critic_known = not settings.settings.critic or _same(learner.agent, saved.get("agent"))
        _load_agent(learner.agent, saved.get("agent"), folder, checkpoint)
        if not critic_known:
            raise ValueError(
                f"the checkpoint '{checkpoint}' of {folder.path} keeps the policy alone, without the critic that its "
                f"loss ends with. Choose another one: {', '.join(_others(folder, checkpoint)) or 'there is none yet'}"
            )
    learner.agent.requires_grad_(False)
    assert isinstance(learner.target_critic, Critic)
    learner.agent.policy.to(dtype)
    return Learned(
        name=f"{folder.path.resolve().name}, {checkpoint}",
        task=learner.env.task,
        label=algorithm.label,
        settings=settings.settings,
        randomize=None if settings.randomize == Randomize() else settings.randomize,
        agent=learner.agent,
        critic=learner.target_critic.to(dtype) if settings.settings.critic else None,
        worlds=learner.env.worlds.clone().map(Tensor.cpu).tensors() if complete else None,
        device=learner.device,
        dtype=dtype,
    )


def _has_the_loss_of_shac(algo: str) -> bool:
    """Those with several critics add to the loss, or value what lies beyond the window in another way."""
    settings = find_algorithm(algo).settings
    return issubclass(settings, ShacSettings) and not issubclass(settings, SeveralCriticsSettings)


def open_run(run: Run) -> RunFolder:
    """A run that learned by gradients through windows of simulation; anything else is refused in one line."""
    if not Path(run).exists() and names_task(str(run)):
        raise ValueError(
            f"'{run}' is a task, which has no policy yet. Train one, and give its run folder: trot train {run}"
        )
    folder = RunFolder.open(run)
    algo = folder.settings["algo"]
    if not _has_the_loss_of_shac(algo):
        able = [name for name in ALGORITHMS if _has_the_loss_of_shac(name)]
        raise ValueError(
            f"{folder.path} learned by {algo}, not by gradients through the simulation. Give a run of: "
            f"{', '.join(able)}"
        )
    if not folder.checkpoint_names():
        raise ValueError(f"{folder.path} has no checkpoints. Train it: trot resume {folder.path}")
    return folder


def iterations_of(folder: RunFolder) -> dict[str, int]:
    """The checkpoints whose iteration is known, in the order of the training."""
    found: dict[str, int] = {}
    for name in folder.checkpoint_names():
        kind, _, number = name.partition("_")
        if name == "initial":
            found[name] = 0
        elif kind == "iteration" and number.isdecimal():
            found[name] = int(number)
        elif name == "last":
            found[name] = int(folder.load_checkpoint(name).get("iteration", 0))
    return found


def _with_luck_of(learner: Shac, saved: dict[str, Any]) -> dict[str, Any]:
    """The saved state without its generators: a study has luck of its own, and a GPU's fit no CPU."""
    ours, theirs = learner.get_extra_state(), saved.get("_extra_state")
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return saved
    worlds = {**theirs["env"], "generator": ours["env"]["generator"]}
    return {**saved, "_extra_state": {"env": worlds, "generator": ours["generator"]}}


def _load_agent(agent: Agent, saved: Any, folder: RunFolder, checkpoint: str) -> None:
    try:
        agent.load_state_dict(saved)
    except (RuntimeError, TypeError):
        raise ValueError(f"the checkpoint '{checkpoint}' of {folder.path} does not fit the run's settings") from None


def _same(agent: Agent, saved: Any) -> bool:
    """Whether the seed gives this agent anew: then it gives the critic of that time, too."""
    ours = agent.saved()
    return isinstance(saved, dict) and ours.keys() == saved.keys() and all(ours[k].equal(saved[k]) for k in ours)


def _others(folder: RunFolder, checkpoint: str) -> list[str]:
    return [name for name in folder.checkpoint_names() if name not in (checkpoint, "best")]
