"""Where episodes begin: a nominal pose, and uniform noise around it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from trot.envs.constants import constant
from trot.envs.rotation import multiply, rotate_back
from trot.envs.streams import Streams, uniform
from trot.sim.manifold import UNIT_SQUARE, quaternion_columns, with_unit_quaternions
from trot.sim.model import JointType, Model
from trot.sim.state import State


@dataclass(frozen=True)
class Start:
    """A pose at rest and the half widths of the noise on it.

    Ball joints get no noise on their rotation, only on their velocity.
    """

    joint_q: tuple[float, ...] | None = None
    """The pose; None is the robot file's own. Quaternions in it are scaled to length 1."""
    position_noise: float = 0.0
    """Of a free joint's position along each axis, m."""
    angle_noise: float = 0.0
    """Of a free joint's rotation, rad, about an axis drawn at random."""
    joint_noise: float = 0.0
    """Of every hinge and slide, rad or m."""
    velocity_noise: float = 0.0
    """Of every velocity. A free joint's are drawn as a twist: turning, in world axes, and moving of the point of the
    body that lies at the world's origin."""

    def pose(self, model: Model) -> tuple[float, ...]:
        """joint_q without noise."""
        pose = tuple(float(q) for q in model.default_q) if self.joint_q is None else self.joint_q
        if len(pose) != model.num_q:
            raise ValueError(f"the start pose has {len(pose)} numbers; this robot's joint_q has {model.num_q}")
        if not all(map(math.isfinite, pose)):
            raise ValueError(f"the start pose is {pose}; every number in it must be finite")
        squares = [sum(q * q for q in pose[column]) for column in quaternion_columns(model)]
        return pose if all(abs(square - 1) <= UNIT_SQUARE for square in squares) else _upright(model, pose)

    def draw(self, model: Model, count: int, generator: Streams | None, like: Tensor) -> State:
        """`count` starts with the dtype and device of `like`; all of them at the nominal pose without a generator.

        Several generators share the rows: those of the first come before those of the second.
        """
        joint_q = constant(self.pose(model), like).repeat(count, 1)
        joint_qd = joint_q.new_zeros(count, model.num_dofs)
        activation = joint_q.new_zeros(count, model.num_acts) if model.num_acts else None
        if generator is None:
            return State(joint_q, joint_qd, activation=activation)
        joint_q += constant(self._half_widths(model), like) * _uniform(joint_q.shape, generator, like)
        joint_qd += self.velocity_noise * _uniform(joint_qd.shape, generator, like)
        for kind, q, dof in zip(model.joint_type, model.joint_q_start, model.joint_dof_start, strict=True):
            if kind == JointType.FREE:
                self._turn_free(joint_q[:, q : q + 7], joint_qd[:, dof : dof + 6], generator)
        return State(joint_q, joint_qd, activation=activation)

    def _half_widths(self, model: Model) -> tuple[float, ...]:
        """Of the noise on each number of joint_q; quaternions are turned instead."""
        widths: list[float] = []
        for kind in model.joint_type:
            plain = self.position_noise if kind == JointType.FREE else self.joint_noise
            widths += [plain] * JointType(kind).num_plain + [0.0] * (4 * JointType(kind).has_quaternion)
        return tuple(widths)

    def _turn_free(self, q: Tensor, qd: Tensor, generator: Streams) -> None:
        """Turn a free joint by a random rotation, and read the velocities that were drawn for it as a twist."""
        position, rotation = q[:, :3], q[:, 3:]
        axis = torch.nn.functional.normalize(_uniform(position.shape, generator, q), dim=1)
        half_angle = self.angle_noise / 2 * _uniform((len(q), 1), generator, q)
        rotation.copy_(multiply(rotation, torch.cat([half_angle.cos(), half_angle.sin() * axis], dim=1)))
        # MuJoCo's coordinates of a twist: the origin's velocity, and turning in body axes.
        moving, turning = qd[:, :3].clone(), qd[:, 3:].clone()
        qd[:, :3] = moving + torch.linalg.cross(turning, position)
        qd[:, 3:] = rotate_back(rotation, turning)


def _upright(model: Model, pose: tuple[float, ...]) -> tuple[float, ...]:
    try:
        row = with_unit_quaternions(model, torch.tensor([pose], dtype=torch.float64))[0]
    except ValueError as error:
        raise ValueError(f"the start pose: {error}") from None
    return tuple(row.tolist())


def _uniform(shape: tuple[int, ...], generator: Streams, like: Tensor) -> Tensor:
    """Between -1 and 1."""
    return 2 * uniform(shape, generator, like) - 1


SMALL_TURN = math.pi / 24
"""The angle noise that the three-dimensional tasks share."""
