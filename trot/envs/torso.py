"""What the three-dimensional tasks measure of a robot whose first joint is free, and the rewards they share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trot.envs.constants import constant
from trot.envs.rotation import frame, rotate
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
    # Each state tensor is split once: the backward pass then joins the parts once, instead of adding up slices.
    place, height, rotation, joints = torch.split_with_sizes(
        state.joint_q, [2, 1, 4, state.joint_q.shape[1] - 7], dim=1
    )
    velocity, turning, joint_rates = torch.split_with_sizes(state.joint_qd, [3, 3, state.joint_qd.shape[1] - 6], dim=1)
    matrix, up, forward = frame(rotation, up_axis, forward_axis)
    to_target = constant((target_distance, 0.0), place) - place
    distance = torch.linalg.vector_norm(to_target, dim=1, keepdim=True)
    return Torso(
        height=height,
        rotation=rotation,
        velocity=velocity,
        forward_speed=velocity[:, :1],
        angular_velocity=rotate(matrix, turning),
        joints=joints,
        joint_rates=joint_rates,
        up=up,
        heading=(forward * to_target).sum(dim=1, keepdim=True) / distance,
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
