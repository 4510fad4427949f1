"""Motors on joints and muscles of constant tension along spatial tendons; every other actuator is refused by name.

Muscles with curves are read by hill_muscles.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import mujoco
import numpy as np

from trot.sim.errors import ModelError
from trot.sim.hill_muscles import HillMuscles, Muscles, add_hill_muscle, is_hill_muscle
from trot.sim.model import Floats, Ints
from trot.sim.unsupported import disabled, name_of
from trot.sim.weld import Welds

_MUSCLE_LAWS = (mujoco.mjtGain.mjGAIN_MUSCLE, mujoco.mjtBias.mjBIAS_MUSCLE, mujoco.mjtDyn.mjDYN_MUSCLE)
_MOTOR_LAWS = (mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_NONE, mujoco.mjtDyn.mjDYN_NONE)
_NUM_DOFS = {
    mujoco.mjtJoint.mjJNT_FREE: 6,
    mujoco.mjtJoint.mjJNT_BALL: 3,
    mujoco.mjtJoint.mjJNT_SLIDE: 1,
    mujoco.mjtJoint.mjJNT_HINGE: 1,
}


@dataclass
class Actuators:
    """The actuator fields of Model while they are gathered."""

    name: list[str] = field(default_factory=list)
    control_lower: list[float] = field(default_factory=list)
    control_upper: list[float] = field(default_factory=list)
    motor_actuator: list[int] = field(default_factory=list)
    motor_dof: list[int] = field(default_factory=list)
    motor_gear: list[float] = field(default_factory=list)
    muscle_actuator: list[int] = field(default_factory=list)
    muscle_peak_force: list[float] = field(default_factory=list)
    segment_muscle: list[int] = field(default_factory=list)
    segment_body: list[tuple[int, int]] = field(default_factory=list)
    segment_point: list[tuple[Floats, Floats]] = field(default_factory=list)
    hills: HillMuscles = field(default_factory=HillMuscles)


def read_actuators(compiled: mujoco.MjModel, welds: Welds, muscles: Muscles = "hill") -> Actuators:
    """Every actuator in the file's order, one control each."""
    result = Actuators()
    for actuator in range(len(compiled.actuator_trntype)):
        _refuse_attributes(compiled, actuator)
        if muscles == "hill" and is_hill_muscle(compiled, actuator):
            result.name.append(name_of(compiled, "actuator", actuator))
            _add_control(*add_hill_muscle(compiled, welds, actuator, result.hills), result)
            continue
        gain = _read_gain(compiled, actuator)
        result.name.append(name_of(compiled, "actuator", actuator))
        transmission = compiled.actuator_trntype[actuator]
        if transmission == mujoco.mjtTrn.mjTRN_JOINT:
            _add_motor(compiled, actuator, gain, result)
        elif transmission == mujoco.mjtTrn.mjTRN_TENDON:
            _add_muscle(compiled, welds, actuator, gain, result)
        else:
            kind = mujoco.mjtTrn(transmission).name.removeprefix("mjTRN_").lower()
            raise ModelError(
                f"actuator '{result.name[-1]}' acts through {kind}; only joint and spatial tendon are simulated. "
                "Attach it to a joint."
            )
    _refuse_clamped_joints(compiled, result)
    return result


def _refuse_attributes(compiled: mujoco.MjModel, actuator: int) -> None:
    """Refuse what no actuator may have."""
    name = name_of(compiled, "actuator", actuator)
    if compiled.opt.disableactuator & (1 << int(compiled.actuator_group[actuator])):
        raise ModelError(f"actuator '{name}' is in a disabled group. Remove actuatorgroupdisable or the actuator.")
    for attribute in ("damping", "dampingpoly", "armature", "delay"):
        values = getattr(compiled, f"actuator_{attribute}", np.zeros(compiled.nu))
        if np.any(values[actuator] != 0):
            raise ModelError(f"actuator '{name}' has {attribute}, which is not simulated there. Set it on the joint.")


def _read_gain(compiled: mujoco.MjModel, actuator: int) -> float:
    """Force per unit of control before the gear, N or N m; negative for a muscle. Refuses every other law."""
    name = name_of(compiled, "actuator", actuator)
    kinds = (compiled.actuator_gaintype, compiled.actuator_biastype, compiled.actuator_dyntype)
    laws = tuple(int(kind[actuator]) for kind in kinds)
    if laws == _MOTOR_LAWS:
        return float(compiled.actuator_gainprm[actuator, 0])
    if laws == _MUSCLE_LAWS:
        return -_muscle_force(compiled, actuator)
    gain, bias, dynamics = (
        enum(law).name.split("_")[1].lower()
        for enum, law in zip((mujoco.mjtGain, mujoco.mjtBias, mujoco.mjtDyn), laws, strict=True)
    )
    raise ModelError(
        f"actuator '{name}' is neither motor nor muscle (gaintype {gain}, biastype {bias}, dyntype {dynamics}). "
        "Use <motor> and compute servo forces in the policy or task."
    )


def _muscle_force(compiled: mujoco.MjModel, actuator: int) -> float:
    """Peak force of a <muscle>; its length and velocity curves and its activation dynamics are not simulated."""
    name = name_of(compiled, "actuator", actuator)
    if compiled.actuator_trntype[actuator] != mujoco.mjtTrn.mjTRN_TENDON:
        raise ModelError(f"muscle '{name}' does not act on a tendon. Give it a spatial tendon, or use <motor>.")
    force = float(compiled.actuator_gainprm[actuator, 2])
    if force <= 0:
        raise ModelError(f"muscle '{name}' has no peak force. Give force=\"...\" in N.")
    return force


def _add_motor(compiled: mujoco.MjModel, actuator: int, gain: float, result: Actuators) -> None:
    joint = int(compiled.actuator_trnid[actuator, 0])
    lower, upper = _control_range(compiled, actuator, gain)
    gear = gain * compiled.actuator_gear[actuator]
    if compiled.jnt_actfrclimited[joint]:
        lower, upper = _narrow(lower, upper, compiled.jnt_actfrcrange[joint], float(gear[0]))
    _add_control(lower, upper, result)
    for axis in range(_NUM_DOFS[mujoco.mjtJoint(compiled.jnt_type[joint])]):
        if gear[axis] != 0:
            result.motor_actuator.append(actuator)
            result.motor_dof.append(int(compiled.jnt_dofadr[joint]) + axis)
            result.motor_gear.append(float(gear[axis]))


def _add_muscle(compiled: mujoco.MjModel, welds: Welds, actuator: int, gain: float, result: Actuators) -> None:
    name, tendon = result.name[-1], int(compiled.actuator_trnid[actuator, 0])
    tendon_name = name_of(compiled, "tendon", tendon)
    force = -gain * float(compiled.actuator_gear[actuator, 0])
    if force <= 0:
        raise ModelError(
            f"actuator '{name}' pushes along tendon '{tendon_name}', but a muscle only pulls. "
            "Make the product of gain and gear negative, as a pull is in MuJoCo."
        )
    if compiled.tendon_actfrclimited[tendon]:
        raise ModelError(f"tendon '{tendon_name}' has actuatorfrcrange. Use the actuator's forcerange instead.")
    lower, upper = _control_range(compiled, actuator, gain)
    # An activation is a share of the peak force, unless the file says how far beyond it may go.
    if np.isinf(upper) or compiled.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_MUSCLE:
        upper = min(upper, 1.0)
    _add_control(max(lower, 0.0), upper, result)

    muscle = len(result.muscle_actuator)
    result.muscle_actuator.append(actuator)
    result.muscle_peak_force.append(force)
    sites = _waypoints(compiled, tendon)
    bodies = compiled.site_bodyid[sites]
    points = [welds.place_point(body, compiled.site_pos[site]) for site, body in zip(sites, bodies, strict=True)]
    owners: Ints = welds.owner[bodies]
    # The length between two waypoints of one body never changes, so the muscle does nothing there.
    for start in range(len(sites) - 1):
        if owners[start] != owners[start + 1]:
            result.segment_muscle.append(muscle)
            result.segment_body.append((int(owners[start]), int(owners[start + 1])))
            result.segment_point.append((points[start], points[start + 1]))


def _waypoints(compiled: mujoco.MjModel, tendon: int) -> Ints:
    """The sites that a tendon runs through in straight lines."""
    first, count = compiled.tendon_adr[tendon], compiled.tendon_num[tendon]
    name = name_of(compiled, "tendon", tendon)
    for kind in compiled.wrap_type[first : first + count]:
        if kind == mujoco.mjtWrap.mjWRAP_JOINT:
            raise ModelError(f"tendon '{name}' is fixed, which is not simulated. Put motors on its joints.")
        if kind != mujoco.mjtWrap.mjWRAP_SITE:
            kind_name = mujoco.mjtWrap(kind).name.removeprefix("mjWRAP_").lower()
            raise ModelError(f"tendon '{name}' wraps a {kind_name}; only straight lines through sites. Use more sites.")
    sites: Ints = compiled.wrap_objid[first : first + count]
    return sites


def _control_range(compiled: mujoco.MjModel, actuator: int, gain: float) -> tuple[float, float]:
    """The controls that satisfy the actuator's own ctrlrange and forcerange."""
    lower, upper = -np.inf, np.inf
    clamps = not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL)
    if clamps and compiled.actuator_ctrllimited[actuator]:
        lower, upper = (float(bound) for bound in compiled.actuator_ctrlrange[actuator])
    if compiled.actuator_forcelimited[actuator]:
        lower, upper = _narrow(lower, upper, compiled.actuator_forcerange[actuator], gain)
    return lower, upper


def _narrow(lower: float, upper: float, force_range: Floats, force_per_control: float) -> tuple[float, float]:
    """Intersect a control range with the controls whose force lies in force_range."""
    if force_per_control == 0:
        return lower, upper
    bounds = sorted(float(force) / force_per_control for force in force_range)
    return max(lower, bounds[0]), min(upper, bounds[1])


def _add_control(lower: float, upper: float, result: Actuators) -> None:
    if lower > upper:
        raise ModelError(f"actuator '{result.name[-1]}' has no admissible control. Widen ctrlrange or forcerange.")
    result.control_lower.append(lower)
    result.control_upper.append(upper)


def _refuse_clamped_joints(compiled: mujoco.MjModel, result: Actuators) -> None:
    """Refuse actuatorfrcrange where it clamps a sum of forces, which no control range can express."""
    motors = np.bincount(result.motor_dof, minlength=compiled.nv)
    for joint in map(int, np.flatnonzero(compiled.jnt_actfrclimited)):
        if motors[compiled.jnt_dofadr[joint]] > 1 or result.muscle_actuator or result.hills.actuator:
            raise ModelError(
                f"joint '{name_of(compiled, 'joint', joint)}' has actuatorfrcrange but more than one motor, or the "
                "robot has muscles. Use forcerange on the actuators instead."
            )
