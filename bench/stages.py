"""Inside the kernels: cycles of each stage, and the memory that the backward pass is kept in."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from bench.robots import CONTROL_DT, Robot
from bench.window import Window
from trot.sim.build import HEADERS, Variant
from trot.sim.launch import Launcher, launcher_for
from trot.sim.model import Model
from trot.sim.step import Pass, Physics
from trot.sim.threads import set_num_threads

PROFILE_WORLDS = 64


def stage_names() -> list[str]:
    """The stages in the order the kernels count them, from the enum in clock.h."""
    text = (HEADERS / "clock.h").read_text(encoding="utf-8")
    found = re.search(r"enum Stage \{([^}]*)\}", text)
    if found is None:
        raise ValueError("kernels/clock.h has no `enum Stage { ... }`")
    *names, last = re.findall(r"[A-Z_]+", found.group(1))
    if last != "NUM_STAGES":
        raise ValueError(f"the last name in `enum Stage` of kernels/clock.h is {last}, not NUM_STAGES")
    return names


def kernels_in_use(
    model: Model, substeps: int, device: torch.device, worlds: int = PROFILE_WORLDS, profile: bool = False
) -> Launcher:
    """The kernels that step() runs on this device for so many worlds."""
    return launcher_for(model, Variant(torch.float32, profile=profile), device, worlds, substeps)


@dataclass(frozen=True)
class StageCycles:
    """Cycles per substep that one block of worlds spends in each stage; stages that do not run are left out."""

    robot: str
    place: str
    worlds_per_block: int
    forward: dict[str, float]
    backward: dict[str, float]


def measure_stages(window: Window, repeats: int) -> StageCycles:
    """Run a window through the profiling kernels, one thread on the CPU: of each stage the median of the repetitions.

    Whatever else the machine does meanwhile is counted to the stage that it interrupts.
    """
    set_num_threads(1)
    start, substeps = window.start, window.robot.substeps
    return stages_of(
        window, kernels_in_use(window.model, substeps, start.joint_q.device, start.num_worlds, profile=True), repeats
    )


def stages_of(window: Window, run: Launcher, repeats: int) -> StageCycles:
    """The same through these kernels, which were built to count."""
    physics = Physics(run, CONTROL_DT, window.robot.substeps)
    # The first repetition fills the caches and is not counted.
    counted = [_run_profiled(window, physics) for _ in range(repeats + 1)][1:]
    forward, backward = (torch.stack(cycles).double().median(dim=0).values for cycles in zip(*counted, strict=True))
    substeps = window.robot.window_substeps
    return StageCycles(
        window.robot.name, run.device.type.upper(), run.kernels.sizes.worlds_per_block,
        _per_substep(forward, substeps), _per_substep(backward, substeps),
    )  # fmt: skip


def _run_profiled(window: Window, physics: Physics) -> tuple[torch.Tensor, torch.Tensor]:
    """Cycles of each stage, forward and backward, of all substeps together."""
    run = physics.run
    joint_q, joint_qd = window.start.joint_q, window.start.joint_qd
    passes: list[Pass] = []
    run.cycles.zero_()
    for control in window.controls:
        passes.append(Pass(physics, joint_q, joint_qd, control, None))
        joint_q, joint_qd, _ = passes[-1].forward(keep=True)
    forward = run.cycles.clone()
    run.cycles.zero_()
    q_bar, qd_bar = torch.ones_like(joint_q), torch.ones_like(joint_qd)
    for ran in reversed(passes):
        q_bar, qd_bar, *_ = ran.backward(q_bar, qd_bar, tangent=False)
    return forward, run.cycles.clone()


def _per_substep(cycles: torch.Tensor, substeps: int) -> dict[str, float]:
    return {name: count / substeps for name, count in zip(stage_names(), cycles.tolist(), strict=True) if count > 0}


@dataclass(frozen=True)
class KeptMemory:
    """What the forward pass keeps for the backward pass."""

    robot: str
    place: str
    beside_state: str
    """Of what the backward pass would have to compute again."""
    numbers_per_substep: int
    bytes_per_control_step: int
    """Of one world."""


def kept_memory(robot: Robot, model: Model, device: torch.device, worlds: int = PROFILE_WORLDS) -> KeptMemory:
    """Bytes per world, read off the compiled kernels."""
    run = kernels_in_use(model, robot.substeps, device, worlds)
    kept = [
        name for name, stored in (("factor", run.variant.store_factor), ("motion", run.variant.store_motion)) if stored
    ]
    size = run.kept_bytes(robot.substeps)
    return KeptMemory(robot.name, device.type.upper(), " and ".join(kept) or "nothing", run.kernels.sizes.record, size)
