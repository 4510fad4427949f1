"""Quadruped: a Unitree Go1's figures; walk forward, sideways and turn, as commanded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trot.envs.command import Command
from trot.envs.constants import constant
from trot.envs.entry import Entries, Entry, axes, coordinates, past_actions, rates, relative, scaled
from trot.envs.randomize import Randomize
from trot.envs.rotation import rotate_back
from trot.envs.situation import Situation
from trot.envs.start import Start
from trot.envs.task import ASSETS, Task

STAND = (0.0, 0.9, -1.8) * 4
"""Hip, thigh and calf of each leg, rad: where the servos hold it while actions are zero."""
REACH = (0.3, 0.5, 0.5) * 4
"""How far an action moves these, rad."""
HEIGHT = 0.27
"""Of the trunk while it stands, m."""
FALLEN_HEIGHT = 0.13
TURNING_SCALE, RATE_SCALE = 0.5, 0.1
"""Of the trunk's and the joints' rates in the observation."""
FASTEST = (1.0, 0.5, 1.0)
"""Commands lie between these and their opposites: forward and to the left, m/s, and turning to the left, rad/s."""
COMMANDS = 4
"""In an episode, one after the other."""
COMMAND_SECONDS = 5.0
"""Each of them."""
STANDING = 0.1
"""The share of commands that say to stand still."""
STRIDES = 2.0
"""Per second, while it is to move: diagonal legs lift together, and the two pairs in turn."""
LIFT = 0.06
"""How high feet are to come, m, measured from the trunk."""
LEG = 0.213
"""From the hip to the knee, and from there to the foot, m."""
STANDS_AT = 2 * LEG * math.cos(STAND[1])
"""Of the foot below the hip, m: thigh and lower leg lean as far to either side."""
EVEN = 0.05
"""m/s and rad/s. Errors far above count in proportion to themselves, and those below by their squares."""


@dataclass(frozen=True)
class Measurement:
    """One row per world. Axes are the trunk's."""

    height: Tensor
    velocity: Tensor
    turning: Tensor
    down: Tensor
    """Where gravity points."""
    joints: Tensor
    """Away from STAND, rad."""
    joint_rates: Tensor
    command: Tensor
    """Of this moment: forward, to the left, turning to the left."""
    elapsed: Tensor
    """Since the episode began, s."""
    last_action: Tensor
    """The one before the present."""
    lifted: Tensor
    """How far each leg is drawn up from STAND, m."""

    @property
    def clock(self) -> Tensor:
        """Sine and cosine of the stride's phase."""
        phase = 2 * math.pi * STRIDES * self.elapsed
        return torch.cat([phase.sin(), phase.cos()], dim=1)

    @property
    def swing(self) -> Tensor:
        """How far each leg is to be drawn up now, m: not at all while it is to stand."""
        up = self.clock[:, :1] * constant((1.0, -1.0, -1.0, 1.0), self.elapsed)
        moving = self.command.abs().sum(dim=1, keepdim=True) > 0
        return LIFT * up.clamp(min=0) * moving

    @property
    def slip(self) -> Tensor:
        """How far the velocity along the ground is from what is commanded, squared."""
        return (self.velocity[:, :2] - self.command[:, :2]).square().sum(dim=1, keepdim=True)

    @property
    def spin(self) -> Tensor:
        """The same of turning."""
        return (self.turning[:, 2:] - self.command[:, 2:]).square()


class Quadruped(Task[Measurement]):
    """Paid for moving and turning as commanded, level, at its height, with feet that lift and smooth actions."""

    summary = "a robot dog with servos: walk and turn as commanded"
    robot = ASSETS / "quadruped.xml"
    start = Start(
        joint_q=(0.0, 0.0, HEIGHT, 1.0, 0.0, 0.0, 0.0, *STAND),
        angle_noise=0.1,
        joint_noise=0.1,
        velocity_noise=0.1,
    )
    control_dt = 0.02
    substeps = 20
    randomize = Randomize(
        friction=(0.6, 1.2), mass=(0.9, 1.1), push_interval=2.0, push_speed=0.5, push_turning=0.5
    )  # fmt: skip
    commands = (
        Command("forward", "m/s", -FASTEST[0], FASTEST[0], 0.5, "up-down"),
        Command("to the left", "m/s", -FASTEST[1], FASTEST[1]),
        Command("turning left", "rad/s", -FASTEST[2], FASTEST[2], 0.0, "left-right"),
    )

    def draw_memory(self, count: int, generator: torch.Generator | None, like: Tensor) -> dict[str, Tensor]:
        share = like.new_full((count, COMMANDS, 4), 0.75)
        if generator is not None:
            share = torch.rand(share.shape, generator=generator, dtype=like.dtype, device=like.device)
        commands = (2 * share[..., :3] - 1) * constant(FASTEST, like)
        return {
            "commands": torch.where(share[..., 3:] < STANDING, 0.0, commands).flatten(1),
            "elapsed": like.new_zeros(count, 1),
            "last_action": like.new_zeros(count, self.num_actions),
        }

    def mirrored_memory(
        self, memory: Mapping[str, Tensor], mirrored_action: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        commands = memory["commands"].view(-1, COMMANDS, 3)
        return {
            "commands": (commands * constant((1.0, -1.0, -1.0), commands)).flatten(1),
            "elapsed": memory["elapsed"] + 0.5 / STRIDES,
            "last_action": mirrored_action(memory["last_action"]),
        }

    def commanded(self, values: Tensor) -> dict[str, Tensor]:
        return {"commands": values.repeat(1, COMMANDS)}

    def control(self, action: Tensor) -> Tensor:
        return constant(STAND, action) + action * constant(REACH, action)

    def measure(self, state: Situation) -> Measurement:
        joint_q, joint_qd, memory = state.joint_q, state.joint_qd, state.memory
        rotation = joint_q[:, 3:7]
        which = (memory["elapsed"] / COMMAND_SECONDS).long().clamp(0, COMMANDS - 1)
        commands = memory["commands"].view(-1, COMMANDS, 3)
        hip, thigh, knee = joint_q[:, 7:].view(-1, 4, 3).unbind(dim=2)
        return Measurement(
            height=joint_q[:, 2:3],
            velocity=rotate_back(rotation, joint_qd[:, :3]),
            turning=joint_qd[:, 3:6],
            down=rotate_back(rotation, constant((0.0, 0.0, -1.0), joint_q).expand(len(joint_q), 3)),
            joints=joint_q[:, 7:] - constant(STAND, joint_q),
            joint_rates=joint_qd[:, 6:],
            command=commands.gather(1, which.unsqueeze(2).expand(-1, 1, 3)).squeeze(1),
            elapsed=memory["elapsed"],
            last_action=memory["last_action"],
            lifted=STANDS_AT - LEG * (thigh.cos() + (thigh + knee).cos()) * hip.cos(),
        )

    def observation(self, measured: Measurement, previous_action: Tensor) -> dict[str, Tensor]:
        return {
            "height": measured.height,
            "velocity": measured.velocity,
            "turning": TURNING_SCALE * measured.turning,
            "down": measured.down,
            "command": measured.command,
            "joints": measured.joints,
            "joint_rates": RATE_SCALE * measured.joint_rates,
            "previous_action": previous_action,
            "clock": measured.clock,
        }

    def observation_entries(self) -> Entries:
        trunk, forward, turning = self.model.body_name[0], "commanded velocity", "commanded turning z"
        return {
            "height": [Entry(f"{trunk} position z", "m", "world")],
            "velocity": axes(f"{trunk} velocity", "m/s", trunk),
            "turning": axes(f"{trunk} angular velocity", "rad/s", trunk, TURNING_SCALE),
            "down": axes("direction of gravity", "1", trunk),
            "command": [*axes(forward, "m/s", trunk)[:2], Entry(turning, "rad/s", trunk)],
            "joints": relative(coordinates(self.model)[7:], STAND),
            "joint_rates": scaled(rates(self.model)[6:], RATE_SCALE),
            "previous_action": past_actions(self.model.actuator_name),
            "clock": [Entry(f"{wave} of {STRIDES:g} strides per second", "1", "clock") for wave in ("sine", "cosine")],
        }

    def reward_terms(self, measured: Measurement, action: Tensor) -> dict[str, Tensor]:
        rolling, rising = measured.turning[:, :2], measured.velocity[:, 2:]
        return {
            "speed": 3 - 3 * (measured.slip + EVEN**2).sqrt(),
            "turning": 0.75 - 0.75 * (measured.spin + EVEN**2).sqrt(),
            "gait": -20 * (measured.swing - measured.lifted).clamp(min=0).square().sum(dim=1, keepdim=True),
            "level": -2 * measured.down[:, :2].square().sum(dim=1, keepdim=True),
            "height": -20 * (measured.height - HEIGHT).square(),
            "bounce": -0.2 * rising.square() - 0.02 * rolling.square().sum(dim=1, keepdim=True),
            "smooth": -0.01 * (action - measured.last_action).square().sum(dim=1, keepdim=True),
            "calm": -1e-4 * measured.joint_rates.square().sum(dim=1, keepdim=True),
        }

    def next_memory(self, measured: Measurement, action: Tensor) -> dict[str, Tensor]:
        return {"elapsed": measured.elapsed + self.control_dt, "last_action": action}

    def figures(self, measured: Measurement) -> dict[str, Tensor]:
        return {"speed error, m/s": measured.slip.sqrt(), "turning error, rad/s": measured.spin.sqrt()}

    def fallen(self, measured: Measurement) -> Tensor:
        return (measured.height < FALLEN_HEIGHT) | (measured.down[:, 2:] > -0.5)

    def looks_fallen(self, observation: Mapping[str, Tensor]) -> Tensor:
        return (observation["height"] < FALLEN_HEIGHT) | (observation["down"][:, 2:] > -0.5)
