"""A robot of your own with a free base: a quadruped, given as MJCF, trots forward.

Try it: trot try examples/quadruped/quadruped_task.py:Quadruped
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

import trot
from trot.envs.torso import Torso, measure_torso, squared_norm, torso_observation

STANDING = 0.58
"""Height of the base in the nominal pose, m."""
FRONT, HIND = (0.0, 0.4, -0.8), (0.0, -0.4, 0.8)
"""Abduction, flexion and knee of a leg in the nominal pose, rad: knees inwards, feet under the hips."""


class Quadruped(trot.Task[Torso]):
    """Paid for speed along x, for a level base turned to the target and held high, and for little effort."""

    summary = "a quadruped of our own with 12 motors: trot forward"
    robot = Path(__file__).parent / "quadruped.xml"
    start = trot.Start(
        joint_q=(0.0, 0.0, STANDING, 1.0, 0.0, 0.0, 0.0, *FRONT, *FRONT, *HIND, *HIND),
        position_noise=0.02,
        angle_noise=0.1,
        joint_noise=0.1,
        velocity_noise=0.2,
    )

    def measure(self, state: trot.State) -> Torso:
        return measure_torso(state, target_distance=1_000)

    def observation(self, measured: Torso, previous_action: Tensor) -> dict[str, Tensor]:
        return {**torso_observation(measured), "previous_action": previous_action}

    def reward_terms(self, measured: Torso, action: Tensor) -> dict[str, Tensor]:
        return {
            "forward": measured.forward_speed,
            "up": 0.5 * measured.up,
            "heading": 0.5 * measured.heading,
            "height": -20 * (measured.height - STANDING).square(),
            "effort": -0.02 * squared_norm(action),
        }

    def fallen(self, measured: Torso) -> Tensor:
        # The base lies on the ground, or is turned on its side.
        return (measured.height < 0.3) | (measured.up < 0.3)
