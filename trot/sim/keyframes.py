"""Where a robot begins: the pose that its file draws, or a keyframe of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np

from trot.sim.model import JointType, Model
from trot.sim.notes import Findings, listed, verb


def read_keyframe(compiled: mujoco.MjModel, keyframe: str | None, found: Findings) -> dict[str, Any]:
    """The fields default_q and default_qd of Model."""
    pose, velocity = np.array(compiled.qpos0), np.zeros(compiled.nv)
    if keyframe is not None:
        names = [mujoco.mj_id2name(compiled, mujoco.mjtObj.mjOBJ_KEY, key) or "" for key in range(compiled.nkey)]
        if keyframe in names:
            key = names.index(keyframe)
            pose, velocity = np.array(compiled.key_qpos[key]), np.array(compiled.key_qvel[key])
            if np.any(compiled.key_act[key] != 0):
                found.notes.append(f"act of keyframe '{keyframe}' is not read: activations begin at 0.")
        else:
            named = ", ".join(f"'{name}'" for name in names if name)
            there = f"The file has {named}." if named else "The file names none."
            found.problems.append(f"there is no keyframe '{keyframe}'. {there}")
    return {"default_q": pose, "default_qd": velocity}


def find_beyond_limits(model: Model) -> Iterator[str]:
    """A sentence about hinges and slides that begin outside their limits, whose springs then push from the start."""
    found = []
    for joint, kind in enumerate(model.joint_type):
        if kind in (JointType.HINGE, JointType.SLIDE):
            angle = model.default_q[model.joint_q_start[joint]]
            lower, upper = model.joint_lower[joint], model.joint_upper[joint]
            if not lower <= angle <= upper:
                found.append(f"{model.joint_name[joint]} at {angle:g}, limits {lower:g} to {upper:g}")
    if found:
        whose = verb(found, "begins outside its limits: its spring pushes", "begin outside their limits: springs push")
        yield f"{listed('joint', found)} {whose} from the start."
