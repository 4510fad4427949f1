"""What a user may ask of load_model() besides the file itself."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_args

from trot.sim.added_actuators import AddedActuators, Gains, Kind
from trot.sim.hill_muscles import Muscles

CAN_BE_LEFT_OUT = ("equality", "fluid", "gravcomp", "meshes", "plugins", "tendons")
"""What a file asks for in vain, and a user may accept to lose."""

MESH_POINTS = 16
"""Contact points of a mesh, at most."""

CONTACT = (2e4, 1e3, 1e3)
"""Stiffness, N/m, damping, N s/m^2, and friction stiffness, N s/m, of a shape whose geom gives none."""

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class LoadOptions:
    """How a robot file is read; docs/robots.md explains each."""

    floating_base: bool = False
    """Give the first body a free joint."""
    ground: bool = False
    """Add the plane z = 0 where the file has none."""
    added_actuators: AddedActuators = field(default_factory=AddedActuators)
    """Motors or servos for joints that the file drives by nothing."""
    self_collision: bool = False
    """Let moving bodies touch each other where the file's masks do."""
    keyframe: str | None = None
    """The <key> whose pose and velocities default_state() has."""
    repair_inertia: bool = False
    """Change masses and inertias that no body can have."""
    package_path: tuple[str, ...] = ()
    """Folders that package:// names and mesh files are looked for in."""
    leave_out: tuple[str, ...] = ()
    """Of CAN_BE_LEFT_OUT."""
    mesh_points: int = MESH_POINTS
    muscles: Muscles = "hill"
    """What a <muscle> becomes: MuJoCo's own law, or a constant tension times its control."""
    contact: tuple[float, ...] = CONTACT
    """Stiffness, damping and friction stiffness of shapes whose geoms give none."""
    armature: float = 0.0
    """Rotor inertia of hinges and slides that have none, kg m^2 or kg."""

    def __post_init__(self) -> None:
        if len(self.contact) != 3 or not all(0 <= number < math.inf for number in self.contact):
            raise ValueError(
                f"contact must be three finite numbers of 0 or more, a stiffness, a damping and a friction stiffness, "
                f"not {self.contact}"
            )
        if self.muscles not in get_args(Muscles):
            raise ValueError(f"muscles must be one of {', '.join(get_args(Muscles))}, not {self.muscles!r}")
        if not 0 <= self.armature < math.inf:
            raise ValueError(f"armature must be a finite number of 0 or more, not {self.armature}")
        unknown = [name for name in self.leave_out if name not in CAN_BE_LEFT_OUT]
        if unknown:
            raise ValueError(f"leave_out: there is no '{unknown[0]}', only {', '.join(CAN_BE_LEFT_OUT)}")
        if not isinstance(self.mesh_points, int) or isinstance(self.mesh_points, bool) or self.mesh_points < 1:
            raise ValueError(f"mesh_points must be a whole number of at least 1, not {self.mesh_points!r}")


def make_options(
    package_path: AnyPath | Iterable[AnyPath] = (),
    leave_out: str | Iterable[str] = (),
    *,
    actuators: Kind | None = None,
    kp: Gains | None = None,
    kd: Gains | None = None,
    contact: Iterable[float] = CONTACT,
    **others: Any,
) -> LoadOptions:
    """From what load_model() is given: one name or path stands for a list of one."""
    paths = [package_path] if isinstance(package_path, (str, os.PathLike)) else package_path
    names = [leave_out] if isinstance(leave_out, str) else leave_out
    return LoadOptions(
        package_path=tuple(os.fspath(path) for path in paths),
        leave_out=tuple(names),
        added_actuators=AddedActuators.of(actuators, kp, kd),
        contact=tuple(contact),
        **others,
    )
