"""What the three-dimensional tasks measure of a robot whose first joint is free, and the rewards they share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trot.envs.torso_kernels import torso_rows
from trot.sim.state import State

RATE_SCALE = 0.1
"""Joint rates are several times larger than joint angles; observations scale them by this."""


@dataclass(frozen=True)
class Torso:
    """One row per world, in world axes unless said otherwise."""

    height: Tensor
    """z of the free body's origin, m."""
    rotation: Tensor
    """Its quaternion, w x y z."""
    velocity: Tensor
    """Of its origin, m/s."""
    forward_speed: Tensor
    """Along x."""
    angular_velocity: Tensor
    joints: Tensor
    """Coordinates of all other joints."""
    joint_rates: Tensor
    up: Tensor
    """Cosine between the body's up axis and the world's."""
    heading: Tensor
    """Cosine between the body's forward axis and the way to the target."""


def measure_torso(state: State, target_distance: float, up_axis: str = "z", forward_axis: str = "x") -> Torso:
    """The target lies on the ground, that far along x from where the nominal start stands."""
    rows = torso_rows(state.joint_q, state.joint_qd, target_distance, up_axis, forward_axis)
    widths = [1, 4, 3, 3, state.joint_q.shape[1] - 7, state.joint_qd.shape[1] - 6, 1, 1]
    height, rotation, velocity, angular_velocity, joints, joint_rates, up, heading = rows.split_with_sizes(
        widths, dim=1
    )
    return Torso(
        height=height,
        rotation=rotation,
        velocity=velocity,
        forward_speed=velocity[:, :1],
        angular_velocity=angular_velocity,
        joints=joints,
        joint_rates=joint_rates,
        up=up,
        heading=heading,
    )


def torso_observation(torso: Torso) -> dict[str, Tensor]:
    """The parts that all three-dimensional tasks see, in their order."""
    return {
        "height": torso.height,
        "rotation": torso.rotation,
        "velocity": torso.velocity,
        "angular_velocity": torso.angular_velocity,
        "joints": torso.joints,
        "joint_rates": RATE_SCALE * torso.joint_rates,
        "up": torso.up,
        "heading": torso.heading,
    }


def height_bonus(height: Tensor, wanted: float, reach: float, gain: float) -> Tensor:
    """Linear above the wanted height, up to `reach` above it; below, a penalty that grows with the square."""
    above = (height - wanted).clamp(-1, reach)
    return torch.where(above < 0, -200 * above, gain) * above


def squared_norm(action: Tensor) -> Tensor:
    """Of each world's row, as a column."""
    return action.square().sum(dim=1, keepdim=True)
