"""Activations: states of actuators, which follow a control in time and act in its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np

from trot.sim.errors import ModelError
from trot.sim.model import ActKind
from trot.sim.unsupported import name_of

KINDS = {
    int(mujoco.mjtDyn.mjDYN_MUSCLE): ActKind.MUSCLE,
    int(mujoco.mjtDyn.mjDYN_FILTER): ActKind.FILTER,
    int(mujoco.mjtDyn.mjDYN_FILTEREXACT): ActKind.EXACT_FILTER,
    int(mujoco.mjtDyn.mjDYN_INTEGRATOR): ActKind.INTEGRATOR,
}
"""By MuJoCo's dyntype."""


@dataclass
class Activations:
    """The fields of Model for them while they are gathered."""

    actuator: list[int] = field(default_factory=list)
    kind: list[ActKind] = field(default_factory=list)
    time: list[tuple[float, float, float]] = field(default_factory=list)
    range: list[tuple[float, float]] = field(default_factory=list)

    def add(self, compiled: mujoco.MjModel, actuator: int) -> int:
        """That of an actuator, if it has one; -1 where the control acts itself."""
        dynamics = int(compiled.actuator_dyntype[actuator])
        if dynamics == mujoco.mjtDyn.mjDYN_NONE:
            return -1
        name, kind = name_of(compiled, "actuator", actuator), KINDS[dynamics]
        if compiled.actuator_actearly[actuator]:
            raise ModelError(f"actuator '{name}' has actearly, which is not simulated. Remove it.")
        if compiled.actuator_actnum[actuator] != 1:
            raise ModelError(f"actuator '{name}' has several activations, which is not simulated. Remove actdim.")
        limited = compiled.actuator_actlimited[actuator]
        lower, upper = compiled.actuator_actrange[actuator] if limited else (-np.inf, np.inf)
        self.actuator.append(actuator)
        self.kind.append(kind)
        self.time.append(_times(compiled, actuator, kind))
        self.range.append((float(lower), float(upper)))
        return len(self.actuator) - 1


def _times(compiled: mujoco.MjModel, actuator: int, kind: ActKind) -> tuple[float, float, float]:
    if kind == ActKind.INTEGRATOR:
        return 0.0, 0.0, 0.0
    rise, fall, smooth = (float(number) for number in compiled.actuator_dynprm[actuator, :3])
    if kind != ActKind.MUSCLE:
        fall, smooth = rise, 0.0
    if rise <= 0 or fall <= 0:
        name = name_of(compiled, "actuator", actuator)
        raise ModelError(f"actuator '{name}' has time constants {rise:g} and {fall:g}. Give numbers above 0, in s.")
    return rise, fall, smooth


def act_fields(acts: Activations) -> dict[str, Any]:
    """By the names that Model has for them."""
    return {
        "act_actuator": np.array(acts.actuator, np.int32),
        "act_kind": np.array(acts.kind, np.int32),
        "act_time": np.array(acts.time, float).reshape(-1, 3),
        "act_range": np.array(acts.range, float).reshape(-1, 2),
    }
