"""How a robot's velocities answer to a push on a point of it, by MuJoCo's mass matrix and Jacobians.

A push of p newton-seconds on a point changes joint_qd by M^-1 J^T p, J being the point's velocity by joint_qd.
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np

from trot.sim.model import Floats


class Inertia:
    """A robot at a pose; call at() to take another one."""

    def __init__(self, source: mujoco.MjModel, mass: float = 1.0) -> None:
        """`mass` is a factor on all masses, and inertias with them."""
        self.model = copy.copy(source)
        self.model.body_mass *= mass
        self.model.body_inertia *= mass
        self._data = mujoco.MjData(self.model)
        # MuJoCo keeps what simple bodies weigh at their joints.
        mujoco.mj_setConst(self.model, self._data)
        moving = self.model.body_weldid > 0
        self.bodies = np.flatnonzero(moving)
        """MuJoCo's numbers of the bodies that can move."""
        self.total_mass = float(self.model.body_mass[moving].sum())

    def at(self, joint_q: Floats) -> Inertia:
        self._data.qpos[:] = joint_q
        for stage in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_makeM, mujoco.mj_factorM):
            stage(self.model, self._data)
        return self

    def centre(self, body: int) -> Floats:
        """The body's centre of mass, in world axes."""
        return np.array(self._data.xipos[body])

    def to_world(self, body: int, point: Floats) -> Floats:
        """A point of the body's frame."""
        return np.array(self._data.xpos[body] + self._axes(body) @ point)

    def to_body(self, body: int, point: Floats) -> Floats:
        """A point of the world, in the body's frame."""
        return np.array(self._axes(body).T @ (point - self._data.xpos[body]))

    def jacobian(self, body: int, point: Floats) -> Floats:
        """(3, num_dofs) the velocity of a point of the body, given in the world, by joint_qd."""
        jacobian = np.zeros((3, self.model.nv))
        mujoco.mj_jac(self.model, self._data, jacobian, None, point, body)
        return jacobian

    def divided(self, forces: Floats) -> Floats:
        """M^-1 times each row of generalised forces, (rows, num_dofs)."""
        answer = np.zeros_like(forces)
        mujoco.mj_solveM(self.model, self._data, answer, np.ascontiguousarray(forces))
        return answer

    def _axes(self, body: int) -> Floats:
        axes: Floats = self._data.xmat[body].reshape(3, 3)
        return axes
