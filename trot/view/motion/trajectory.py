"""A recorded motion in one small file, which NumPy and MuJoCo can read without trot.

The file is an .npz with these keys, named and shaped like the fields of Trajectory:

    format                       "trot trajectory 1"
    task, robot, dt              text, text, a number
    joint_q, joint_qd, action, control, begins
    reward_terms/NAME            one array per term

PyTorch is imported where something is simulated: to show a file takes none of its seconds.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

from trot.atomic import check_destination, replacing

if TYPE_CHECKING:
    import torch

Floats32 = NDArray[np.float32]
Floats64 = NDArray[np.float64]

FORMAT = "trot trajectory 1"
SUFFIX = ".npz"
ARRAYS = ("joint_q", "joint_qd", "action", "control")
TERM_PREFIX = "reward_terms/"
ROBOT_STEPS = 300
"""Of a bare robot file, which has no episodes."""


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


AgentKind = Literal["policy", "zero", "random"]


def load_or_record(source: str, *, agent: AgentKind | None = None, **how: Any) -> Trajectory:
    """A saved motion, or one that record() makes; by default of a run's policy, in a task of random actions."""
    from trot.envs.registry import names_task

    if source.lower().endswith(SUFFIX):
        return Trajectory.load(source)
    return record(source, agent=agent or ("random" if names_task(source) else "policy"), **how)


def record(
    source: str,
    *,
    checkpoint: str = "best",
    worlds: int = 1,
    steps: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    stochastic: bool = False,
    agent: AgentKind = "policy",
    device: str | torch.device = "cpu",
) -> Trajectory:
    """Let something move, and record it.

    Args:
        source: A run folder, whose policy plays; a task's name or path/to/file.py:Class, with agent zero or random; or
            a robot file (.xml, .urdf), which moves from its reference pose without control, a URDF on added ground.
        checkpoint: Which policy of the run.
        worlds: How many of them.
        steps: As many frames follow the first one; by default an episode's, and 300 for a robot file.
        seconds: The same as time, where steps are not given.
        seed: Of the starts, the policy's noise and random actions.
        stochastic: With the policy's noise.
        agent: The run's policy, no action at all, or actions drawn uniformly from [-1, 1].
        device: To simulate on.
    """
    from trot.envs.registry import TASKS, make_env, names_task
    from trot.learn.agent import load_agent
    from trot.learn.learner import NOISE_STREAM
    from trot.learn.play import agent_acts, chance_acts, nothing_acts
    from trot.runs.folder import RunFolder
    from trot.view.motion.recording import ROBOT_DT, record_env, record_robot

    def frames(dt: float, default: int) -> int:
        wanted = steps if steps is not None else default if seconds is None else max(1, round(seconds / dt))
        if wanted < 1:
            raise ValueError(f"steps must be at least 1, not {wanted}")
        return wanted

    if not names_task(source):
        if Path(source).suffix.lower() in (".xml", ".urdf"):
            if agent == "random":
                raise ValueError(f"'{source}' is a robot without a task: it moves without control, not at random")
            return record_robot(source, worlds, frames(ROBOT_DT, ROBOT_STEPS), device)
        if not Path(source).exists():
            raise FileNotFoundError(f"'{source}' is no run folder, robot file or task; tasks are {', '.join(TASKS)}")
        run = RunFolder.open(source)
        policy = load_agent(run, checkpoint) if agent == "policy" else None
        task_name = str(run.settings["task"])
    elif agent == "policy":
        raise ValueError(f"the task '{source}' has no policy: choose the agent zero or random, or name a run folder")
    else:
        policy, task_name = None, source
    env = make_env(task_name, worlds, device, seed)
    if policy is not None:
        act = agent_acts(policy, env, stochastic, seed)
    else:
        act = chance_acts(env, seed + NOISE_STREAM) if agent == "random" else nothing_acts(env)
    return record_env(env, act, frames(env.task.control_dt, env.episode_length))
