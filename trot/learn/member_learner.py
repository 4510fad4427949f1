"""A learner of several seeds at once, each of which begins as it would alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from trot.envs.env import Env
from trot.envs.member_env import MemberEnv
from trot.envs.randomize import Randomize
from trot.envs.task import Task
from trot.learn.learner import Algorithm, Learner, LearnerSettings


def make_member_learner(
    algorithm: Algorithm,
    task: Task[Any],
    settings: LearnerSettings,
    seeds: Sequence[int],
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    randomize: Randomize | None = None,
) -> Learner:
    """A member for each seed, with as many worlds as the settings say. ValueError where the algorithm takes none."""
    num_worlds = settings.num_worlds
    env = MemberEnv(task, num_worlds, seeds, device, dtype, randomize=randomize)
    learner = algorithm.learner(env, settings, seeds[0])
    for member, seed in enumerate(seeds):
        alone = algorithm.learner(Env(task, num_worlds, device, seed, dtype, randomize=randomize), settings, seed)
        learner.load_member(member, alone.state_dict())
    return learner
