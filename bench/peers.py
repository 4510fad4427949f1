"""What the same work costs elsewhere: MuJoCo's mj_step on one core, and a program that prints as the prototype does."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import mujoco
import torch

from bench.places import Place
from bench.robots import CONTROL_DT, Robot, draw_controls, draw_start
from bench.window import Timing, Window, measure
from trot.sim.model import Model

PROTOTYPE_WORLDS = 64


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


@dataclass(frozen=True)
class PrototypeTiming:
    """Ours and the prototype's milliseconds for one window, measured in turn: without gradient, forward, backward."""

    robot: str
    place: str
    ours: tuple[float, float, float]
    factor_stored: tuple[float, float, float]
    factor_rebuilt: tuple[float, float, float]

    @property
    def best(self) -> tuple[float, float, float]:
        """The prototype's quicker way, forward and backward together."""
        return min(self.factor_stored, self.factor_rebuilt, key=lambda times: times[1] + times[2])

    @property
    def ratios(self) -> tuple[float, float, float]:
        """Ours over the prototype's best."""
        forward, kept, backward = (ours / theirs for ours, theirs in zip(self.ours, self.best, strict=True))
        return forward, kept, backward


def parse_prototype(output: str) -> tuple[float, float, float]:
    """Milliseconds without gradient, forward keeping the trajectory, and backward, from what the prototype prints."""
    found = re.search(r"\bfwd\s+([\d.]+)\s+fwd\+save\s+([\d.]+)\s+bwd\s+([\d.]+)\s+ms", output)
    if found is None:
        raise ValueError(f"no 'fwd ... fwd+save ... bwd ... ms' in what the prototype printed:\n{output[-2000:]}")
    forward, kept, backward = (float(group) for group in found.groups())
    return forward, kept, backward


def measure_prototype(
    script: Path, robot: Robot, model: Model, place: Place, repeats: int, rounds: int = 3
) -> PrototypeTiming:
    """Ours and the prototype in turn, so that a machine that slows down for a while slows both."""
    window = Window.draw(robot, model, PROTOTYPE_WORLDS, place.device)
    ours: list[Timing] = []
    stored: list[tuple[float, ...]] = []
    rebuilt: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(rounds):
            ours.append(measure(window, place, repeats))
            stored.append(_run_prototype(script, robot, place, repeats, cache, []))
            rebuilt.append(_run_prototype(script, robot, place, repeats, cache, ["--no-storel"]))
    return PrototypeTiming(
        robot.name, place.name,
        ours=_medians([(timing.forward_ms, timing.kept_ms, timing.backward_ms) for timing in ours]),
        factor_stored=_medians(stored),
        factor_rebuilt=_medians(rebuilt),
    )  # fmt: skip


def _run_prototype(
    script: Path, robot: Robot, place: Place, repeats: int, cache: str, options: list[str]
) -> tuple[float, float, float]:
    command = [
        sys.executable, str(script), "--variant", "N", "--model", robot.name.lower(), "--envs", str(PROTOTYPE_WORLDS),
        "--device", place.device.type, "--reps", str(repeats), "--cache", cache, *options,
        *(["--graph"] if place.graph else []),
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{script.name} ended with exit code {result.returncode}:\n{result.stderr[-2000:]}")
    return parse_prototype(result.stdout)


def _medians(rows: list[tuple[float, ...]]) -> tuple[float, float, float]:
    forward, kept, backward = (statistics.median(column) for column in zip(*rows, strict=True))
    return forward, kept, backward
