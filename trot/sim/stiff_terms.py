"""What holds a robot stiffly: every spring and damper of it, with the direction in which it pushes at the default pose.

A spring of stiffness k along J, and a damper c, add k J^T J and c J^T J to what resists a motion of the dofs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import mujoco
import numpy as np

from trot.sim.model import WORLD, Floats, Model, PairKind
from trot.sim.pose import Pose
from trot.sim.unsupported import control_entry

TOGETHER = 0.005
"""m. Points of a body touch together that lie within this of the deepest one."""
WEIGHTS_ON_A_POINT = 3.0
"""How many times the robot's weight a point bears in a hard landing; contact damping grows with its depth."""
LIMIT_DEPTH = 0.1
"""rad or m beyond a limit, which damping of limits grows with."""
DRY_FRICTION_SLOPE = 1.5
"""Of the law in kernels/axis_laws.h at rest, times friction / speed."""

FRICTION = "friction of "
"""How the names of terms begin whose force is bounded by Coulomb's law."""
CONTACT = "contact of "
"""How the names of terms begin that push along the normal of a touch."""
DRY_FRICTION = "dry friction of "
"""How the names of terms begin that are a joint's frictionloss."""

_DIRECTIONS = np.array([d for d in product((-1.0, 0.0, 1.0), repeat=3) if any(d)])
_DIRECTIONS /= np.linalg.norm(_DIRECTIONS, axis=1, keepdims=True)


@dataclass(frozen=True)
class Term:
    """Springs or dampers of one kind that belong to one element of the file."""

    name: str
    """As in "friction of geom 'foot'"."""
    jacobian: Floats
    """(rows, num_dofs) each a direction in which it pushes, per unit of joint_qd."""
    stiffness: Floats
    """(rows,)"""
    damping: Floats
    """(rows,)"""
    one_sided: bool = False
    """Whether it begins to push where something meets it, as a contact or a limit does."""


def lasting_terms(model: Model, pose: Pose) -> Iterator[Term]:
    """What acts whether or not anything touches: springs, dampers, limits, servos, ties, bonds and muscles."""
    unit = np.eye(model.num_dofs)
    joint_of = np.repeat(np.arange(model.num_joints), np.diff([*model.joint_dof_start, model.num_dofs]))
    limited = np.isfinite(model.joint_lower) | np.isfinite(model.joint_upper)
    for dof, name in enumerate(model.dof_name):
        joint = joint_of[dof]
        slope = DRY_FRICTION_SLOPE * model.dof_friction[dof] / model.joint_friction_speed[joint]
        limit = model.joint_limit_stiffness[joint] * limited[joint]
        limit_damping = model.joint_limit_damping[joint] * limited[joint] * LIMIT_DEPTH
        yield _term(f"damping of joint '{name}'", unit[dof], 0.0, model.dof_damping[dof])
        yield _term(f"spring of joint '{name}'", unit[dof], model.joint_stiffness[joint], 0.0)
        yield _term(f"{DRY_FRICTION}joint '{name}'", unit[dof], 0.0, slope)
        yield _term(f"limit of joint '{name}'", unit[dof], limit, limit_damping, one_sided=True)
    yield from _servo_terms(model)
    yield from _tie_terms(model)
    yield from _bond_terms(model, pose)
    yield from _muscle_terms(model, pose)


def contact_terms(model: Model, pose: Pose) -> Iterator[list[Term]]:
    """Every way in which a body may touch: its points that lie deepest along some direction, together.

    The ground may meet a body from any side, at any pose; the pose that is looked at is the default one.
    """
    weight = float(model.body_mass.sum() * np.linalg.norm(model.gravity))
    ground = _ground_feelers(model) if model.ground_height is not None else []
    for body in sorted({feeler.body for feeler in ground}):
        yield from _touching(pose, [feeler for feeler in ground if feeler.body == body], weight)
    if ground:
        # What it stands on, of all bodies at once.
        yield list(
            _pushed(pose, _deepest(pose, ground, np.array([0.0, 0.0, -1.0])), np.array([0.0, 0.0, -1.0]), weight)
        )
    for pair in range(model.num_pairs):
        yield from _touching(pose, list(_pair_feelers(model, pair)), weight)


@dataclass(frozen=True)
class _Feeler:
    """A ball on a body that may be pushed, and what pushes it."""

    name: str
    body: int
    position: Floats
    radius: float
    other_body: int
    other_position: Floats
    stiffness: float
    damping: float
    """Per depth."""
    friction_slope: float


def _ground_feelers(model: Model) -> list[_Feeler]:
    return [
        _Feeler(
            f"geom '{_geom_name(model, shape)}'", int(model.shape_body[shape]), position, float(radius), WORLD,
            np.zeros(3), float(model.shape_stiffness[shape]), float(model.shape_damping[shape]),
            float(model.shape_friction_stiffness[shape]) * (model.shape_friction[shape] > 0),
        )
        for shape, position, radius in zip(model.point_shape, model.point_pos, model.point_radius, strict=True)
    ]  # fmt: skip


def _geom_name(model: Model, shape: int) -> str:
    """With its body where the file gives it no name of its own."""
    name = model.shape_name[shape]
    unnamed = re.fullmatch(r"geom\d+", name) is not None
    return f"{name} of {model.body_name[model.shape_body[shape]]}" if unnamed else name


def _pair_feelers(model: Model, pair: int) -> Iterator[_Feeler]:
    other, kind, solid = int(model.pair_body[pair, 1]), model.pair_kind[pair], model.pair_solid[pair]
    middles = {PairKind.ROUND: model.feeler_pos, PairKind.BOX: model.box_pos}.get(PairKind(kind))
    middle = np.zeros(3) if middles is None else middles[solid]
    for feeler in range(*model.pair_feeler[pair]):
        half = model.feeler_half[feeler]
        for end in (half, -half) if half.any() else (half,):
            yield _Feeler(
                f"geoms {model.pair_name[pair]}", int(model.feeler_body[feeler]), model.feeler_pos[feeler] + end,
                float(model.feeler_radius[feeler]), other, middle, float(model.pair_stiffness[pair]),
                float(model.pair_damping[pair]),
                float(model.pair_friction_stiffness[pair]) * (model.pair_friction[pair] > 0),
            )  # fmt: skip


def _touching(pose: Pose, feelers: list[_Feeler], weight: float) -> Iterator[list[Term]]:
    """Feelers of one body, pushed from each side."""
    for direction in pose.turn(feelers[0].body, _DIRECTIONS):
        yield list(_pushed(pose, _deepest(pose, feelers, direction), direction, weight))


def _deepest(pose: Pose, feelers: list[_Feeler], direction: Floats) -> list[_Feeler]:
    reach = [float(pose.place(f.body, f.position) @ direction) + f.radius for f in feelers]
    return [feeler for feeler, far in zip(feelers, reach, strict=True) if far > max(reach) - TOGETHER]


def _pushed(pose: Pose, feelers: list[_Feeler], direction: Floats, weight: float) -> Iterator[Term]:
    """A spring against the direction and friction across it, per element of the file."""
    across = np.linalg.svd(direction[None])[2][1:]
    for name in dict.fromkeys(feeler.name for feeler in feelers):
        normal, tangent, stiffness, damping, slope = [], [], [], [], []
        for feeler in (feeler for feeler in feelers if feeler.name == name):
            touch = pose.place(feeler.body, feeler.position) + feeler.radius * direction
            moves = pose.jacobian(feeler.body, touch)
            moves -= pose.jacobian(feeler.other_body, pose.place(feeler.other_body, feeler.other_position))
            normal.append(direction @ moves)
            tangent.append(across @ moves)
            stiffness.append(feeler.stiffness)
            damping.append(feeler.damping * WEIGHTS_ON_A_POINT * weight / max(feeler.stiffness, 1.0))
            slope.append(feeler.friction_slope)
        yield Term(f"{CONTACT}{name}", np.array(normal), np.array(stiffness), np.array(damping), one_sided=True)
        rows = np.concatenate(tangent)
        yield Term(f"{FRICTION}{name}", rows, np.zeros(len(rows)), np.repeat(slope, 2))


def _servo_terms(model: Model) -> Iterator[Term]:
    lower, upper = model.sample_range()
    for servo, actuator in enumerate(model.servo_actuator):
        drives = model.drive_servo == servo
        row = np.zeros(model.num_dofs)
        np.add.at(row, model.drive_dof[drives], model.drive_gear[drives])
        ends = np.array([lower[actuator], upper[actuator]])
        pull = -(model.servo_bias[servo] + ends[:, None] * model.servo_gain[servo])
        stiffness, damping = pull[:, 1].max(), pull[:, 2].max()
        yield _term(f"servo '{model.actuator_name[actuator]}'", row, stiffness, damping)


def _tie_terms(model: Model) -> Iterator[Term]:
    for tie, name in enumerate(model.tie_name):
        row = np.zeros(model.num_dofs)
        for strand in np.flatnonzero(model.strand_tie == tie):
            joint = model.strand_joint[strand]
            at = model.default_q[model.joint_q_start[joint]] - model.strand_reference[strand]
            row[model.joint_dof_start[joint]] += np.polynomial.Polynomial(model.strand_coefficient[strand]).deriv()(at)
        limited = np.isfinite(model.tie_limits[tie]).any()
        friction = DRY_FRICTION_SLOPE * model.tie_friction[tie] / model.tie_friction_speed[tie]
        stiffness = model.tie_stiffness[tie] + limited * model.tie_limit_stiffness[tie]
        damping = model.tie_damping[tie] + limited * LIMIT_DEPTH * model.tie_limit_damping[tie] + friction
        yield _term(name, row, stiffness, damping)


def _bond_terms(model: Model, pose: Pose) -> Iterator[Term]:
    """Along three axes between the anchors, and about three between the frames."""
    for bond, name in enumerate(model.bond_name):
        first, second = (int(body) for body in model.bond_body[bond])
        anchors = [pose.place(body, point) for body, point in zip((first, second), model.bond_point[bond], strict=True)]
        middle = (anchors[0] + anchors[1]) / 2
        move = pose.jacobian(first, middle) - pose.jacobian(second, middle)
        turn = pose.turning_jacobian(first) - pose.turning_jacobian(second)
        held = np.array([model.bond_stiffness[bond], model.bond_turn_stiffness[bond]])
        damped = np.array([model.bond_damping[bond], model.bond_turn_damping[bond]])
        yield Term(name, np.concatenate([move, turn]), held.repeat(3), damped.repeat(3))


def _muscle_terms(model: Model, pose: Pose) -> Iterator[Term]:
    """At full activation, the steepest slopes of MuJoCo's curves of length and velocity."""
    if model.num_hills == 0:
        return
    data = pose.data
    moment = np.zeros((len(data.moment_rownnz), model.num_dofs))
    mujoco.mju_sparse2dense(moment, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind)
    for hill, actuator in enumerate(model.hill_actuator):
        least, most, speed, passive, _ = model.hill_curve[hill]
        per_length = model.hill_peak_force[hill] / model.hill_best_length[hill]
        yield _term(
            f"muscle '{model.actuator_name[actuator]}'", moment[control_entry(pose.source, "out", actuator)],
            per_length * (2 / (1 - least) + 1.5 * passive / (most - 1)), per_length * 2 / speed,
        )  # fmt: skip


def _term(name: str, row: Floats, stiffness: float, damping: float, one_sided: bool = False) -> Term:
    return Term(name, row[None], np.array([max(stiffness, 0.0)]), np.array([max(damping, 0.0)]), one_sided)
