"""The ground's forces by other means: MuJoCo's kinematics, and the contact law of docs/conventions.md by hand."""

from __future__ import annotations

import mujoco
import numpy as np

from trot.sim.model import Model
from trot.sim.weld import fold_welds


def forces_by_hand(model: Model, joint_q: np.ndarray, joint_qd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of one world, (num_points, 3) each: where its contact points touch, and the ground's forces on them."""
    data = mujoco.MjData(model.source)
    data.qpos, data.qvel = joint_q, joint_qd
    mujoco.mj_fwdPosition(model.source, data)
    mujoco.mj_fwdVelocity(model.source, data)
    bodies = fold_welds(model.source).moving[model.shape_body[model.point_shape]]
    points = data.xpos[bodies] + np.einsum("pij,pj->pi", data.xmat[bodies].reshape(-1, 3, 3), model.point_pos)
    points[:, 2] -= model.point_radius
    velocity = np.zeros_like(points)
    motion = np.zeros(6)
    for index, body in enumerate(bodies):
        mujoco.mj_objectVelocity(model.source, data, mujoco.mjtObj.mjOBJ_XBODY, int(body), motion, 0)
        velocity[index] = motion[3:] + np.cross(motion[:3], points[index] - data.xpos[body])

    shape = model.point_shape
    depth = np.maximum(model.ground_height - points[:, 2], 0)
    normal = np.maximum(depth * (model.shape_stiffness[shape] - model.shape_damping[shape] * velocity[:, 2]), 0)
    sliding = np.hypot(velocity[:, 0], velocity[:, 1]) + 1e-15
    drag = np.minimum(model.shape_friction_stiffness[shape], model.shape_friction[shape] * normal / sliding)
    return points, np.column_stack([-drag * velocity[:, 0], -drag * velocity[:, 1], normal])
