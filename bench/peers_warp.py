"""MuJoCo Warp: MuJoCo's physics in Warp's kernels, forward alone."""

from __future__ import annotations

from typing import Any

import mujoco
import mujoco_warp
import numpy as np
import warp as wp

from bench.peer import Case, Numbers, Peer
from bench.peers_mujoco import control_steps, solver_settings

LOOKED_AT = 32
"""Worlds that tell how much room contacts need."""
MARGIN = 1.5


class MujocoWarp(Peer):
    """A control step is captured in one graph, on the CPU too, and replayed."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        wp.config.log_level = wp.LOG_ERROR
        model = case.compiled()
        self.solver = solver_settings(model)
        self.contacts, self.rows = contact_room(case)
        with wp.ScopedDevice(case.device):
            self.model = mujoco_warp.put_model(model)
            self.data = mujoco_warp.put_data(
                model, mujoco.MjData(model), nworld=case.worlds, nconmax=self.contacts, njmax=self.rows
            )
            self.start: list[Any] = [wp.array(values, dtype=float) for values in (case.joint_q, case.joint_qd)]
            self.cold = wp.zeros_like(self.data.qacc_warmstart)
            self.controls: list[Any] = [wp.array(control, dtype=float) for control in case.controls]
            # Once before, so that nothing is built while the graph is captured.
            mujoco_warp.step(self.model, self.data)
            with wp.ScopedCapture() as capture:
                for _ in range(case.substeps):
                    mujoco_warp.step(self.model, self.data)
            self.graph: Any = capture.graph

    def settings(self) -> str:
        room = f"room for {self.contacts} contacts and {self.rows} rows"
        return f"{self.solver}, float32, graph of a control step, {room}"

    def synchronize(self) -> None:
        wp.synchronize_device(self.case.device)

    def forward(self) -> None:
        data = self.data
        with wp.ScopedDevice(self.case.device):
            for mine, given in zip((data.qpos, data.qvel, data.qacc_warmstart), (*self.start, self.cold), strict=True):
                wp.copy(mine, given)
            for control in self.controls:
                wp.copy(data.ctrl, control)
                wp.capture_launch(self.graph)

    def positions(self) -> Numbers:
        return np.asarray(self.data.qpos.numpy(), float)


def contact_room(case: Case) -> tuple[int, int]:
    """Contacts and constraint rows of a world: what MuJoCo needs for these starts and controls, and a margin."""
    model = case.compiled()
    data = mujoco.MjData(model)
    contacts = rows = 0
    for world in range(min(case.worlds, LOOKED_AT)):
        for _ in control_steps(case, model, data, world):
            contacts, rows = max(contacts, data.ncon), max(rows, data.nefc)
    # MuJoCo Warp counts pairs that are merely near each other too: every geom with the ground.
    return max(int(MARGIN * contacts) + 4, model.ngeom + 2), int(MARGIN * rows) + 8
