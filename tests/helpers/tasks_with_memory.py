"""Tasks that remember: a CartPole whose memory can be worked out by hand, and the example that uses all there is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import trot
from trot.envs.task import ASSETS

COMMANDED = f"{Path(__file__).parents[2] / 'examples' / 'commanded' / 'hopper_task.py'}:CommandedHopper"


def commanded(num_worlds: int = 8, dtype: torch.dtype = torch.float64, **options: Any) -> trot.Env:
    env = trot.make_env(COMMANDED, num_worlds, dtype=dtype, **options)
    env.reset()
    return env


def without_memory(saved: dict[str, Any]) -> dict[str, Any]:
    """An environment's saved state as a version wrote it that had no memory."""
    parts = {part: {n: t for n, t in saved[part].items() if n != "memory"} for part in ("worlds", "starts")}
    return {name: value for name, value in {**saved, **parts}.items() if name != "memory"}


@dataclass(frozen=True)
class Tally:
    position: Tensor
    goal: Tensor
    steps: Tensor
    total: Tensor
    """Of the actions, each times (1, 10)."""


class Counting(trot.Task[Tally]):
    """Counts its steps and adds up its actions, in episodes of four steps.

    The reward is the goal, plus the steps before this one, plus the actions before it.
    """

    robot = ASSETS / "cartpole.xml"
    substeps = 4
    episode_length = 4

    def draw_memory(self, count: int, generator: torch.Generator | None, like: Tensor) -> dict[str, Tensor]:
        goal = like.new_full((count,), 100.0)
        if generator is not None:
            goal = goal + 100 * torch.rand(count, generator=generator, dtype=like.dtype, device=like.device)
        return {"goal": goal, "steps": like.new_zeros(count, 1), "total": like.new_zeros(count, 2)}

    def measure(self, state: trot.Situation) -> Tally:
        return Tally(state.joint_q[:, :1], **state.memory)

    def observation(self, measured: Tally, previous_action: Tensor) -> dict[str, Tensor]:
        return {"position": measured.position, "steps": measured.steps, "total": measured.total, "goal": measured.goal}

    def reward_terms(self, measured: Tally, action: Tensor) -> dict[str, Tensor]:
        return {"goal": measured.goal, "steps": measured.steps, "total": measured.total.sum(dim=1)}

    def next_memory(self, measured: Tally, action: Tensor) -> dict[str, Tensor]:
        return {"total": measured.total + torch.cat([action, 10 * action], dim=1), "steps": measured.steps + 1}
