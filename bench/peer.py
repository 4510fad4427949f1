"""What every simulator beside trot is given, and what it is asked for; bench/peer_list.py has their names.

Their modules need NumPy, MuJoCo and the simulator alone, so that one may run in an interpreter without trot.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A window of one robot: where every world starts and what drives it, in MuJoCo's layout."""

    robot: str
    robot_file: str
    substeps: int
    """Of a control step."""
    control_dt: float
    device: str
    """cpu or cuda."""
    double: bool
    """In float64, for a simulator that has it beside float32."""
    height_entry: int
    """Entry of joint_q that lifts the robot."""
    joint_q: Numbers
    joint_qd: Numbers
    controls: Numbers
    """(control step, world, actuator)."""

    def save(self, path: Path) -> None:
        """As an npz file."""
        arrays: dict[str, Any] = {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}
        np.savez(path, **arrays)

    @classmethod
    def load(cls, path: Path) -> Case:
        with np.load(path) as kept:
            return cls(**{name: kept[name] if kept[name].ndim else kept[name].item() for name in kept.files})

    @property
    def worlds(self) -> int:
        return len(self.joint_q)

    @property
    def substep_dt(self) -> float:
        return self.control_dt / self.substeps

    def compiled(self) -> Any:
        """MuJoCo's model of the file with this step; Euler with implicit damping, as its files have by default."""
        model = mujoco.MjModel.from_xml_path(self.robot_file)
        model.opt.timestep = self.substep_dt
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
        return model


class Peer(ABC):
    """A simulator with a case loaded. Its loss is the sum of the last positions of all worlds."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @abstractmethod
    def settings(self) -> str:
        """What it was set to, in a few words."""

    @abstractmethod
    def forward(self) -> None:
        """One window without gradient."""

    @abstractmethod
    def positions(self) -> Numbers:
        """(world, n) after the last forward()."""

    def heights(self) -> Numbers:
        """(world) of the root, as joint_q counts it."""
        return self.positions()[:, self.case.height_entry]

    def synchronize(self) -> None:  # noqa: B027 - most have nothing to wait for
        """Wait for the device."""

    def gradient(self) -> None:
        """One window forward and backward: the loss by every control."""
        raise NotImplementedError

    def control_gradient(self) -> Numbers:
        """(control step, world, actuator) of the last gradient()."""
        raise NotImplementedError

    def set_controls(self, controls: Numbers) -> None:
        """Others for the next forward()."""
        raise NotImplementedError


def all_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def version(package: str) -> str:
    """As pip knows it; empty for a package that it does not know."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
