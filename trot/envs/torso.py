"""What the three-dimensional tasks measure of a robot whose first joint is free, and the rewards they share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trot.envs.entry import Entries, Entry, axes, coordinates, quaternion, rates, scaled
from trot.sim.arguments import Argument
from trot.sim.model import Model
from trot.sim.native_operation import RowOperation
from trot.sim.state import State

AXES = ("x", "y", "z")

_measure = RowOperation(
    Path(__file__).parent / "torso.h",
    "measure",
    inputs=("joint_q", "joint_qd"),
    settings=(
        Argument("up_axis", "int", "of the body"),
        Argument("forward_axis", "int", "of the body"),
        Argument("target", "Scalar", "where it lies along x, m"),
    ),
)

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
    num_q, num_dofs = state.joint_q.shape[1], state.joint_qd.shape[1]
    if num_q < 7 or num_dofs < 6:
        raise ValueError(
            f"only of a robot whose first joint is free is there a torso: joint_q has {num_q} columns and joint_qd "
            f"{num_dofs}"
        )
    for axis in (up_axis, forward_axis):
        if axis not in AXES:
            raise ValueError(f"an axis is x, y or z, not {axis!r}")
    settings = {
        "up_axis": AXES.index(up_axis),
        "forward_axis": AXES.index(forward_axis),
        "target": target_distance,
    }
    rows = _measure((state.joint_q, state.joint_qd), num_q + num_dofs, settings)
    widths = [1, 4, 3, 3, num_q - 7, num_dofs - 6, 1, 1]
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


def torso_entries(model: Model, up_axis: str = "z", forward_axis: str = "x") -> Entries:
    """What torso_observation() is made of."""
    body = model.body_name[0]
    return {
        "height": [Entry(f"{body} position z", "m", "world")],
        "rotation": quaternion(body, "world"),
        "velocity": axes(f"{body} velocity", "m/s", "world"),
        "angular_velocity": axes(f"{body} angular velocity", "rad/s", "world"),
        "joints": coordinates(model)[7:],
        "joint_rates": scaled(rates(model)[6:], RATE_SCALE),
        "up": [Entry(f"cosine between {body}'s {up_axis} and world z", "1", "world")],
        "heading": [Entry(f"cosine between {body}'s {forward_axis} and the way to the target", "1", "world")],
    }


def height_bonus(height: Tensor, wanted: float, reach: float, gain: float) -> Tensor:
    """Linear above the wanted height, up to `reach` above it; below, a penalty that grows with the square."""
    above = (height - wanted).clamp(-1, reach)
    return torch.where(above < 0, -200 * above, gain) * above


def squared_norm(action: Tensor) -> Tensor:
    """Of each world's row, as a column."""
    return action.square().sum(dim=1, keepdim=True)
