"""Ties between joints, which act without a control: fixed tendons with forces of their own, and joint equalities."""

from __future__ import annotations

from dataclasses import dataclass, field

import mujoco
import numpy as np

from trot.sim.model import Floats
from trot.sim.unsupported import disabled, is_fixed_tendon, name_of

LIMIT_STIFFNESS = 1e3
"""N/m or N m/rad of a limit, where a joint or tendon has no user attribute."""
FRICTION_SPEED = 0.1
"""m/s or rad/s from which on dry friction has its full force, likewise."""
COUPLING_RATE = 100.0
"""rad/s at which an equality of joints pulls them together, critically damped, on their inertia at the reference."""


@dataclass(frozen=True)
class AxisConstants:
    """What the user attribute of a joint or tendon may set, in this order."""

    limit_stiffness: float = LIMIT_STIFFNESS
    limit_damping: float = 0.0
    friction_speed: float = FRICTION_SPEED


def axis_constants(owner: str, numbers: Floats) -> tuple[AxisConstants, str | None]:
    """From a user attribute of one to three numbers, and what is wrong with it; all zeros count as not given."""
    if not np.any(numbers):
        return AxisConstants(), None
    given = [float(number) for number in numbers]
    if len(given) > 3 or not np.all(np.isfinite(numbers)) or min(given) < 0 or given[2:] == [0.0]:
        return AxisConstants(), (
            f"{owner} has user={given}. Give up to three finite numbers >= 0: the limit's stiffness, its damping, and "
            "the speed, above 0, from which on dry friction has its full force."
        )
    return AxisConstants(*given), None


@dataclass
class Ties:
    """The tie fields of Model while they are gathered."""

    name: list[str] = field(default_factory=list)
    stiffness: list[float] = field(default_factory=list)
    rest: list[tuple[float, float]] = field(default_factory=list)
    damping: list[float] = field(default_factory=list)
    limits: list[tuple[float, float]] = field(default_factory=list)
    constants: list[AxisConstants] = field(default_factory=list)
    friction: list[float] = field(default_factory=list)
    strand_tie: list[int] = field(default_factory=list)
    strand_joint: list[int] = field(default_factory=list)
    strand_reference: list[float] = field(default_factory=list)
    strand_coefficient: list[tuple[float, ...]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_strand(self, joint: int, reference: float, *coefficients: float) -> None:
        """To the tie that is added next."""
        self.strand_tie.append(len(self.name))
        self.strand_joint.append(joint)
        self.strand_reference.append(reference)
        self.strand_coefficient.append((*coefficients, *[0.0] * (5 - len(coefficients))))


def read_ties(compiled: mujoco.MjModel, tendon_user: dict[int, Floats]) -> Ties:
    """tendon_user holds the user attribute of each tendon as the file gives it."""
    result = Ties()
    for tendon in range(compiled.ntendon):
        if is_fixed_tendon(compiled, tendon):
            _add_tendon(compiled, tendon, tendon_user.get(tendon, np.zeros(0)), result)
    if not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_EQUALITY | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT):
        for equality in range(compiled.neq):
            if compiled.eq_active0[equality] and compiled.eq_type[equality] == mujoco.mjtEq.mjEQ_JOINT:
                _add_equality(compiled, equality, result)
    return result


def friction_is_on(compiled: mujoco.MjModel) -> bool:
    """Whether frictionloss counts at all."""
    return not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)


def _add_tendon(compiled: mujoco.MjModel, tendon: int, user: Floats, result: Ties) -> None:
    """A fixed tendon, if it does anything by itself."""
    springs = not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_SPRING)
    dampers = not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_DAMPER)
    limits = not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_LIMIT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    stiffness = float(compiled.tendon_stiffness[tendon]) * springs
    damping = float(compiled.tendon_damping[tendon]) * dampers
    friction = float(compiled.tendon_frictionloss[tendon]) * friction_is_on(compiled)
    limited = limits and bool(compiled.tendon_limited[tendon])
    if not (stiffness or damping or friction or limited):
        return
    name = name_of(compiled, "tendon", tendon)
    constants, problem = axis_constants(f"tendon '{name}'", user)
    if problem is not None:
        result.problems.append(problem)
    first = compiled.tendon_adr[tendon]
    for wrap in range(first, first + compiled.tendon_num[tendon]):
        result.add_strand(int(compiled.wrap_objid[wrap]), 0.0, 0.0, float(compiled.wrap_prm[wrap]))
    lower, upper = (float(bound) for bound in compiled.tendon_range[tendon])
    shortest, longest = (float(length) for length in compiled.tendon_lengthspring[tendon])
    result.name.append(f"tendon '{name}'")
    result.stiffness.append(stiffness)
    result.rest.append((shortest, longest))
    result.damping.append(damping)
    result.limits.append((lower, upper) if limited else (-np.inf, np.inf))
    result.constants.append(constants)
    result.friction.append(friction)


def _add_equality(compiled: mujoco.MjModel, equality: int, result: Ties) -> None:
    """q1 - ref1 = polynomial(q2 - ref2), or a constant without a second joint, held by a spring and a damper."""
    name = name_of(compiled, "equality", equality)
    follower, leader = int(compiled.eq_obj1id[equality]), int(compiled.eq_obj2id[equality])
    polynomial = [float(number) for number in compiled.eq_data[equality, :5]]
    slopes = np.zeros(compiled.nv)
    slopes[compiled.jnt_dofadr[follower]] = 1
    references = compiled.qpos0[compiled.jnt_qposadr]
    offset = -polynomial[0]
    if leader >= 0:
        slopes[compiled.jnt_dofadr[leader]] -= polynomial[1]
        result.add_strand(leader, float(references[leader]), 0.0, *(-number for number in polynomial[1:]))
    result.add_strand(follower, float(references[follower]), offset, 1.0)
    inertia = _inertia_along(compiled, slopes)
    stiffness, damping = inertia * COUPLING_RATE**2, inertia * 2 * COUPLING_RATE
    # Given directly, as numbers below zero, they are per inertia in MuJoCo, too.
    if np.all(compiled.eq_solref[equality] < 0):
        stiffness, damping = (inertia * -float(number) for number in compiled.eq_solref[equality])
    result.name.append(f"equality '{name}'")
    result.stiffness.append(stiffness)
    result.rest.append((0.0, 0.0))
    result.damping.append(damping)
    result.limits.append((-np.inf, np.inf))
    result.constants.append(AxisConstants())
    result.friction.append(0.0)
    joints = " to ".join(f"'{name_of(compiled, 'joint', joint)}'" for joint in (follower, leader) if joint >= 0)
    result.notes.append(
        f"equality '{name}' holds joint {joints} by a spring of {stiffness:.3g} and a damper of {damping:.3g}, which "
        "give way under load."
    )


def _inertia_along(compiled: mujoco.MjModel, slopes: Floats) -> float:
    """What resists the coupling's pull at the reference pose: 1 / (J M^-1 J^T)."""
    data, matrix = mujoco.MjData(compiled), np.zeros((compiled.nv, compiled.nv))
    mujoco.mj_kinematics(compiled, data)
    mujoco.mj_comPos(compiled, data)
    # With the armature of tendons, where there is any.
    mujoco.mj_tendon(compiled, data)
    mujoco.mj_crb(compiled, data)
    mujoco.mj_fullM(compiled, data, matrix)
    try:
        return 1 / float(slopes @ np.linalg.solve(matrix, slopes))
    except (np.linalg.LinAlgError, ZeroDivisionError):
        return np.nan
