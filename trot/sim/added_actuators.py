"""Actuators that loading adds: a URDF has none of its own, and an MJCF file may have none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import mujoco

from trot.sim.errors import ModelError

Kind = Literal["motor", "position", "velocity"]
Gains = float | Mapping[str, float]
"""One for all joints, or one per joint by its name."""

_ONE_AXIS = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)


@dataclass(frozen=True)
class AddedActuators:
    """One motor or servo per hinge and slide; where the gains are by name, for the joints named only."""

    kind: Kind | None = None
    """None: motors for a URDF, nothing for MJCF."""
    kp: float | tuple[tuple[str, float], ...] | None = None
    kd: float | tuple[tuple[str, float], ...] | None = None

    @classmethod
    def of(cls, actuators: Kind | None, kp: Gains | None, kd: Gains | None) -> AddedActuators:
        """From the arguments of load_model(). Raises ValueError where they do not go together."""
        if actuators is not None and actuators not in get_args(Kind):
            raise ValueError(f"actuators is '{actuators}'; choose among {', '.join(get_args(Kind))}")
        wanted = {"position": ("kp",), "velocity": ("kd",)}.get(actuators or "", ())
        allowed = {"position": ("kp", "kd"), "velocity": ("kd",)}.get(actuators or "", ())
        for name, gains in (("kp", kp), ("kd", kd)):
            if gains is None and name in wanted:
                raise ValueError(f"actuators='{actuators}' needs {name}, one number or one per joint by its name")
            if gains is not None and name not in allowed:
                raise ValueError(f"{name} is given, but actuators={actuators!r} has none")
            _require_sensible(name, gains)
        return cls(actuators, _frozen(kp), _frozen(kd))

    def add_to(self, spec: mujoco.MjSpec, is_urdf: bool) -> None:
        """Before the compiler; each is named like its joint. Efforts of the file bound their forces."""
        if self.kind is None and not is_urdf:
            return
        if list(spec.actuators):
            if self.kind is None:
                return
            raise ModelError(f"actuators='{self.kind}', but the file has actuators of its own. Load it without.")
        joints = list(_joints_to_drive(spec))
        named = self._named()
        strange = sorted(named - {joint.name for joint in joints})
        if strange:
            raise ModelError(f"gains for '{strange[0]}', but no hinge or slide of that name moves by itself.")
        for joint in joints:
            if not named or joint.name in named:
                self._add(spec, joint)

    def _named(self) -> set[str]:
        """The joints that the gains name, all gains the same; empty where one number counts for all."""
        tables = [{name for name, _ in gains} for gains in (self.kp, self.kd) if isinstance(gains, tuple)]
        if len(tables) == 2 and tables[0] != tables[1]:
            raise ModelError(f"only one of kp and kd names the joint '{min(tables[0] ^ tables[1])}'. Give both.")
        return tables[0] if tables else set()

    def _add(self, spec: mujoco.MjSpec, joint: mujoco.MjsJoint) -> None:
        actuator = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        if self.kind in (None, "motor"):
            actuator.set_to_motor()
            return
        kp, kd = (_gain(gains, joint.name) for gains in (self.kp, self.kd))
        actuator.gaintype, actuator.biastype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
        actuator.gainprm[0] = kp if self.kind == "position" else kd
        actuator.biasprm[1], actuator.biasprm[2] = -kp, -kd
        if self.kind == "position" and joint.range[0] < joint.range[1]:
            actuator.inheritrange = 1.0


def _joints_to_drive(spec: mujoco.MjSpec) -> list[mujoco.MjsJoint]:
    """Hinges and slides that do not follow another joint."""
    follow = {
        equality.name1
        for equality in spec.equalities
        if equality.type == mujoco.mjtEq.mjEQ_JOINT and equality.active and equality.name2
    }
    for index, joint in enumerate(spec.joints):
        # An actuator finds its joint by name; this is what unsupported.name_of() calls it.
        joint.name = joint.name or f"joint{index}"
    return [joint for joint in spec.joints if joint.type in _ONE_AXIS and joint.name not in follow]


def _frozen(gains: Gains | None) -> float | tuple[tuple[str, float], ...] | None:
    return tuple(sorted(gains.items())) if isinstance(gains, Mapping) else gains


def _gain(gains: float | tuple[tuple[str, float], ...] | None, joint: str) -> float:
    return dict(gains)[joint] if isinstance(gains, tuple) else gains or 0.0


def _require_sensible(name: str, gains: Gains | None) -> None:
    values = gains.values() if isinstance(gains, Mapping) else [] if gains is None else [gains]
    if isinstance(gains, Mapping) and not gains:
        raise ValueError(f"{name} names no joint")
    for value in values:
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} is {value}; a gain is a finite number of at least 0")
