"""A window whose gradient was not finite, kept when it happens. replay_fault.py runs it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trot.envs.env import Env
from trot.envs.worlds import Worlds
from trot.runs.folder import RunFolder

CHECKPOINT = "bad_gradient"
OWN = "bad_window."
"""In front of the names of its own tensors in a learner's state."""


@dataclass(frozen=True)
class Trace:
    """What a window shows of itself when it is run again, (steps, worlds) each."""

    reward: Tensor
    adjoint: Tensor
    """Norm of the gradient by each world's state."""


class BadWindow(nn.Module):
    """Where the window began and its noise. Everything else that it depends on stays as it is from then on."""

    noise: Tensor
    kept: Tensor
    """Whether there was one."""

    def __init__(self, env: Env, horizon: int) -> None:
        super().__init__()
        like = env.worlds.joint_q
        self.register_buffer("kept", torch.zeros((), dtype=torch.bool, device=like.device))
        self.register_buffer("noise", like.new_zeros(horizon, env.num_worlds, env.num_actions))
        for name, tensor in env.worlds.tensors().items():
            self.register_buffer(f"start_{name}", tensor.detach().clone())

    def start(self) -> dict[str, Tensor]:
        """By the names of Worlds."""
        return {
            name.removeprefix("start_"): tensor for name, tensor in self.named_buffers() if name.startswith("start_")
        }

    @torch.no_grad()
    def remember(self, now: Tensor, noise: Tensor, start: Worlds) -> None:
        """Keep this window where the mask `now` holds."""
        self.kept |= now
        self.noise.copy_(torch.where(now, noise, self.noise))
        for name, kept in self.start().items():
            kept.copy_(torch.where(now, getattr(start, name), kept))

    def save(self, run: RunFolder, env: Env, learner_state: Mapping[str, Any]) -> Path:
        """Write everything that the window depends on into the run folder."""
        tensors = {name: tensor for name, tensor in learner_state.items() if isinstance(tensor, Tensor)}
        content: dict[str, Any] = {
            "bad_window": 2,
            "task": env.task.name,
            "algo": run.settings["algo"],
            "settings": run.settings["settings"],
            "randomize": None if env.randomize is None else {k: list(v) for k, v in asdict(env.randomize).items()},
            "noise": self.noise.cpu(),
            "start": {name: tensor.cpu() for name, tensor in self.start().items()},
            "learner": {name: tensor.cpu() for name, tensor in tensors.items() if not name.startswith(OWN)},
        }
        return run.save_checkpoint(CHECKPOINT, content)
