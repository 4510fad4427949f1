"""A task in MuJoCo: the same starts, observations, rewards and ends of episodes, moved by MuJoCo with its own contact.

Whether a policy holds there tells whether it relies on how trot simulates. There are no gradients. Pushes, noise and
delay can be had there too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trot.envs.env import Env
from trot.envs.randomize import Randomize
from trot.envs.task import Task
from trot.envs.worlds import Worlds
from trot.sim.guard import Guarded
from trot.sim.threads import get_num_threads, run_together

LONGEST_STEP = 0.002
"""Of MuJoCo's, s; contacts of most robots are right at this, and not at much more."""

NEAR = 1e-3
"""Coordinates that differ by less go on from where MuJoCo left them: single precision rounds by far less."""

BLOWN_UP = (
    mujoco.mjtWarning.mjWARN_BADQPOS,
    mujoco.mjtWarning.mjWARN_BADQVEL,
    mujoco.mjtWarning.mjWARN_BADQACC,
    mujoco.mjtWarning.mjWARN_BADCTRL,
)

Doubles = NDArray[np.float64]


class MujocoEnv(Env):
    """An environment on the CPU whose worlds are MuJoCo's, one each, shared by threads."""

    def __init__(
        self,
        task: Task[Any],
        num_worlds: int,
        seed: int = 0,
        longest_step: float = LONGEST_STEP,
        randomize: Randomize | None = None,
    ) -> None:
        if randomize is not None and randomize.changes_physics:
            raise ValueError(
                "MuJoCo's worlds have the robot's own masses, friction and strength: give randomize without these, as "
                "randomize.with_own_physics() is"
            )
        super().__init__(task, num_worlds, "cpu", seed, randomize=randomize)
        if not 0 < longest_step <= task.control_dt:
            raise ValueError(f"longest_step must be above 0 and at most a control step, not {longest_step}")
        self.steps_per_control = int(np.ceil(task.control_dt / longest_step - 1e-9))
        self._mujoco = copy.copy(task.model.source)
        self._mujoco.opt.timestep = task.control_dt / self.steps_per_control
        self._data = [mujoco.MjData(self._mujoco) for _ in range(num_worlds)]

    def _simulate(self, before: Worlds, control: Tensor, action: Tensor) -> Guarded:
        given = [part.double().numpy() for part in (before.joint_q, before.joint_qd, before.activation, control)]
        after = [np.empty_like(part) for part in given[:3]]

        def share(first: int, stride: int) -> Callable[[], None]:
            def run() -> None:
                for world in range(first, self.num_worlds, stride):
                    self._move(self._data[world], *(part[world] for part in given))
                    for part, row in zip(after, self._now(self._data[world]), strict=True):
                        part[world] = row

            return run

        threads = min(get_num_threads(), self.num_worlds)
        run_together([share(first, threads) for first in range(threads)])
        joint_q, joint_qd, activation = (torch.from_numpy(part).to(self.dtype) for part in after)
        assert self._physics.guard is not None
        return self._physics.guard.take(joint_q, joint_qd, activation, action)

    def _move(self, data: mujoco.MjData, q: Doubles, qd: Doubles, activation: Doubles, control: Doubles) -> None:
        self._begin(data, q, qd, activation, control)
        mujoco.mj_step(self._mujoco, data, self.steps_per_control)

    def _begin(self, data: mujoco.MjData, q: Doubles, qd: Doubles, activation: Doubles, control: Doubles) -> None:
        # A new episode owes nothing to how the last one ended.
        if not np.allclose(data.qpos, q, rtol=0, atol=NEAR):
            mujoco.mj_resetData(self._mujoco, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, qd, control
        if len(activation):
            data.act[:] = activation

    def _now(self, data: mujoco.MjData) -> tuple[Doubles, Doubles, Doubles]:
        """Where a world is; NaN where MuJoCo blew up, which it counts before it begins anew."""
        q, qd, activation = (np.array(part) for part in (data.qpos, data.qvel, data.act))
        if any(data.warning[kind].number for kind in BLOWN_UP):
            q[:] = np.nan
            mujoco.mj_resetData(self._mujoco, data)
        return q, qd, activation
