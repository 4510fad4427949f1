"""A robot at one pose, by MuJoCo: where its points are, how they move with the dofs, mass matrix and energy."""

from __future__ import annotations

import mujoco
import numpy as np

from trot.sim.model import WORLD, Floats, Model
from trot.sim.weld import fold_welds

LEAST_MASS = 1e-13
"""Share of what its dofs weigh alone, below which a motion has no mass but for rounding."""


class Pose:
    """At the default pose, or wherever it is moved."""

    def __init__(self, model: Model) -> None:
        self.source = model.source
        self.data = mujoco.MjData(model.source)
        self._body = fold_welds(model.source).moving
        self.move(model.default_q, model.default_qd)

    def move(self, joint_q: Floats, joint_qd: Floats) -> None:
        source, data = self.source, self.data
        data.qpos[:], data.qvel[:] = joint_q, joint_qd
        mujoco.mj_kinematics(source, data)
        mujoco.mj_comPos(source, data)
        mujoco.mj_tendon(source, data)
        mujoco.mj_transmission(source, data)
        mujoco.mj_crb(source, data)

    def mass_matrix(self) -> Floats:
        """Of all dofs, with armatures."""
        found: Floats = np.zeros((self.source.nv, self.source.nv))
        mujoco.mj_fullM(self.source, self.data, found)
        return found

    def massless_motion(self) -> list[int]:
        """Dofs that can move together without moving any mass; empty where the mass matrix is regular."""
        mass = self.mass_matrix()
        size = np.sqrt(mass.diagonal())
        if not size.all():
            return [int(dof) for dof in np.flatnonzero(size == 0)]
        values, vectors = np.linalg.eigh(mass / np.outer(size, size))
        share = abs(vectors[:, 0])
        return [] if values[0] > LEAST_MASS else [int(dof) for dof in np.flatnonzero(share > 0.1 * share.max())]

    def energies(self) -> tuple[float, float]:
        """Of gravity and of springs of joints and tendons, and of the motion, J."""
        mujoco.mj_energyPos(self.source, self.data)
        speed = self.data.qvel
        return float(self.data.energy[0]), float(speed @ self.mass_matrix() @ speed) / 2

    def place(self, body: int, points: Floats) -> Floats:
        """Points of a body of the Model, (..., 3), in the world."""
        if body == WORLD:
            return points
        index = self._body[body]
        placed: Floats = self.data.xpos[index] + points @ self.data.xmat[index].reshape(3, 3).T
        return placed

    def turn(self, body: int, directions: Floats) -> Floats:
        """Directions of a body, (..., 3), in the world."""
        turned: Floats = self.place(body, directions) - self.place(body, np.zeros(3))
        return turned

    def turning_jacobian(self, body: int) -> Floats:
        """(3, num_dofs) the angular velocity of the body, in the world, per joint_qd."""
        found = np.zeros((3, self.source.nv))
        if body != WORLD:
            mujoco.mj_jac(self.source, self.data, None, found, self.data.xpos[self._body[body]], self._body[body])
        return found

    def jacobian(self, body: int, point: Floats) -> Floats:
        """(3, num_dofs) the velocity of what the body has at this place of the world, per joint_qd."""
        found = np.zeros((3, self.source.nv))
        if body != WORLD:
            mujoco.mj_jac(self.source, self.data, found, None, point, self._body[body])
        return found
