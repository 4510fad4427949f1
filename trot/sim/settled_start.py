"""A start that throws no robot about: its default pose, within the limits of its joints and above the ground."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from trot.sim.model import Floats, JointType, Model
from trot.sim.pose import Pose
from trot.sim.state import State

CLEARANCE = 0.001
"""m above the ground at which a robot begins that would begin in it."""


@dataclass(frozen=True)
class SettledStart:
    """A pose, and what was done to the default one."""

    joint_q: Floats
    turned: tuple[str, ...]
    """Joints that were moved to the nearest of their limits."""
    lifted: float
    """m, of a robot with a free joint."""

    def state(self, model: Model, num_worlds: int) -> State:
        """In float64, with the default velocities and activations."""
        default = model.default_state(num_worlds, dtype=torch.float64)
        joint_q = torch.tensor(self.joint_q).repeat(num_worlds, 1)
        return State(joint_q, default.joint_qd, activation=default.activation)


def settled_start(model: Model) -> SettledStart:
    """Move what begins outside of its limits, then lift what begins in the ground."""
    joint_q, turned = model.default_q.copy(), []
    for joint in np.flatnonzero(np.isin(model.joint_type, (JointType.HINGE, JointType.SLIDE))):
        q, lower, upper = model.joint_q_start[joint], model.joint_lower[joint], model.joint_upper[joint]
        if not lower <= joint_q[q] <= upper:
            joint_q[q] = np.clip(joint_q[q], lower, upper)
            turned.append(model.joint_name[joint])
    pose = Pose(model)
    pose.move(joint_q, model.default_qd)
    depth = float(ground_depths(model, pose).max(initial=-np.inf))
    free = model.joint_q_start[model.joint_type == JointType.FREE]
    lifted = depth + CLEARANCE if depth > 0 and len(free) else 0.0
    joint_q[free + 2] += lifted
    return SettledStart(joint_q, tuple(turned), lifted)


def ground_depths(model: Model, pose: Pose) -> Floats:
    """(num_points,) in the ground, m; negative above it."""
    if model.ground_height is None:
        return np.full(model.num_points, -np.inf)
    bodies = model.shape_body[model.point_shape]
    heights = [pose.place(body, at)[2] for body, at in zip(bodies, model.point_pos, strict=True)]
    depths: Floats = model.ground_height + model.point_radius - np.array(heights, float)
    return depths
