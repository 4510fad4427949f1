"""What resists a pull at the reference pose: the inertia that a spring between joints or bodies acts on."""

from __future__ import annotations

import mujoco
import numpy as np

from trot.sim.model import Floats


class ReferencePose:
    """A robot as its file draws it, with its mass matrix there."""

    def __init__(self, compiled: mujoco.MjModel) -> None:
        self.data = mujoco.MjData(compiled)
        self._matrix = np.zeros((compiled.nv, compiled.nv))
        mujoco.mj_kinematics(compiled, self.data)
        mujoco.mj_comPos(compiled, self.data)
        # With the armature of tendons, where there is any.
        mujoco.mj_tendon(compiled, self.data)
        mujoco.mj_crb(compiled, self.data)
        mujoco.mj_fullM(compiled, self.data, self._matrix)

    def mobility(self, slopes: Floats) -> Floats:
        """J M^-1 J^T of a Jacobian J: acceleration per force; NaN where a body has no mass."""
        try:
            found: Floats = slopes @ np.linalg.solve(self._matrix, slopes.T)
        except np.linalg.LinAlgError:
            found = np.full((len(slopes), len(slopes)), np.nan)
        return found
