"""What hardware does to a policy, beside its physics: pushes, noise on what it sees, a delay of what it does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trot.envs.constants import constant
from trot.envs.randomize import Randomize
from trot.envs.streams import Streams, normal, uniform
from trot.envs.task import Task
from trot.sim.model import JointType, Model

MOST_PUSHES = 64
"""Drawn for one episode. In longer ones they come again in the same order."""


@dataclass(frozen=True, eq=False)
class Pushes:
    """Sudden changes of the first body's velocity: one in each stretch of `interval`, at a time drawn uniformly."""

    interval: float
    """In control steps."""
    count: int
    size: tuple[float, ...]
    """Half width of what is added to each velocity of the first body."""

    @property
    def width(self) -> int:
        """Of what is drawn for an episode: the steps in which they come, and then the changes, push after push."""
        return self.count * (1 + len(self.size))

    def draw(self, rows: int, streams: Streams, like: Tensor) -> Tensor:
        share = uniform((rows, self.width), streams, like)
        nth = torch.arange(self.count, dtype=like.dtype, device=like.device)
        steps = ((nth + share[:, : self.count]) * self.interval).floor()
        return torch.cat([steps, (2 * share[:, self.count :] - 1) * constant(self.size * self.count, like)], dim=1)

    def pushed(self, joint_qd: Tensor, clock: Tensor, drawn: Tensor) -> Tensor:
        """Velocities that a step begins with, so many steps into the episode."""
        due = clock % math.ceil(self.count * self.interval) == drawn[:, : self.count]
        changes = drawn[:, self.count :].view(len(drawn), self.count, len(self.size))
        change = (due.unsqueeze(2) * changes).sum(dim=1)
        return torch.cat([joint_qd[:, : len(self.size)] + change, joint_qd[:, len(self.size) :]], dim=1)


@dataclass(frozen=True, eq=False)
class Delay:
    """Actions that are carried out some steps after they were chosen; before the first, all of them are zero."""

    least: int
    most: int

    def draw(self, rows: int, streams: Streams, like: Tensor) -> Tensor:
        share = uniform((rows, 1), streams, like)
        return (self.least + (self.most + 1 - self.least) * share).floor().clamp(max=self.most)

    def delayed(self, action: Tensor, past: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """What is carried out now, and the past actions for the next step, the latest first."""
        rows, width = action.shape
        line = torch.cat([action, past], dim=1).view(rows, self.most + 1, width)
        due = line.gather(1, steps.long().view(rows, 1, 1).expand(rows, 1, width)).squeeze(1)
        # What is not finite shall not lie in wait: the step it was chosen in is the one to look at.
        return torch.where(action.isfinite(), due, action), line[:, :-1].flatten(1)


class Disturbances:
    """All of them that an environment was asked for. What is drawn for an episode are columns: delay, then pushes."""

    def __init__(self, randomize: Randomize, task: Task[Any], layout: dict[str, slice], like: Tensor) -> None:
        self.pushes = _pushes(randomize, task) if randomize.push_interval else None
        self.delay = Delay(*randomize.action_delay) if randomize.action_delay[1] else None
        deviations = randomize.deviations(layout)
        self._deviation = torch.tensor([deviations], dtype=like.dtype, device=like.device) if any(deviations) else None

    @property
    def width(self) -> int:
        """Of what is drawn for an episode."""
        return (self.delay is not None) + (0 if self.pushes is None else self.pushes.width)

    @property
    def past_actions(self) -> int:
        """How many are kept."""
        return 0 if self.delay is None else self.delay.most

    def draw(self, rows: int, streams: Streams, like: Tensor) -> Tensor:
        """For so many episodes, (rows, width)."""
        parts = [part.draw(rows, streams, like) for part in (self.delay, self.pushes) if part is not None]
        return torch.cat([like.new_zeros(rows, 0), *parts], dim=1)

    def pushed(self, joint_qd: Tensor, clock: Tensor, drawn: Tensor) -> Tensor:
        """Velocities that a step begins with."""
        if self.pushes is None:
            return joint_qd
        return self.pushes.pushed(joint_qd, clock, drawn[:, self.width - self.pushes.width :])

    def delayed(self, action: Tensor, past: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """What is carried out now, and the past actions for the next step."""
        return (action, past) if self.delay is None else self.delay.delayed(action, past, drawn[:, :1])

    def noisy(self, observation: Tensor, streams: Streams) -> Tensor:
        """What the policy is shown of an observation."""
        if self._deviation is None:
            return observation
        return observation + self._deviation * normal(tuple(observation.shape), streams, observation)


def _pushes(randomize: Randomize, task: Task[Any]) -> Pushes:
    interval = randomize.push_interval / task.control_dt
    if interval < 1:
        raise ValueError(
            f"randomize.push_interval is {randomize.push_interval} s; a control step takes {task.control_dt} s, and "
            "there is at most one push in it"
        )
    count = min(math.ceil(task.episode_length / interval), MOST_PUSHES)
    sizes = {"push_speed": randomize.push_speed, "push_turning": randomize.push_turning}
    axes = _axes_of_first_body(task.model)
    for name, size in sizes.items():
        if size and name not in axes:
            raise ValueError(
                f"randomize.{name} is {size}, but body '{task.model.body_name[0]}', which is pushed, cannot "
                f"{'move along' if name == 'push_speed' else 'turn about'} any axis. Leave it at 0"
            )
    return Pushes(interval, count, tuple(sizes[name] for name in axes))


def _axes_of_first_body(model: Model) -> list[str]:
    """The setting that each of its velocities listens to, in their order: they are the first of joint_qd."""
    along, about = "push_speed", "push_turning"
    of_joint = {
        JointType.FREE: [along] * 3 + [about] * 3,
        JointType.BALL: [about] * 3,
        JointType.SLIDE: [along],
        JointType.HINGE: [about],
    }
    joints = zip(model.joint_type, model.joint_body, strict=True)
    return [axis for kind, body in joints if body == 0 for axis in of_joint[JointType(kind)]]
