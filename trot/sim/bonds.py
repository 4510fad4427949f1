"""Bonds between bodies, from <connect> and <weld>: springs and dampers between two anchors, and between two frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np

from trot.sim.model import WORLD, Floats
from trot.sim.notes import Findings, listed, verb
from trot.sim.reference_pose import ReferencePose
from trot.sim.unsupported import disabled, name_of
from trot.sim.weld import Welds, compose, rotation

NOTED_GAP = 1e-3
"""m or rad. A bond whose ends are farther apart at the reference pose than this is told of."""

_DEFAULT_SOLREF = (0.02, 1.0)
_KINDS = {int(mujoco.mjtEq.mjEQ_CONNECT): "connect", int(mujoco.mjtEq.mjEQ_WELD): "weld"}


@dataclass
class Bonds:
    """The bond fields of Model while they are gathered."""

    name: list[str] = field(default_factory=list)
    body: list[tuple[int, int]] = field(default_factory=list)
    point: list[tuple[Floats, Floats]] = field(default_factory=list)
    quat: list[tuple[Floats, Floats]] = field(default_factory=list)
    stiffness: list[float] = field(default_factory=list)
    damping: list[float] = field(default_factory=list)
    turn_stiffness: list[float] = field(default_factory=list)
    turn_damping: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _End:
    """One of the two frames that a bond holds together, in the frame of MuJoCo's body."""

    body: int
    pos: Floats
    quat: Floats


def read_bonds(compiled: mujoco.MjModel, welds: Welds, found: Findings) -> Bonds:
    """Every active <connect> and <weld>."""
    result = Bonds()
    found.notes += _tell_inactive(compiled)
    found.notes += _tell_mocap(compiled)
    if disabled(compiled, mujoco.mjtDisableBit.mjDSBL_EQUALITY | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT):
        return result
    active = [k for k in range(compiled.neq) if compiled.eq_active0[k] and int(compiled.eq_type[k]) in _KINDS]
    reference = ReferencePose(compiled) if active else None
    for equality in active:
        assert reference is not None
        _add_bond(compiled, welds, equality, reference, result, found)
    return result


def _tell_inactive(compiled: mujoco.MjModel) -> Iterator[str]:
    names = [name_of(compiled, "equality", k) for k in range(compiled.neq) if not compiled.eq_active0[k]]
    if names:
        yield f"{listed('equality', names)} {verb(names, 'is', 'are')} not active in the file and left out."


def _tell_mocap(compiled: mujoco.MjModel) -> Iterator[str]:
    names = [name_of(compiled, "body", body) for body in range(compiled.nbody) if compiled.body_mocapid[body] >= 0]
    if names:
        them = verb(names, "it", "them")
        yield f"{listed('mocap body', names)} {verb(names, 'stays', 'stay')} where the file puts {them}."


def _ends(compiled: mujoco.MjModel, welds: Welds, equality: int) -> tuple[_End, _End]:
    """What an equality holds together: two sites, or two points and frames of bodies."""
    fixed = welds.owner == WORLD
    first, second = int(compiled.eq_obj1id[equality]), int(compiled.eq_obj2id[equality])
    numbers = np.array(compiled.eq_data[equality])
    upright = np.array([1.0, 0.0, 0.0, 0.0])
    if compiled.eq_objtype[equality] == mujoco.mjtObj.mjOBJ_SITE:
        one, other = (
            _End(int(compiled.site_bodyid[site]), np.array(compiled.site_pos[site]), np.array(compiled.site_quat[site]))
            for site in (first, second)
        )
        return one, other
    if compiled.eq_type[equality] == mujoco.mjtEq.mjEQ_CONNECT:
        return _End(first, numbers[:3], upright), _End(second, numbers[3:6], upright)
    # The compiler stores the second body's pose as the first one sees it.
    turn = numbers[6:10] / np.linalg.norm(numbers[6:10])
    if fixed[second] and not fixed[first] and not numbers[:3].any():
        # MuJoCo's anchor is then the origin of what is fixed, perhaps far away. A spring is better off at the body.
        return _End(first, np.zeros(3), turn), _End(second, -rotation(turn).T @ numbers[3:6], upright)
    return _End(first, numbers[3:6], turn), _End(second, numbers[:3], upright)


def _add_bond(
    compiled: mujoco.MjModel, welds: Welds, equality: int, reference: ReferencePose, result: Bonds, found: Findings
) -> None:
    kind, ends = _KINDS[int(compiled.eq_type[equality])], _ends(compiled, welds, equality)
    label = f"equality '{name_of(compiled, 'equality', equality)}' ({kind})"
    bodies = " and ".join(f"'{name_of(compiled, 'body', end.body)}'" for end in ends)
    owners = [int(welds.owner[end.body]) for end in ends]
    if owners[0] == owners[1]:
        where = "are both fixed to the world" if owners[0] == WORLD else "are parts of one body"
        found.notes.append(f"{label} does nothing: bodies {bodies} {where}.")
        return
    poses = [welds.place(end.body, end.pos, end.quat) for end in ends]
    moves, turns = _least_inertias(compiled, ends, reference)
    turns *= float(compiled.eq_data[equality, 10]) if kind == "weld" else 0.0
    per_length, per_speed = _rates(compiled, equality)
    result.name.append(label)
    result.body.append((owners[0], owners[1]))
    result.point.append((poses[0][0], poses[1][0]))
    result.quat.append((poses[0][1], poses[1][1]))
    result.stiffness.append(moves * per_length)
    result.damping.append(moves * per_speed)
    result.turn_stiffness.append(turns * per_length)
    result.turn_damping.append(turns * per_speed)
    springs = f"a spring of {result.stiffness[-1]:.3g} N/m and a damper of {result.damping[-1]:.3g} N s/m"
    if turns:
        springs += f", {result.turn_stiffness[-1]:.3g} N m/rad and {result.turn_damping[-1]:.3g} N m s/rad"
    found.notes.append(f"{label} holds bodies {bodies} by {springs}, which give way under load.")
    found.notes += _tell_gap(label, ends, reference.data, kind == "weld")


def _least_inertias(compiled: mujoco.MjModel, ends: tuple[_End, _End], reference: ReferencePose) -> tuple[float, float]:
    """The least mass, and the least moment of inertia, that the two ends have against each other in any direction."""
    jacobians = []
    for end in ends:
        moving, turning = np.zeros((3, compiled.nv)), np.zeros((3, compiled.nv))
        point, _ = _in_world(reference.data, end)
        mujoco.mj_jac(compiled, reference.data, moving, turning, point, end.body)
        jacobians.append((moving, turning))
    least = []
    for first, second in zip(*jacobians, strict=True):
        mobility = reference.mobility(first - second)
        if not np.isfinite(mobility).all():
            least.append(np.nan)
            continue
        largest = float(np.linalg.eigvalsh(mobility)[-1])
        # What cannot move needs no spring.
        least.append(1 / largest if largest > mujoco.mjMINVAL else 0.0)
    return least[0], least[1]


def _rates(compiled: mujoco.MjModel, equality: int) -> tuple[float, float]:
    """Stiffness and damping per inertia: those of MuJoCo's reference acceleration."""
    first, second = (float(number) for number in compiled.eq_solref[equality])
    if first <= 0 and second <= 0:
        return -first, -second
    if first <= 0 or second <= 0:
        first, second = _DEFAULT_SOLREF
    if not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_REFSAFE):
        first = max(first, 2 * float(compiled.opt.timestep))
    return 1 / (first * second) ** 2, 2 / first


def _in_world(data: mujoco.MjData, end: _End) -> tuple[Floats, Floats]:
    return compose(data.xpos[end.body], data.xquat[end.body], end.pos, end.quat)


def _tell_gap(label: str, ends: tuple[_End, _End], data: mujoco.MjData, turns: bool) -> Iterator[str]:
    """Ends that are apart from the start, whose springs then pull from the start."""
    (first, first_quat), (second, second_quat) = (_in_world(data, end) for end in ends)
    gap = float(np.linalg.norm(first - second))
    angle = 0.0
    if turns:
        cosine = (np.trace(rotation(first_quat) @ rotation(second_quat).T) - 1) / 2
        angle = float(np.arccos(np.clip(cosine, -1, 1)))
    if gap > NOTED_GAP or angle > NOTED_GAP:
        yield f"{label} begins {gap:.3g} m and {angle:.3g} rad apart: its springs pull from the start."


def bond_fields(bonds: Bonds) -> dict[str, Any]:
    """By the names that Model has for them."""
    return {
        "bond_name": tuple(bonds.name),
        "bond_body": np.array(bonds.body, np.int32).reshape(-1, 2),
        "bond_point": np.array(bonds.point, float).reshape(-1, 2, 3),
        "bond_quat": np.array(bonds.quat, float).reshape(-1, 2, 4),
        "bond_stiffness": np.array(bonds.stiffness, float),
        "bond_damping": np.array(bonds.damping, float),
        "bond_turn_stiffness": np.array(bonds.turn_stiffness, float),
        "bond_turn_damping": np.array(bonds.turn_damping, float),
    }
