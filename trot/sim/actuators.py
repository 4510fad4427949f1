"""Motors and servos on joints and fixed tendons, muscles along spatial tendons; every other actuator is refused.

Muscles with curves are read by hill_muscles.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import mujoco
import numpy as np

from trot.sim.activations import KINDS, Activations
from trot.sim.errors import ModelError
from trot.sim.hill_muscles import HillMuscles, Muscles, add_hill_muscle, is_hill_muscle
from trot.sim.model import Floats, Ints
from trot.sim.unsupported import control_entry, disabled, is_fixed_tendon, name_of
from trot.sim.weld import Welds

_MUSCLE_LAWS = (mujoco.mjtGain.mjGAIN_MUSCLE, mujoco.mjtBias.mjBIAS_MUSCLE, mujoco.mjtDyn.mjDYN_MUSCLE)
_GAINS = (mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtGain.mjGAIN_AFFINE)
_BIASES = (mujoco.mjtBias.mjBIAS_NONE, mujoco.mjtBias.mjBIAS_AFFINE)
_PLAIN_DYNAMICS = tuple(dynamics for dynamics in KINDS if dynamics != mujoco.mjtDyn.mjDYN_MUSCLE)
_NUM_DOFS = {
    mujoco.mjtJoint.mjJNT_FREE: 6,
    mujoco.mjtJoint.mjJNT_BALL: 3,
    mujoco.mjtJoint.mjJNT_SLIDE: 1,
    mujoco.mjtJoint.mjJNT_HINGE: 1,
}


@dataclass
class Actuators:
    """The actuator fields of Model while they are gathered."""

    num_dofs: int
    name: list[str] = field(default_factory=list)
    control_lower: list[float] = field(default_factory=list)
    control_upper: list[float] = field(default_factory=list)
    motor_actuator: list[int] = field(default_factory=list)
    motor_dof: list[int] = field(default_factory=list)
    motor_gear: list[float] = field(default_factory=list)
    servo_actuator: list[int] = field(default_factory=list)
    servo_act: list[int] = field(default_factory=list)
    servo_gain: list[tuple[float, float, float]] = field(default_factory=list)
    servo_bias: list[tuple[float, float, float]] = field(default_factory=list)
    servo_lower: list[float] = field(default_factory=list)
    servo_upper: list[float] = field(default_factory=list)
    drive_servo: list[int] = field(default_factory=list)
    drive_dof: list[int] = field(default_factory=list)
    drive_gear: list[float] = field(default_factory=list)
    muscle_actuator: list[int] = field(default_factory=list)
    muscle_peak_force: list[float] = field(default_factory=list)
    segment_muscle: list[int] = field(default_factory=list)
    segment_body: list[tuple[int, int]] = field(default_factory=list)
    segment_point: list[tuple[Floats, Floats]] = field(default_factory=list)
    hills: HillMuscles = field(default_factory=HillMuscles)
    acts: Activations = field(default_factory=Activations)
    problems: list[str] = field(default_factory=list)
    """One sentence or two per actuator that cannot be simulated; the other fields are no use then."""

    def __post_init__(self) -> None:
        self.force_lower, self.force_upper = np.full(self.num_dofs, -np.inf), np.full(self.num_dofs, np.inf)


@dataclass(frozen=True)
class _Law:
    """force = (gain . (1, length, velocity)) control + bias . (1, length, velocity), before the gear."""

    gain: tuple[float, float, float]
    """The first is negative for a muscle."""
    bias: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def feels_motion(self) -> bool:
        return any((*self.gain[1:], *self.bias[1:]))

    @property
    def is_motor(self) -> bool:
        return not self.feels_motion and self.bias[0] == 0


def read_actuators(compiled: mujoco.MjModel, welds: Welds, muscles: Muscles = "hill") -> Actuators:
    """Every actuator in the file's order, one control each."""
    result = Actuators(compiled.nv)
    for actuator in range(len(compiled.actuator_trntype)):
        result.name.append(name_of(compiled, "actuator", actuator))
        try:
            _read_actuator(compiled, welds, actuator, muscles, result)
        except ModelError as error:
            result.problems.append(str(error))
    if not result.problems:
        _limit_joints(compiled, result)
    return result


def _read_actuator(compiled: mujoco.MjModel, welds: Welds, actuator: int, muscles: Muscles, result: Actuators) -> None:
    _refuse_attributes(compiled, actuator)
    if muscles == "hill" and is_hill_muscle(compiled, actuator):
        lower, upper = add_hill_muscle(compiled, welds, actuator, result.hills, result.acts)
        _require_some(lower, upper, result.name[-1])
        result.control_lower.append(lower)
        result.control_upper.append(upper)
        return
    law = _read_law(compiled, actuator)
    target, transmission = int(compiled.actuator_trnid[actuator, 0]), compiled.actuator_trntype[actuator]
    gear = compiled.actuator_gear[control_entry(compiled, "out", actuator)]
    in_parent = transmission == mujoco.mjtTrn.mjTRN_JOINTINPARENT
    # On a hinge or a slide the two are the same.
    if transmission == mujoco.mjtTrn.mjTRN_JOINT or (in_parent and _has_one_dof(compiled, target)):
        _add_driven(compiled, actuator, law, _gears_of_joint(compiled, law, target, gear, result.name[-1]), result)
    elif transmission == mujoco.mjtTrn.mjTRN_TENDON and is_fixed_tendon(compiled, target):
        _add_driven(compiled, actuator, law, _gears_of_tendon(compiled, target, float(gear[0])), result)
    elif transmission == mujoco.mjtTrn.mjTRN_TENDON:
        _add_muscle(compiled, welds, actuator, law, result)
    else:
        kind = mujoco.mjtTrn(transmission).name.removeprefix("mjTRN_").lower()
        raise ModelError(
            f"actuator '{result.name[-1]}' acts through {kind}; only joint and tendon are simulated. "
            "Attach it to a joint."
        )


def _has_one_dof(compiled: mujoco.MjModel, joint: int) -> bool:
    return _NUM_DOFS[mujoco.mjtJoint(compiled.jnt_type[joint])] == 1


def _refuse_attributes(compiled: mujoco.MjModel, actuator: int) -> None:
    """Refuse what no actuator may have."""
    name = name_of(compiled, "actuator", actuator)
    group = int(compiled.actuator_group[actuator])
    # Only groups that have a bit can be disabled.
    if group >= 0 and compiled.opt.disableactuator & (1 << group):
        raise ModelError(f"actuator '{name}' is in a disabled group. Remove actuatorgroupdisable or the actuator.")
    for attribute in ("damping", "dampingpoly", "armature", "delay"):
        values = getattr(compiled, f"actuator_{attribute}", np.zeros(len(compiled.actuator_trntype)))
        if np.any(values[actuator] != 0):
            raise ModelError(f"actuator '{name}' has {attribute}, which is not simulated there. Set it on the joint.")


def _read_law(compiled: mujoco.MjModel, actuator: int) -> _Law:
    """How force follows from control, length and velocity. Refuses every law that is none of ours."""
    name = name_of(compiled, "actuator", actuator)
    kinds = (compiled.actuator_gaintype, compiled.actuator_biastype, compiled.actuator_dyntype)
    gain, bias, dynamics = (int(kind[actuator]) for kind in kinds)
    if (gain, bias, dynamics) == _MUSCLE_LAWS:
        return _Law((-_muscle_force(compiled, actuator), 0.0, 0.0))
    if gain in _GAINS and bias in _BIASES and dynamics in (mujoco.mjtDyn.mjDYN_NONE, *_PLAIN_DYNAMICS):
        gains, biases = compiled.actuator_gainprm[actuator], compiled.actuator_biasprm[actuator]
        affine = (gain == mujoco.mjtGain.mjGAIN_AFFINE, bias == mujoco.mjtBias.mjBIAS_AFFINE)
        return _Law(
            (float(gains[0]), *((float(gains[1]), float(gains[2])) if affine[0] else (0.0, 0.0))),
            (float(biases[0]), float(biases[1]), float(biases[2])) if affine[1] else (0.0, 0.0, 0.0),
        )
    words = (
        enum(law).name.split("_")[1].lower()
        for enum, law in zip((mujoco.mjtGain, mujoco.mjtBias, mujoco.mjtDyn), (gain, bias, dynamics), strict=True)
    )
    raise ModelError(
        f"actuator '{name}' is neither motor, servo nor muscle (gaintype {next(words)}, biastype {next(words)}, "
        f"dyntype {next(words)}). Use <motor>, <position> or <velocity>."
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


_Gears = list[tuple[int, float]]
"""Dofs that an actuator drives, and the generalised force on each per unit of its own."""


def _gears_of_joint(compiled: mujoco.MjModel, law: _Law, joint: int, gear: Floats, actuator: str) -> _Gears:
    num_dofs, first = _NUM_DOFS[mujoco.mjtJoint(compiled.jnt_type[joint])], int(compiled.jnt_dofadr[joint])
    if num_dofs > 1 and law.feels_motion:
        raise ModelError(
            f"actuator '{actuator}' is a servo on joint '{name_of(compiled, 'joint', joint)}', which is free or a "
            "ball. Use <motor> there, or hinges."
        )
    return [(first + axis, float(gear[axis])) for axis in range(num_dofs)]


def _gears_of_tendon(compiled: mujoco.MjModel, tendon: int, gear: float) -> _Gears:
    first = compiled.tendon_adr[tendon]
    wraps = range(first, first + compiled.tendon_num[tendon])
    dofs = [int(compiled.jnt_dofadr[compiled.wrap_objid[wrap]]) for wrap in wraps]
    return [(dof, gear * float(compiled.wrap_prm[wrap])) for dof, wrap in zip(dofs, wraps, strict=True)]


def _add_driven(compiled: mujoco.MjModel, actuator: int, law: _Law, gears: _Gears, result: Actuators) -> None:
    """A motor or a servo."""
    forces = _force_ranges(compiled, actuator)
    lower, upper = _control_range(compiled, actuator)
    act = result.acts.add(compiled, actuator)
    if law.is_motor and act < 0:
        for force_range in forces:
            lower, upper = _narrow(lower, upper, force_range, law.gain[0])
        _require_some(lower, upper, result.name[-1])
        for dof, gear in gears:
            if law.gain[0] * gear != 0:
                result.motor_actuator.append(actuator)
                result.motor_dof.append(dof)
                result.motor_gear.append(law.gain[0] * gear)
    else:
        _add_servo(actuator, act, law, gears, forces, result)
    result.control_lower.append(lower)
    result.control_upper.append(upper)


def _add_servo(actuator: int, act: int, law: _Law, gears: _Gears, forces: list[Floats], result: Actuators) -> None:
    least, most = -np.inf, np.inf
    for force_range in forces:
        least, most = _narrow(least, most, force_range, 1.0)
    _require_some(least, most, result.name[-1])
    for dof, gear in gears:
        if gear != 0:
            result.drive_servo.append(len(result.servo_actuator))
            result.drive_dof.append(dof)
            result.drive_gear.append(gear)
    result.servo_actuator.append(actuator)
    result.servo_act.append(act)
    result.servo_gain.append(law.gain)
    result.servo_bias.append(law.bias)
    result.servo_lower.append(least)
    result.servo_upper.append(most)


def _add_muscle(compiled: mujoco.MjModel, welds: Welds, actuator: int, law: _Law, result: Actuators) -> None:
    name, tendon = result.name[-1], int(compiled.actuator_trnid[actuator, 0])
    tendon_name = name_of(compiled, "tendon", tendon)
    if compiled.actuator_dyntype[actuator] in _PLAIN_DYNAMICS:
        raise ModelError(
            f"actuator '{name}' on the spatial tendon '{tendon_name}' has an activation of its own. Use <muscle> there."
        )
    if not law.is_motor:
        raise ModelError(
            f"actuator '{name}' is a servo on the spatial tendon '{tendon_name}', which only a muscle can pull. "
            "Attach it to a joint or to a fixed tendon."
        )
    force = -law.gain[0] * float(compiled.actuator_gear[control_entry(compiled, "out", actuator), 0])
    if force <= 0:
        raise ModelError(
            f"actuator '{name}' pushes along tendon '{tendon_name}', but a muscle only pulls. "
            "Make the product of gain and gear negative, as a pull is in MuJoCo."
        )
    lower, upper = _control_range(compiled, actuator)
    for force_range in _force_ranges(compiled, actuator):
        lower, upper = _narrow(lower, upper, force_range, law.gain[0])
    # An activation is a share of the peak force, unless the file says how far beyond it may go.
    if np.isinf(upper) or compiled.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_MUSCLE:
        upper = min(upper, 1.0)
    lower = max(lower, 0.0)
    _require_some(lower, upper, name)
    result.control_lower.append(lower)
    result.control_upper.append(upper)

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
        if kind != mujoco.mjtWrap.mjWRAP_SITE:
            kind_name = mujoco.mjtWrap(kind).name.removeprefix("mjWRAP_").lower()
            raise ModelError(f"tendon '{name}' wraps a {kind_name}; only straight lines through sites. Use more sites.")
    sites: Ints = compiled.wrap_objid[first : first + count]
    return sites


def _control_range(compiled: mujoco.MjModel, actuator: int) -> tuple[float, float]:
    """The actuator's own ctrlrange."""
    control = control_entry(compiled, "ctrl", actuator)
    if disabled(compiled, mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL) or not compiled.actuator_ctrllimited[control]:
        return -np.inf, np.inf
    lower, upper = (float(bound) for bound in compiled.actuator_ctrlrange[control])
    return lower, upper


def _force_ranges(compiled: mujoco.MjModel, actuator: int) -> list[Floats]:
    """What bounds the actuator's own force, before its gear."""
    ranges: list[Floats] = []
    if compiled.actuator_forcelimited[actuator]:
        ranges.append(compiled.actuator_forcerange[actuator])
    tendon = int(compiled.actuator_trnid[actuator, 0])
    on_tendon = compiled.actuator_trntype == mujoco.mjtTrn.mjTRN_TENDON
    if on_tendon[actuator] and compiled.tendon_actfrclimited[tendon]:
        # MuJoCo scales the forces of several down together; of one, the range is simply its own.
        if np.sum(on_tendon & (compiled.actuator_trnid[:, 0] == tendon)) > 1:
            name = name_of(compiled, "tendon", tendon)
            raise ModelError(
                f"tendon '{name}' has actuatorfrcrange but more than one actuator. Use forcerange on the actuators "
                "instead."
            )
        ranges.append(compiled.tendon_actfrcrange[tendon])
    return ranges


def _narrow(lower: float, upper: float, force_range: Floats, force_per_control: float) -> tuple[float, float]:
    """Intersect a control range with the controls whose force lies in force_range."""
    if force_per_control == 0:
        return lower, upper
    bounds = sorted(float(force) / force_per_control for force in force_range)
    return max(lower, bounds[0]), min(upper, bounds[1])


def _require_some(lower: float, upper: float, actuator: str) -> None:
    if lower > upper:
        raise ModelError(f"actuator '{actuator}' has no admissible control. Widen ctrlrange or forcerange.")


def _limit_joints(compiled: mujoco.MjModel, result: Actuators) -> None:
    """A joint's actuatorfrcrange: a range of its only actuator where it has one, else of the sum on its dof."""
    for joint in map(int, np.flatnonzero(compiled.jnt_actfrclimited)):
        dof, force_range = int(compiled.jnt_dofadr[joint]), compiled.jnt_actfrcrange[joint]
        if result.muscle_actuator or result.hills.actuator:
            result.problems.append(
                f"joint '{name_of(compiled, 'joint', joint)}' has actuatorfrcrange, and the robot has muscles. Use "
                "forcerange on the actuators instead."
            )
            continue
        motors = [k for k, driven in enumerate(result.motor_dof) if driven == dof]
        drives = [k for k, driven in enumerate(result.drive_dof) if driven == dof]
        alone = len(motors) + len(drives) == 1
        if alone and motors and result.motor_actuator.count(result.motor_actuator[motors[0]]) == 1:
            _narrow_list(
                result.control_lower, result.control_upper, result.motor_actuator[motors[0]],
                force_range, result.motor_gear[motors[0]], result,
            )  # fmt: skip
        elif alone and drives and result.drive_servo.count(result.drive_servo[drives[0]]) == 1:
            servo = result.drive_servo[drives[0]]
            _narrow_list(
                result.servo_lower, result.servo_upper, servo, force_range, result.drive_gear[drives[0]], result
            )
        elif motors or drives:
            result.force_lower[dof], result.force_upper[dof] = force_range


def _narrow_list(
    lower: list[float], upper: list[float], index: int, force_range: Floats, gear: float, result: Actuators
) -> None:
    lower[index], upper[index] = _narrow(lower[index], upper[index], force_range, gear)
    actuator = result.servo_actuator[index] if lower is result.servo_lower else index
    try:
        _require_some(lower[index], upper[index], result.name[actuator])
    except ModelError as error:
        result.problems.append(str(error))
