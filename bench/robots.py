"""The robots that are measured, and the lively states they are measured in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trot.sim.model import JointType, Model
from trot.sim.state import State

ROOT = Path(__file__).resolve().parents[1]

CONTROL_STEPS = 32
"""One window: as many control steps as SHAC learns from at a time."""
CONTROL_DT = 1 / 60

QUATERNION_JOINTS = (JointType.FREE, JointType.BALL)


@dataclass(frozen=True)
class Robot:
    """A robot file, how finely it is stepped, and where it stands on the ground."""

    name: str
    file: Path
    substeps: int
    """Per control step."""
    height_entry: int
    """Entry of joint_q that lifts the robot."""
    height: float
    """Its value where the feet touch the ground in the pose that draw_start begins from."""

    @property
    def window_substeps(self) -> int:
        """Physics substeps of one world in one window."""
        return CONTROL_STEPS * self.substeps


HOPPER = Robot("Hopper", ROOT / "trot/envs/assets/hopper.xml", 16, height_entry=1, height=-0.04)
ANT = Robot("Ant", ROOT / "trot/envs/assets/ant.xml", 16, height_entry=2, height=0.36)
HUMANOID = Robot("Humanoid", ROOT / "trot/envs/assets/humanoid.xml", 48, height_entry=2, height=1.29)
ROBOTS = (HOPPER, ANT, HUMANOID)


def draw_start(robot: Robot, model: Model, worlds: int, device: torch.device, seed: int = 0) -> State:
    """Standing on the ground with noise on every joint, so that contacts, limits and springs all have work to do."""
    random = torch.Generator().manual_seed(seed)
    joint_q = model.default_state(worlds).joint_q
    for kind, start, lower, upper in zip(
        model.joint_type, model.joint_q_start, model.joint_lower, model.joint_upper, strict=True
    ):
        if kind in QUATERNION_JOINTS:
            # A free joint has its position in front of the quaternion.
            quaternion = joint_q[:, start + 3 : start + 7] if kind == JointType.FREE else joint_q[:, start : start + 4]
            quaternion += 0.05 * torch.randn(worlds, 4, generator=random)
            quaternion /= quaternion.norm(dim=1, keepdim=True)
        else:
            joint_q[:, start] = joint_q[:, start].clamp(lower, upper) + 0.1 * _uniform(worlds, 1, random)[:, 0]
    joint_q[:, robot.height_entry] = robot.height + 0.02 * _uniform(worlds, 1, random)[:, 0]
    joint_qd = 0.3 * torch.randn(worlds, model.num_dofs, generator=random)
    return State(joint_q.to(device), joint_qd.to(device))


def draw_controls(model: Model, worlds: int, device: torch.device, seed: int = 1) -> list[Tensor]:
    """Uniform over the range of each actuator, anew for every control step of the window."""
    random = torch.Generator().manual_seed(seed)
    lower, upper = (torch.from_numpy(bound).float() for bound in model.sample_range())
    middle, half = (upper + lower) / 2, (upper - lower) / 2
    return [(middle + half * _uniform(worlds, model.num_controls, random)).to(device) for _ in range(CONTROL_STEPS)]


def _uniform(rows: int, columns: int, random: torch.Generator) -> Tensor:
    """Numbers between -1 and 1."""
    return 2 * torch.rand(rows, columns, generator=random) - 1
