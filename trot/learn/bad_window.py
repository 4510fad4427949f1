"""A window whose gradient was not finite, kept when it happens. replay_fault.py runs it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trot.envs.env import Env
from trot.envs.member_env import member_worlds
from trot.envs.worlds import Worlds
from trot.learn.members import widened
from trot.runs.folder import RunFolder

CHECKPOINT = "bad_gradient"
OWN = "bad_window."
"""In front of the names of its own tensors in a learner's state."""
START = "start_"
"""In front of the names of Worlds, behind that."""


@dataclass(frozen=True)
class Trace:
    """What a window shows of itself when it is run again, (steps, worlds) each."""

    reward: Tensor
    adjoint: Tensor
    """Norm of the gradient by each world's state."""


class BadWindow(nn.Module):
    """Where the window began and its noise. Everything else that it depends on stays as it is from then on.

    With members, each keeps its own: every tensor has a leading axis of members.
    """

    noise: Tensor
    kept: Tensor
    """Whether there was one."""

    def __init__(self, env: Env, horizon: int) -> None:
        super().__init__()
        self.members = env.members
        worlds = member_worlds(env.worlds, env.members)
        *each, num_worlds, _ = worlds.joint_q.shape
        self.register_buffer("kept", torch.zeros(each, dtype=torch.bool, device=worlds.joint_q.device))
        self.register_buffer("noise", worlds.joint_q.new_zeros(*each, horizon, num_worlds, env.num_actions))
        for name, tensor in worlds.tensors().items():
            self.register_buffer(f"{START}{name}", tensor.detach().clone())

    def start(self) -> dict[str, Tensor]:
        """By the names of Worlds."""
        return {name.removeprefix(START): tensor for name, tensor in self.named_buffers() if name.startswith(START)}

    @torch.no_grad()
    def remember(self, now: Tensor, noise: Tensor, start: Worlds) -> None:
        """Keep this window where the mask `now` holds."""
        self.kept |= now
        self.noise.copy_(torch.where(widened(now, noise), noise, self.noise))
        began = member_worlds(start, self.members).tensors()
        for name, kept in self.start().items():
            kept.copy_(torch.where(widened(now, kept), began[name], kept))


def save_bad_window(run: RunFolder, env: Env, learner_state: Mapping[str, Any]) -> Path | None:
    """Write the window that a learner's state has kept, if any, into the run folder, with all that it depends on."""
    tensors = {name: tensor for name, tensor in learner_state.items() if isinstance(tensor, Tensor)}
    own = {name.removeprefix(OWN): tensors.pop(name) for name in list(tensors) if name.startswith(OWN)}
    if not own or not bool(own["kept"]):
        return None
    content: dict[str, Any] = {
        "bad_window": 2,
        "task": env.task.name,
        "algo": run.settings["algo"],
        "settings": run.settings["settings"],
        "randomize": None if env.randomize is None else json.loads(json.dumps(asdict(env.randomize))),
        "noise": own["noise"],
        "start": {name.removeprefix(START): tensor for name, tensor in own.items() if name.startswith(START)},
        "learner": tensors,
    }
    return run.save_checkpoint(CHECKPOINT, content)
