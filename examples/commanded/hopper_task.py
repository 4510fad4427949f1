"""A task with memory: a Hopper holds a speed that is commanded anew in every episode, and hops to a rhythm.

Try it: trot try examples/commanded/hopper_task.py:CommandedHopper
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

import trot
from trot.envs.command import Command
from trot.envs.constants import constant
from trot.envs.planar import Planar, measure_planar, planar_observation
from trot.envs.task import ASSETS
from trot.envs.torso import height_bonus, squared_norm

SLOWEST, FASTEST = 0.5, 2.0
"""Commands are drawn from between these, m/s."""
HOPS = 2.0
"""Per second: how fast the rhythm goes."""
MEMORY_SPAN = 0.5
"""Seconds over which the mean speed forgets: about one hop."""
REACH = (0.5, 0.5, 0.5)
"""How far an action moves the targets of thigh, leg and foot, rad."""
RHYTHM = (0.0, -0.3, 0.0)
"""How far the rhythm moves them, rad."""
STIFFNESS, DAMPING = 150.0, 5.0
"""Of the servos, N m/rad and N m s/rad."""


@dataclass(frozen=True)
class Measurement:
    """One row per world."""

    body: Planar
    command: Tensor
    """The speed to hold, m/s."""
    mean_speed: Tensor
    """Over the last hop or so, m/s: within one, the speed goes up and down."""
    phase: Tensor
    """Of the rhythm, in turns."""


class CommandedHopper(trot.Task[Measurement]):
    """Paid for a mean speed near the commanded one, with the torso high and upright."""

    summary = "a planar leg: hop as fast as commanded"
    robot = ASSETS / "hopper.xml"
    start = trot.Start(joint_noise=0.05, velocity_noise=0.05)
    commands = (Command("speed", "m/s", SLOWEST, FASTEST, 1.0, "up-down"),)

    def __init__(self) -> None:
        super().__init__()
        self.gear = tuple(self.model.motor_gear.tolist())
        """Torque per unit of control, N m."""

    def draw_memory(self, count: int, generator: torch.Generator | None, like: Tensor) -> dict[str, Tensor]:
        share, phase = like.new_full((count, 1), 0.5), like.new_zeros(count, 1)
        if generator is not None:
            share, phase = (torch.empty_like(part).uniform_(generator=generator) for part in (share, phase))
        return {
            "command": SLOWEST + (FASTEST - SLOWEST) * share,
            "mean_speed": like.new_zeros(count, 1),
            "phase": phase,
        }

    def commanded(self, values: Tensor) -> dict[str, Tensor]:
        return {"command": values}

    def measure(self, state: trot.Situation) -> Measurement:
        return Measurement(measure_planar(state), **state.memory)

    def control(self, action: Tensor, measured: Measurement) -> Tensor:
        swing = 0.5 - 0.5 * (2 * math.pi * measured.phase).cos()
        target = action * constant(REACH, action) + swing * constant(RHYTHM, action)
        torque = STIFFNESS * (target - measured.body.joints) - DAMPING * measured.body.joint_rates
        return torque / constant(self.gear, action)

    def observation(self, measured: Measurement, previous_action: Tensor) -> dict[str, Tensor]:
        turn = 2 * math.pi * measured.phase
        return {
            **planar_observation(measured.body),
            "command": measured.command,
            "mean_speed": measured.mean_speed,
            "rhythm": torch.cat([turn.sin(), turn.cos()], dim=1),
        }

    def reward_terms(self, measured: Measurement, action: Tensor) -> dict[str, Tensor]:
        return {
            "speed": 2 - (measured.mean_speed - measured.command).square(),
            "height": height_bonus(measured.body.height, wanted=-0.3, reach=0.3, gain=1),
            "upright": 1 - (measured.body.pitch / (math.pi / 6)).square(),
            "effort": -0.1 * squared_norm(action),
        }

    def fallen(self, measured: Measurement) -> Tensor:
        return measured.body.height < -0.45

    def next_memory(self, measured: Measurement, action: Tensor) -> dict[str, Tensor]:
        news = self.control_dt / MEMORY_SPAN
        return {
            "mean_speed": measured.mean_speed + news * (measured.body.forward_speed - measured.mean_speed),
            "phase": (measured.phase + self.control_dt * HOPS).remainder(1),
        }
