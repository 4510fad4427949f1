"""What the same work costs MuJoCo on this machine: mj_step on one core."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import mujoco
import torch

from bench.robots import CONTROL_DT, Robot, draw_controls, draw_start
from trot.sim.model import Model


@dataclass(frozen=True)
class MujocoRate:
    """Steps per second of mj_step on one core."""

    robot: str
    steps_per_second: float


def measure_mujoco(robot: Robot, model: Model, seconds: float = 1.0) -> MujocoRate:
    """The robot's file, our substep, our starts and controls, one world after the other; the median window's rate."""
    compiled = mujoco.MjModel.from_xml_path(str(robot.file))
    compiled.opt.timestep = CONTROL_DT / robot.substeps
    compiled.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    data = mujoco.MjData(compiled)
    worlds, cpu = 64, torch.device("cpu")
    start = draw_start(robot, model, worlds, cpu)
    controls = torch.stack(draw_controls(model, worlds, cpu)).double().numpy()
    joint_q, joint_qd = start.joint_q.double().numpy(), start.joint_qd.double().numpy()

    rates: list[float] = []
    begin = time.perf_counter()
    while not rates or time.perf_counter() - begin < seconds:
        world = len(rates) % worlds
        mujoco.mj_resetData(compiled, data)
        data.qpos[:], data.qvel[:] = joint_q[world], joint_qd[world]
        window_begin = time.perf_counter()
        for control in controls[:, world]:
            data.ctrl[:] = control
            # All substeps in one call: Python is not what we compare with.
            mujoco.mj_step(compiled, data, robot.substeps)
        rates.append(robot.window_substeps / (time.perf_counter() - window_begin))
    return MujocoRate(robot.name, statistics.median(rates))
