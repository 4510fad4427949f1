"""Where the bodies of a Model are, by MuJoCo."""

from __future__ import annotations

import mujoco
import numpy as np

from trot.sim.model import Model


def body_frames(model: Model, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """World position and rotation matrix of every Model body, by MuJoCo."""
    data = mujoco.MjData(model.source)
    data.qpos[:] = q
    mujoco.mj_kinematics(model.source, data)
    index = [model.source.body(name).id for name in model.body_name]
    return data.xpos[index], data.xmat[index].reshape(-1, 3, 3)
