"""A task in MuJoCo: the same starts, observations, rewards and ends of episodes, moved by MuJoCo with its own contact.

Whether a policy holds there tells whether it relies on how trot simulates. There are no gradients.
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
from trot.envs.task import Task
from trot.envs.worlds import Worlds
from trot.sim.guard import is_sound
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

    def __init__(self, task: Task[Any], num_worlds: int, seed: int = 0, longest_step: float = LONGEST_STEP) -> None:
        super().__init__(task, num_worlds, "cpu", seed)
        if not 0 < longest_step <= task.control_dt:
            raise ValueError(f"longest_step must be above 0 and at most a control step, not {longest_step}")
        self.steps_per_control = int(np.ceil(task.control_dt / longest_step - 1e-9))
        self._mujoco = copy.copy(task.model.source)
        self._mujoco.opt.timestep = task.control_dt / self.steps_per_control
        self._data = [mujoco.MjData(self._mujoco) for _ in range(num_worlds)]

    def _simulate(self, before: Worlds, control: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        given = [part.double().numpy() for part in (before.joint_q, before.joint_qd, control)]
        after = [np.empty_like(part) for part in given[:2]]

        def share(first: int, stride: int) -> Callable[[], None]:
            def run() -> None:
                for world in range(first, self.num_worlds, stride):
                    self._move(world, *(part[world] for part in given), *(part[world] for part in after))

            return run

        threads = min(get_num_threads(), self.num_worlds)
        run_together([share(first, threads) for first in range(threads)])
        joint_q, joint_qd = (torch.from_numpy(part).to(self.dtype) for part in after)
        sound = is_sound(joint_q, joint_qd)
        assert self._physics.guard is not None
        return *self._physics.guard.replace(sound, joint_q, joint_qd), sound

    def _move(
        self, world: int, q: Doubles, qd: Doubles, control: Doubles, next_q: Doubles, next_qd: Doubles
    ) -> None:  # fmt: skip
        data = self._data[world]
        # A new episode owes nothing to how the last one ended.
        if not np.allclose(data.qpos, q, rtol=0, atol=NEAR):
            mujoco.mj_resetData(self._mujoco, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, qd, control
        mujoco.mj_step(self._mujoco, data, self.steps_per_control)
        next_q[:], next_qd[:] = data.qpos, data.qvel
        # Where MuJoCo blows up it begins anew, and counts that.
        if any(data.warning[kind].number for kind in BLOWN_UP):
            next_q[:] = np.nan
            mujoco.mj_resetData(self._mujoco, data)
