"""MuJoCo on the processor: one world after the other on one core, and its own threaded rollout."""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np
from mujoco import rollout

from bench.peer import Case, Numbers, Peer, all_cores


class Mujoco(Peer):
    """mj_step on one core."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.model = case.compiled()
        self.data = mujoco.MjData(self.model)
        self.ends = np.zeros((case.worlds, self.model.nq))

    def settings(self) -> str:
        return f"{solver_settings(self.model)}, float64, one thread"

    def forward(self) -> None:
        for world, end in enumerate(self.ends):
            for _ in control_steps(self.case, self.model, self.data, world):
                pass
            end[:] = self.data.qpos

    def positions(self) -> Numbers:
        return self.ends


class MujocoRollout(Peer):
    """mujoco.rollout on all cores."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.model = case.compiled()
        self.data = [mujoco.MjData(self.model) for _ in range(all_cores())]
        self.pool = rollout.Rollout(nthread=len(self.data))
        # A whole physics state is the time, positions and velocities, and activations, which these robots lack.
        self.start = np.concatenate([np.zeros((case.worlds, 1)), case.joint_q, case.joint_qd], axis=1)
        self.controls = np.repeat(case.controls, case.substeps, axis=0).swapaxes(0, 1).copy()
        self.states = np.zeros((case.worlds, 0, 0))

    def settings(self) -> str:
        return f"{solver_settings(self.model)}, float64, {len(self.data)} threads"

    def forward(self) -> None:
        self.states, _ = self.pool.rollout(self.model, self.data, self.start, self.controls)

    def positions(self) -> Numbers:
        last: Numbers = self.states[:, -1, 1 : 1 + self.model.nq]
        return last


def control_steps(case: Case, model: mujoco.MjModel, data: mujoco.MjData, world: int) -> Iterator[None]:
    """Take a world through the window, and stop after each control step."""
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = case.joint_q[world], case.joint_qd[world]
    for control in case.controls[:, world]:
        data.ctrl[:] = control
        # All substeps in one call: Python is not what we compare with.
        mujoco.mj_step(model, data, case.substeps)
        yield


def solver_settings(model: mujoco.MjModel) -> str:
    """What the file asks for."""
    solver = mujoco.mjtSolver(model.opt.solver).name.removeprefix("mjSOL_").capitalize()
    return f"Euler, {solver}, at most {model.opt.iterations} iterations"
