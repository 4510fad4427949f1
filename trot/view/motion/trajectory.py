"""A recorded motion in one small file, which NumPy and MuJoCo can read without trot.

The file is an .npz with these keys, named and shaped like the fields of Trajectory:

    format                       "trot trajectory 1"
    task, robot, dt              text, text, a number
    joint_q, joint_qd, action, control, begins
    reward_terms/NAME            one array per term
"""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from trot.atomic import check_destination, replacing

Floats32 = NDArray[np.float32]
Floats64 = NDArray[np.float64]

FORMAT = "trot trajectory 1"
SUFFIX = ".npz"
ARRAYS = ("joint_q", "joint_qd", "action", "control")
TERM_PREFIX = "reward_terms/"


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What every world did, frame by frame, dt apart.

    Frame 0 is the state after the reset. Frame f is the state that action[f] and control[f] led to from frame f - 1;
    where they ended the episode, it is that episode's last state. The frame after it is then the new episode's first
    step, begins is True in it, and the start that it came from is not shown. A world that blew up shows its nominal
    pose in the frame in which it did.
    """

    task: str
    """The task's name, or the path of a bare robot."""
    robot: str
    """MJCF as MuJoCo saves it, meshes inside: no other file is needed."""
    dt: float
    """Seconds between frames."""
    joint_q: Floats32
    """(frames, worlds, num_q), MuJoCo's qpos."""
    joint_qd: Floats32
    """(frames, worlds, num_dofs), MuJoCo's qvel."""
    action: Floats32
    """(frames, worlds, num_actions); zeros in frame 0."""
    control: Floats32
    """(frames, worlds, num_controls) what reached the actuators, of muscles the activation; zeros in frame 0."""
    reward_terms: dict[str, Floats32]
    """(frames, worlds) each; zeros in frame 0."""
    begins: NDArray[np.bool_]
    """(frames, worlds) True in the first frame of an episode."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all."""
        path = Path(path)
        check_destination(path)
        arrays: dict[str, Any] = {name: getattr(self, name) for name in (*ARRAYS, "begins", "task", "robot", "dt")}
        arrays |= {f"{TERM_PREFIX}{name}": values for name, values in self.reward_terms.items()}
        with replacing(path) as file:
            np.savez_compressed(file, format=FORMAT, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trajectory:
        """Read what save() wrote; raises ValueError where the file holds anything else."""
        if not Path(path).exists():
            raise FileNotFoundError(f"no trajectory file '{path}'")
        try:
            with np.load(path, allow_pickle=False) as file:
                if not isinstance(file, np.lib.npyio.NpzFile) or str(file["format"]) != FORMAT:
                    raise ValueError(f"its format is not '{FORMAT}'")
                trajectory = cls(
                    task=str(file["task"]),
                    robot=str(file["robot"]),
                    dt=float(file["dt"]),
                    **{name: file[name].astype(np.float32, copy=False) for name in ARRAYS},
                    reward_terms={
                        key.removeprefix(TERM_PREFIX): file[key].astype(np.float32, copy=False)
                        for key in file.files
                        if key.startswith(TERM_PREFIX)
                    },
                    begins=file["begins"].astype(np.bool_, copy=False),
                )
            trajectory._check_shapes()
        except (OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"'{path}' is not a trajectory that trot saved: {reason}") from None
        return trajectory

    def model(self) -> mujoco.MjModel:
        """The robot, compiled by MuJoCo."""
        return mujoco.MjModel.from_xml_string(self.robot)

    def _check_shapes(self) -> None:
        model = self.model()
        rows = self.begins.shape
        if len(rows) != 2 or 0 in rows or not self.dt > 0:
            raise ValueError("it has no frames")
        expected = {"joint_q": model.nq, "joint_qd": model.nv, "control": model.nu, "action": None}
        for name, width in expected.items():
            shape = getattr(self, name).shape
            if shape[:2] != rows or len(shape) != 3 or width not in (None, shape[2]):
                raise ValueError(f"{name} is {shape}, which does not fit its robot or its {rows[0]} frames")
        for name, values in self.reward_terms.items():
            if values.shape != rows:
                raise ValueError(f"the reward term {name} is {values.shape}, not {rows}")
