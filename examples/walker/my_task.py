"""A task of your own: a planar walker, given as URDF, walks forward. docs/your_own.md explains it step by step.

Try it: trot try examples/walker/my_task.py:Walker
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import trot
from trot.envs.constants import constant

ROOT = 3
"""Coordinates of the planar root: along x, along z, and the lean."""
STANDING = 0.87
"""Height of the hips where the root's z is 0, m."""
FALLEN_HEIGHT = 0.5


@dataclass(frozen=True)
class Measurement:
    """One row per world."""

    height: Tensor
    """Of the hips above the ground, m."""
    lean: Tensor
    """Of the trunk, rad; positive is backward."""
    joints: Tensor
    """Hip, knee and ankle, left and then right, rad."""
    forward_speed: Tensor
    other_speeds: Tensor
    """Of the hips along z, of the lean, and of the joints."""


class Walker(trot.Task[Measurement]):
    """Paid for speed along x with the trunk high and upright."""

    summary = "a planar walker of our own: walk forward"
    robot = Path(__file__).parent / "walker.urdf"
    ground = True
    # Twice the usual: with 16, friction under the light feet makes the gradient explode (docs/your_own.md, Substeps).
    substeps = 32
    # Knees a little bent, so that it can push off; soles 26 mm above the ground, since the noise moves the root too.
    start = trot.Start(joint_q=(0.0, -0.01, 0.0, *[0.3, -0.6, 0.3] * 2), joint_noise=0.03, velocity_noise=0.1)

    def __init__(self) -> None:
        super().__init__()
        self.effort = tuple(self.model.control_upper[ROOT:].tolist())
        """Largest torque of each joint, N m, as the URDF gives it."""

    @property
    def num_actions(self) -> int:
        return self.model.num_controls - ROOT

    def control(self, action: Tensor) -> Tensor:
        torque = action * constant(self.effort, action)
        # Every joint of a URDF gets a motor. Nobody pushes the walker, so those of the root stay at 0.
        return torch.nn.functional.pad(torque, (ROOT, 0))

    def measure(self, state: trot.State) -> Measurement:
        _, z, lean, joints = torch.split(state.joint_q, [1, 1, 1, self.num_actions], dim=1)
        forward_speed, other_speeds = torch.split(state.joint_qd, [1, 2 + self.num_actions], dim=1)
        return Measurement(STANDING + z, lean, joints, forward_speed, other_speeds)

    def observation(self, measured: Measurement, previous_action: Tensor) -> dict[str, Tensor]:
        return {
            "height": measured.height,
            "lean": measured.lean,
            "joints": measured.joints,
            "forward_speed": measured.forward_speed,
            "other_speeds": 0.1 * measured.other_speeds,
            "previous_action": previous_action,
        }

    def reward_terms(self, measured: Measurement, action: Tensor) -> dict[str, Tensor]:
        return {
            "forward": measured.forward_speed,
            "upright": 1 - measured.lean.square(),
            "height": -10 * (measured.height - STANDING).square(),
            "effort": -0.05 * action.square().sum(dim=1, keepdim=True),
        }

    def fallen(self, measured: Measurement) -> Tensor:
        return measured.height < FALLEN_HEIGHT

    def looks_fallen(self, observation: Mapping[str, Tensor]) -> Tensor:
        return observation["height"] < FALLEN_HEIGHT
