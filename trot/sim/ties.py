"""Ties between joints, which act without a control: fixed tendons with forces of their own, and equalities.

Equalities are those of joints and of fixed tendons; bonds.py reads those of bodies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import mujoco
import numpy as np

from trot.sim.axis_constants import AxisConstants, UserNumbers, axis_constants, friction_is_on
from trot.sim.model import Floats
from trot.sim.notes import Findings
from trot.sim.reference_pose import ReferencePose
from trot.sim.unsupported import disabled, is_fixed_tendon, name_of

COUPLING_RATE = 100.0
"""rad/s at which an equality of joints pulls them together, critically damped, on their inertia at the reference."""


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

    def add_strand(self, joint: int, reference: float, *coefficients: float) -> None:
        """To the tie that is added next."""
        self.strand_tie.append(len(self.name))
        self.strand_joint.append(joint)
        self.strand_reference.append(reference)
        self.strand_coefficient.append((*coefficients, *[0.0] * (5 - len(coefficients))))


def read_ties(compiled: mujoco.MjModel, tendon_user: UserNumbers, found: Findings) -> Ties:
    """What couples joints, in the order of the file: tendons, then equalities."""
    result = Ties()
    for tendon in range(compiled.ntendon):
        if is_fixed_tendon(compiled, tendon):
            _add_tendon(compiled, tendon, tendon_user, result, found)
    if not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_EQUALITY | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT):
        for equality in range(compiled.neq):
            if compiled.eq_active0[equality] and compiled.eq_type[equality] == mujoco.mjtEq.mjEQ_JOINT:
                _add_equality(compiled, equality, result, found)
            elif compiled.eq_active0[equality] and compiled.eq_type[equality] == mujoco.mjtEq.mjEQ_TENDON:
                _add_tendon_equality(compiled, equality, result, found)
    return result


def _add_tendon(compiled: mujoco.MjModel, tendon: int, user: UserNumbers, result: Ties, found: Findings) -> None:
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
    result.constants += axis_constants(compiled, "tendon", [tendon], user, found)
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
    result.friction.append(friction)


def _add_equality(compiled: mujoco.MjModel, equality: int, result: Ties, found: Findings) -> None:
    """q1 - ref1 = polynomial(q2 - ref2), or a constant without a second joint, held by a spring and a damper."""
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
    joints = " to ".join(f"'{name_of(compiled, 'joint', joint)}'" for joint in (follower, leader) if joint >= 0)
    _add_coupling(compiled, equality, slopes, f"joint {joints}", result, found)


def _add_tendon_equality(compiled: mujoco.MjModel, equality: int, result: Ties, found: Findings) -> None:
    """length1 - length1_0 = c0 + c1 (length2 - length2_0) of fixed tendons, whose lengths are sums over joints."""
    follower, leader = int(compiled.eq_obj1id[equality]), int(compiled.eq_obj2id[equality])
    polynomial = [float(number) for number in compiled.eq_data[equality, :5]]
    tendons = [tendon for tendon in (follower, leader) if tendon >= 0]
    names = " to ".join(f"'{name_of(compiled, 'tendon', tendon)}'" for tendon in tendons)
    spatial = not all(is_fixed_tendon(compiled, tendon) for tendon in tendons)
    if spatial or (leader >= 0 and any(polynomial[2:])):
        why = "spatial tendons" if spatial else "a polynomial beyond its first power"
        name = name_of(compiled, "equality", equality)
        found.problems.append(
            f"equality '{name}' holds tendon {names} and has {why}, which is not simulated. Use fixed tendons and a "
            "straight line, or load with leave_out=('equality',)."
        )
        return
    slopes = np.zeros(compiled.nv)
    offset, references = -polynomial[0], compiled.qpos0[compiled.jnt_qposadr]
    for tendon, share in ((follower, 1.0), (leader, -polynomial[1])):
        first = compiled.tendon_adr[tendon]
        # The other tendon is not there, or the line is level.
        wraps = range(first, first + compiled.tendon_num[tendon]) if tendon >= 0 and share else range(0)
        for wrap in wraps:
            joint, coefficient = int(compiled.wrap_objid[wrap]), share * float(compiled.wrap_prm[wrap])
            slopes[compiled.jnt_dofadr[joint]] += coefficient
            result.add_strand(joint, float(references[joint]), offset, coefficient)
            offset = 0.0
    _add_coupling(compiled, equality, slopes, f"tendon {names}", result, found)


def _add_coupling(
    compiled: mujoco.MjModel, equality: int, slopes: Floats, held: str, result: Ties, found: Findings
) -> None:
    """The spring and damper of an equality whose strands have been added."""
    name = name_of(compiled, "equality", equality)
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
    found.notes.append(
        f"equality '{name}' holds {held} by a spring of {stiffness:.3g} and a damper of {damping:.3g}, which "
        "give way under load."
    )


def _inertia_along(compiled: mujoco.MjModel, slopes: Floats) -> float:
    """What resists the coupling's pull at the reference pose: 1 / (J M^-1 J^T)."""
    mobility = float(ReferencePose(compiled).mobility(slopes[None])[0, 0])
    return 1 / mobility if mobility else np.nan
