"""How a Model reaches the kernels: sizes and tree tables worked out once, packed as one C++ struct.

Field by field this is the struct `Model` that the kernel headers read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trot.sim.cpp_struct import Field, Layout
from trot.sim.model import WORLD, Floats, JointType, Model, PairKind
from trot.sim.parameters import columns
from trot.sim.weld import rotation

TURN, SLIDE, WORLD_SLIDE = 0, 1, 2
"""How a dof's axis moves a body: it turns, slides along an axis that its parent carries, or along a world axis."""

UNBOUNDED = 1e30
"""Stands for an infinite limit: finite, so that no kernel ever meets infinity minus infinity."""


Integers = NDArray[np.int32] | NDArray[np.int64]


def _starts(counts: Integers) -> NDArray[np.int32]:
    """Running sum with a leading zero: element i of a grouped list begins at result[i]."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def _grouped(owner: Integers, num_groups: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Items sorted by owner, and where each owner's items start."""
    counts = np.bincount(owner, minlength=num_groups) if len(owner) else np.zeros(num_groups, np.int64)
    return np.argsort(owner, kind="stable").astype(np.int32), _starts(counts)


def _finite(limits: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(limits, -UNBOUNDED, UNBOUNDED)


@dataclass(frozen=True)
class _Dofs:
    """What each dof needs to know about its joint and its place in the tree."""

    body: NDArray[np.int32]
    joint: NDArray[np.int32]
    kind: NDArray[np.int32]
    q: NDArray[np.int32]
    is_simple: NDArray[np.int32]
    joint_start: NDArray[np.int32]
    joint_end: NDArray[np.int32]
    body_start: NDArray[np.int32]
    body_end: NDArray[np.int32]
    chain: list[list[int]]
    subtree_end: NDArray[np.int32]


def _dofs(model: Model) -> _Dofs:
    num_dofs = model.num_dofs
    ends = [*model.joint_dof_start[1:], num_dofs]
    joint = np.zeros(num_dofs, np.int32)
    kind = np.full(num_dofs, TURN, np.int32)
    q = np.full(num_dofs, -1, np.int32)
    for j, (start, end) in enumerate(zip(model.joint_dof_start, ends, strict=True)):
        joint[start:end] = j
        kind_of_joint, q_start = JointType(model.joint_type[j]), model.joint_q_start[j]
        if kind_of_joint in (JointType.HINGE, JointType.SLIDE):
            q[start] = q_start
            kind[start] = SLIDE if kind_of_joint == JointType.SLIDE else TURN
        elif kind_of_joint == JointType.FREE:
            q[start : start + 3] = q_start + np.arange(3)
            kind[start : start + 3] = WORLD_SLIDE
    body = model.joint_body[joint]
    body_start = np.searchsorted(body, np.arange(model.num_bodies)).astype(np.int32)
    body_end = np.searchsorted(body, np.arange(model.num_bodies), side="right").astype(np.int32)
    chain: list[list[int]] = []
    for dof in range(num_dofs):
        parent = model.body_parent[body[dof]]
        inner = [] if parent == WORLD else chain[body_end[parent] - 1]
        chain.append(inner + list(range(body_start[body[dof]], dof + 1)))
    subtree_end = np.arange(1, num_dofs + 1, dtype=np.int32)
    for dof in range(num_dofs):
        subtree_end[chain[dof]] = dof + 1  # depth-first order: the last dof that names it as ancestor
    simple = np.isin(model.joint_type[joint], (JointType.HINGE, JointType.SLIDE)).astype(np.int32)
    return _Dofs(
        body, joint, kind, q, simple, model.joint_dof_start[joint], np.array(ends, np.int32)[joint],
        body_start, body_end, chain, subtree_end,
    )  # fmt: skip


def _levels(model: Model) -> NDArray[np.int32]:
    level = np.zeros(model.num_bodies, np.int32)
    for body, parent in enumerate(model.body_parent):
        level[body] = 0 if parent == WORLD else level[parent] + 1
    return level


def _entry_tables(dofs: _Dofs, level: NDArray[np.int32], lanes: int) -> tuple[dict[str, int], list[Field]]:
    """The entries of the mass matrix in the order in which factorise() finishes them.

    A row holds the right-hand side, then one number per ancestor; an entry is columns_per_entry of these at a time.
    """
    columns_per_entry = 4 if lanes == 1 else 1
    rows_in_lanes = lanes > 1 and len(dofs.body) <= lanes
    turn = dofs.body_end[dofs.body] - 1 - np.arange(len(dofs.body))
    num_levels, max_body_dofs = int(level.max()) + 1, int((dofs.body_end - dofs.body_start).max())
    row_stride = -(-(1 + max(len(chain) for chain in dofs.chain)) // 4) * 4  # whole quads (kernels/lane_rows.h)
    cells: list[list[tuple[int, int]]] = [[] for _ in range(num_levels * max_body_dofs)]
    mass_entry: list[int] = []
    for dof, chain in enumerate(dofs.chain):
        cell = cells[level[dofs.body[dof]] * max_body_dofs + turn[dof]]
        if not rows_in_lanes:
            cell += [(dof, column) for column in range(0, 1 + len(chain), columns_per_entry)]
        mass_entry += [dof * row_stride + 1 + depth for depth in range(len(chain))]
    entries = np.array([entry for cell in cells for entry in cell], np.int32).reshape(-1, 2)
    turn_start = _starts(np.array([len(cell) for cell in cells]))
    max_dofs = [max(turn[level[dofs.body] == k]) + 1 for k in range(num_levels)]
    sizes = {
        "num_entries": len(entries),
        "num_mass_entries": len(mass_entry),
        "max_body_dofs": max_body_dofs,
        "columns_per_entry": columns_per_entry,
        "rows_in_lanes": int(rows_in_lanes),
        "row_stride": row_stride,
    }
    fields = [
        Field("entry_dof", entries[:, 0].copy(), "row of a mass-matrix entry"),
        Field("entry_column", entries[:, 1].copy(), "its first column"),
        Field("level_entry_start", turn_start[::max_body_dofs].copy(), "entries of a level"),
        Field("turn_entry_start", turn_start, "entries of a level's last dofs, then of the last but one, ..."),
        Field("level_max_dofs", np.array(max_dofs, np.int32), "most dofs of a body in the level"),
        Field("mass_entry", np.array(mass_entry, np.int32), "where each number of the factor lies"),
    ]
    return sizes, fields


def _tree_fields(model: Model, dofs: _Dofs, level: NDArray[np.int32]) -> list[Field]:
    level_body, level_start = _grouped(level, int(level.max()) + 1)
    has_parent = np.flatnonzero(model.body_parent != WORLD).astype(np.int32)
    order, child_start = _grouped(model.body_parent[has_parent], model.num_bodies)
    lines: list[list[int]] = []
    body_end = np.arange(1, model.num_bodies + 1, dtype=np.int32)
    for body, parent in enumerate(model.body_parent):
        lines.append(([] if parent == WORLD else lines[parent]) + [body])
        body_end[lines[body]] = body + 1
    depth = np.array([len(chain) - 1 for chain in dofs.chain], np.int32)
    chain_start, last_dof = _starts(depth + 1)[:-1], dofs.body_end - 1
    joint_count = np.bincount(model.joint_body, minlength=model.num_bodies)
    point_body = model.shape_body[model.point_shape] if model.num_points else np.zeros(0, np.int32)
    return [
        Field("body_parent", model.body_parent, "-1 for a root"),
        Field("body_dof_start", np.append(dofs.body_start, model.num_dofs).astype(np.int32), "first dof of a body"),
        Field("body_joint_start", _starts(joint_count), "first joint"),
        Field("body_point_start", _grouped(point_body, model.num_bodies)[1], "first contact point"),
        Field("level_body", level_body, "bodies by distance from the root"),
        Field("level_start", level_start, "first of a level in level_body"),
        Field("body_subtree_end", body_end, "past the last body that it carries"),
        Field("ancestor", np.concatenate(lines).astype(np.int32), "bodies from the root to each body, itself included"),
        Field("ancestor_start", _starts(np.array([len(line) for line in lines])), "first of a body's in ancestor"),
        Field("child", has_parent[order], "bodies by parent"),
        Field("child_start", child_start, "first child of a body"),
        Field("joint_type", model.joint_type, "FREE, BALL, SLIDE, HINGE"),
        Field("joint_q_start", model.joint_q_start, "first coordinate"),
        Field("joint_dof_start", model.joint_dof_start, "first dof"),
        Field("dof_body", dofs.body, "body it moves"),
        Field("dof_kind", dofs.kind, "TURN, SLIDE, WORLD_SLIDE"),
        Field("dof_q", dofs.q, "its coordinate; -1 for a part of a quaternion"),
        Field("dof_is_simple", dofs.is_simple, "hinge or slide: spring and limits act on one coordinate"),
        Field("dof_joint_start", dofs.joint_start, "first dof of its joint"),
        Field("dof_joint_end", dofs.joint_end, "past the last dof of its joint"),
        Field("dof_body_end", dofs.body_end[dofs.body], "past the last dof of its body"),
        Field("dof_subtree_end", dofs.subtree_end, "past the last dof that it carries"),
        Field("dof_depth", depth, "number of dofs inwards of it"),
        Field("dof_chain_start", chain_start, "first of its ancestors in chain"),
        Field("body_chain_start", chain_start[last_dof], "first of the dofs that move a body in chain"),
        Field("body_chain_end", chain_start[last_dof] + depth[last_dof] + 1, "past the last of them"),
        Field("chain", np.concatenate(dofs.chain).astype(np.int32), "ancestor dofs, root first, itself last"),
    ]


def _quaternions(model: Model) -> tuple[list[int], list[int], list[int]]:
    """(coordinate, first turning dof) of every quaternion, and the joints that are balls with a spring or a limit."""
    q, dof, balls = [], [], []
    for j, kind in enumerate(model.joint_type):
        if JointType(kind).has_quaternion:
            plain = JointType(kind).num_plain
            q.append(int(model.joint_q_start[j]) + plain)
            dof.append(int(model.joint_dof_start[j]) + plain)
        if kind == JointType.BALL and (model.joint_stiffness[j] > 0 or np.isfinite(model.joint_upper[j])):
            balls.append(j)
    return q, dof, balls


def _actuator_fields(model: Model) -> list[Field]:
    by_actuator, actuator_start = _grouped(model.motor_actuator, model.num_controls)
    motor_dof = model.motor_dof[by_actuator]
    by_dof, dof_start = _grouped(motor_dof, model.num_dofs)
    actuator_muscle = np.full(model.num_controls, -1, np.int32)
    actuator_muscle[model.muscle_actuator] = np.arange(model.num_muscles)
    ends = model.segment_body.ravel()
    on_body = np.flatnonzero(ends != WORLD).astype(np.int32)
    order, body_start = _grouped(ends[on_body], model.num_bodies)
    segments = np.bincount(model.segment_muscle, minlength=model.num_muscles)
    point = model.segment_point.reshape(-1, 2, 3)
    return [
        Field("actuator_motor_start", actuator_start, "first motor of an actuator"),
        Field("motor_actuator", model.motor_actuator[by_actuator], "control that drives it"),
        Field("motor_dof", motor_dof, "dof it drives"),
        Field("dof_motor", by_dof, "motors by dof"),
        Field("dof_motor_start", dof_start, "first motor of a dof in dof_motor"),
        Field("actuator_muscle", actuator_muscle, "-1 for a motor"),
        Field("muscle_actuator", model.muscle_actuator, "control that activates it"),
        Field("muscle_segment_start", _starts(segments), "first segment of a muscle"),
        Field("segment_muscle", model.segment_muscle, "muscle it belongs to"),
        Field("segment_body_a", model.segment_body.reshape(-1, 2)[:, 0].copy(), "body of one end, -1 for the world"),
        Field("segment_body_b", model.segment_body.reshape(-1, 2)[:, 1].copy(), "body of the other"),
        Field("body_segment", on_body[order], "2 * segment + end, by body"),
        Field("body_segment_start", body_start, "first segment end of a body"),
        Field("motor_gear", model.motor_gear[by_actuator], "generalised force per unit of control"),
        Field("control_lower", _finite(model.control_lower), "range of a control"),
        Field("control_upper", _finite(model.control_upper), "range of a control"),
        Field("muscle_peak_force", model.muscle_peak_force, "N"),
        Field("segment_point_a", point[:, 0].copy(), "end in the frame of body a, m"),
        Field("segment_point_b", point[:, 1].copy(), "end in the frame of body b, m"),
    ]


def _where_used(values: Floats, used: bool) -> Floats:
    """A table that only some robots need takes no room in the others."""
    return values if used else values[:0]


def _servo_fields(model: Model, dofs: _Dofs) -> list[Field]:
    by_dof, dof_start = _grouped(model.drive_dof, model.num_dofs)
    actuator_servo = np.full(model.num_controls, -1, np.int32)
    actuator_servo[model.servo_actuator] = np.arange(model.num_servos)
    used = model.num_servos > 0
    drive_q = np.where(dofs.is_simple[model.drive_dof], dofs.q[model.drive_dof], -1).astype(np.int32)
    drives = np.bincount(model.drive_servo, minlength=model.num_servos)
    return [
        Field("servo_actuator", model.servo_actuator, "control that drives it"),
        Field("actuator_servo", actuator_servo if used else actuator_servo[:0], "-1 for a motor or muscle"),
        Field("servo_drive_start", _starts(drives) if used else drives[:0].astype(np.int32), "first drive of a servo"),
        Field("drive_dof", model.drive_dof, "dof that the drive moves"),
        Field("drive_q", drive_q, "its coordinate; -1 where it has no length"),
        Field("dof_drive", by_dof, "drives by dof"),
        Field("dof_drive_start", dof_start if used else dof_start[:0], "first drive of a dof in dof_drive"),
        Field("drive_gear", model.drive_gear, "length per unit of joint_q, force on the dof per unit of force"),
        Field("servo_gain", model.servo_gain.ravel(), "force per unit of control: constant, per length, per rate"),
        Field("servo_bias", model.servo_bias.ravel(), "force without control, likewise"),
        Field("servo_lower", _finite(model.servo_lower), "range of the force"),
        Field("servo_upper", _finite(model.servo_upper), "range of the force"),
    ]


def _tie_fields(model: Model) -> list[Field]:
    used = model.num_ties > 0
    strand_dof = model.joint_dof_start[model.strand_joint]
    by_dof, dof_start = _grouped(strand_dof, model.num_dofs)
    strands = np.bincount(model.strand_tie, minlength=model.num_ties)
    return [
        Field("tie_strand_start", _starts(strands) if used else strands[:0].astype(np.int32), "first strand of a tie"),
        Field("strand_dof", strand_dof, "dof of its joint"),
        Field("strand_q", model.joint_q_start[model.strand_joint], "coordinate of its joint"),
        Field("dof_strand", by_dof, "strands by dof"),
        Field("dof_strand_start", dof_start if used else dof_start[:0], "first strand of a dof in dof_strand"),
        Field("strand_reference", model.strand_reference, "coordinate from which its polynomial counts"),
        Field("strand_coefficient", model.strand_coefficient.ravel(), "five each, the constant first"),
        Field("tie_stiffness", model.tie_stiffness, "outside of the resting range"),
        Field("tie_rest_lower", model.tie_rest[:, 0].copy(), "resting range of the length"),
        Field("tie_rest_upper", model.tie_rest[:, 1].copy(), "resting range of the length"),
        Field("tie_damping", model.tie_damping, "force per rate"),
        Field("tie_lower", _finite(model.tie_limits[:, 0]), "limits of the length"),
        Field("tie_upper", _finite(model.tie_limits[:, 1]), "limits of the length"),
        Field("tie_limit_stiffness", model.tie_limit_stiffness, "beyond them"),
        Field("tie_limit_damping", model.tie_limit_damping, "beyond them, per depth and rate"),
        Field("tie_friction", model.tie_friction, "dry friction"),
        Field("tie_friction_speed", model.tie_friction_speed, "rate from which on it has its full force"),
    ]


def _law_sizes(model: Model) -> dict[str, int]:
    """How many there are of what most robots have none of; the kernels leave out the laws whose size is zero."""
    limited = np.isfinite(model.joint_lower) | np.isfinite(model.joint_upper)
    return {
        "num_servos": model.num_servos,
        "num_drives": len(model.drive_dof),
        "num_ties": model.num_ties,
        "num_strands": len(model.strand_tie),
        "num_force_ranges": int(np.sum(np.isfinite(model.dof_force_lower) | np.isfinite(model.dof_force_upper))),
        "num_damped_limits": int(np.sum(limited & (model.joint_limit_damping > 0))),
        "num_frictions": int(np.sum(model.dof_friction > 0)),
    }


def _law_fields(model: Model, dofs: _Dofs) -> list[Field]:
    sizes, simple = _law_sizes(model), dofs.is_simple.astype(bool)
    ranges, damped, rubs = (sizes[name] > 0 for name in ("num_force_ranges", "num_damped_limits", "num_frictions"))
    limit_damping = model.joint_limit_damping[dofs.joint] * simple
    return [
        Field("dof_force_lower", _where_used(_finite(model.dof_force_lower), ranges), "of motors and servos together"),
        Field("dof_force_upper", _where_used(_finite(model.dof_force_upper), ranges), "of motors and servos together"),
        Field("dof_limit_damping", _where_used(limit_damping, damped), "N s/m^2 or N m s/rad^2"),
        Field("dof_friction", _where_used(model.dof_friction, rubs), "dry friction, N or N m"),
        Field("dof_friction_speed", _where_used(model.joint_friction_speed[dofs.joint], rubs), "at its full force"),
        *_servo_fields(model, dofs),
        *_tie_fields(model),
    ]


def _constant_fields(model: Model, dofs: _Dofs, balls: list[int]) -> list[Field]:
    joint, simple = dofs.joint, dofs.is_simple.astype(bool)
    body_rotation = np.array([rotation(quat) for quat in model.body_quat])
    rest = model.q_spring[np.where(simple, dofs.q, 0)] * simple
    ball_rest = np.array([model.q_spring[model.joint_q_start[j] :][:4] for j in balls]).reshape(-1, 4)
    largest = np.minimum(model.joint_upper[balls], np.pi)
    # Half a turn is the farthest there is: without a limit, rounding must not find anything beyond it.
    limit_stiffness = np.where(np.isfinite(model.joint_upper[balls]), model.joint_limit_stiffness[balls], 0.0)
    ground = -UNBOUNDED if model.ground_height is None else model.ground_height
    return [
        Field("gravity", model.gravity, "m/s^2"),
        Field("ground", np.array([ground]), "height, m"),
        Field("body_position", model.body_pos, "in the parent's frame at the reference, m"),
        Field("body_rotation", body_rotation, "likewise"),
        Field("body_mass", model.body_mass, "kg"),
        Field("body_com", model.body_com, "in the body frame, m"),
        Field("body_inertia", model.body_inertia, "about the centre of mass, body axes, kg m^2"),
        Field("joint_axis", model.joint_axis, "unit, body frame"),
        Field("joint_anchor", model.joint_anchor, "body frame, m"),
        Field("q_reference", model.q_reference, "coordinates at which bodies stand as drawn"),
        Field("dof_armature", model.dof_armature, "kg or kg m^2"),
        Field("dof_damping", model.dof_damping, "N s/m or N m s/rad"),
        Field("dof_stiffness", model.joint_stiffness[joint] * simple, "N/m or N m/rad"),
        Field("dof_rest", rest, "coordinate at which the spring rests"),
        Field("dof_lower", _finite(model.joint_lower)[joint], "m or rad"),
        Field("dof_upper", _finite(model.joint_upper)[joint], "m or rad"),
        Field("dof_limit_stiffness", model.joint_limit_stiffness[joint] * simple, "N/m or N m/rad"),
        Field("ball_stiffness", model.joint_stiffness[balls], "N m/rad"),
        Field("ball_rest", ball_rest.ravel(), "quaternion at which the spring rests"),
        Field("ball_largest_chord", 2 * np.sin(largest / 2), "2 sin(largest angle / 2)"),
        Field("ball_limit_stiffness", limit_stiffness, "N m/rad"),
        Field("shape_stiffness", model.shape_stiffness, "N/m"),
        Field("shape_damping", model.shape_damping, "N s/m^2"),
        Field("shape_friction_stiffness", model.shape_friction_stiffness, "N s/m"),
        Field("shape_friction", model.shape_friction, "Coulomb"),
        Field("point_position", model.point_pos.reshape(-1, 3), "centre in the body frame, m"),
        Field("point_radius", model.point_radius, "m"),
    ]


def _pair_sizes(model: Model) -> dict[str, int]:
    found = columns(model)
    names = ("pair_stiffness", "pair_damping", "pair_friction_stiffness", "pair_friction")
    return {
        "num_feelers": model.num_feelers,
        "num_pairs": model.num_pairs,
        **{f"num_{kind.name.lower()}_pairs": int((model.pair_kind == kind).sum()) for kind in PairKind},
        **{f"{name}_column": found[name].start if name in found else 0 for name in names},
    }


def _pair_fields(model: Model) -> list[Field]:
    bodies = model.pair_body.ravel()
    on_body = np.flatnonzero(bodies != WORLD).astype(np.int32)
    order, body_start = _grouped(bodies[on_body], model.num_bodies)
    half = np.linalg.norm(model.feeler_half, axis=1)
    heights = model.field_height
    rotations = {
        kind: np.array([rotation(quat) for quat in quats]).reshape(-1, 3, 3)
        for kind, quats in (("box", model.box_quat), ("field", model.field_quat))
    }
    return [
        Field("feeler_body", model.feeler_body, "-1 for the world"),
        Field("box_body", model.box_body, "-1 for the world"),
        Field("field_rows", np.array([len(rows) for rows in heights], np.int32), "heights along y"),
        Field("field_columns", np.array([rows.shape[1] for rows in heights], np.int32), "heights along x"),
        Field("field_start", _starts(np.array([rows.size for rows in heights], np.int64)), "first in field_height"),
        Field("pair_body_a", model.pair_body[:, 0].copy(), "body of the first shape, -1 for the world"),
        Field("pair_body_b", model.pair_body[:, 1].copy(), "body of the second"),
        Field("pair_feeler_start", model.pair_feeler[:, 0].copy(), "first feeler of the first shape"),
        Field("pair_feeler_end", model.pair_feeler[:, 1].copy(), "past the last"),
        Field("pair_solid", model.pair_solid, "the second shape: which feeler, box, plane or field"),
        Field("body_pair", on_body[order], "2 * pair + which of its shapes, by body"),
        Field("body_pair_start", body_start, "first of a body"),
        Field("feeler_position", model.feeler_pos, "middle in the body frame, m"),
        Field("feeler_half", model.feeler_half, "half its axis in the body frame, m"),
        Field("feeler_square", half**2, "of that length, m^2"),
        Field("feeler_radius", model.feeler_radius, "m"),
        Field("feeler_reach", half + model.feeler_radius, "of the ball around it, m"),
        Field("box_position", model.box_pos, "middle in the body frame, m"),
        Field("box_rotation", rotations["box"], "likewise"),
        Field("box_size", model.box_size, "half its sides, m"),
        Field("box_reach", np.linalg.norm(model.box_size, axis=1), "of the ball around it, m"),
        Field("plane_position", model.plane_pos, "a point of it, m"),
        Field("plane_normal", model.plane_normal, "unit"),
        Field("field_position", model.field_pos, "middle at height 0, m"),
        Field("field_rotation", rotations["field"], "likewise"),
        Field("field_spacing_x", model.field_spacing[:, 0].copy(), "between two heights, m"),
        Field("field_spacing_y", model.field_spacing[:, 1].copy(), "likewise"),
        Field("field_height", np.concatenate([np.zeros(0), *(rows.ravel() for rows in heights)]), "m"),
        Field("pair_stiffness", model.pair_stiffness, "N/m"),
        Field("pair_damping", model.pair_damping, "N s/m^2"),
        Field("pair_friction_stiffness", model.pair_friction_stiffness, "N s/m"),
        Field("pair_friction", model.pair_friction, "Coulomb"),
    ]


def kernel_layout(model: Model, lanes: int) -> Layout:
    """Work out every size and table that the kernels of this model are compiled with or read.

    lanes is how many share one world. One lane takes a few columns of a mass-matrix row at a time, since they share
    what they read. Many lanes take one column each; or, if there are enough, a row each, and need no list of entries.
    """
    dofs, level = _dofs(model), _levels(model)
    quat_q, quat_dof, balls = _quaternions(model)
    entry_sizes, entry_fields = _entry_tables(dofs, level, lanes)
    sizes = {
        "num_q": model.num_q,
        "num_dofs": model.num_dofs,
        "num_bodies": model.num_bodies,
        "num_levels": int(level.max()) + 1,
        "num_depths": max(len(chain) for chain in dofs.chain),
        **entry_sizes,
        "num_quats": len(quat_q),
        "num_ball_springs": len(balls),
        "num_shapes": model.num_shapes,
        "num_points": model.num_points,
        "num_controls": model.num_controls,
        "num_muscles": model.num_muscles,
        "num_segments": model.num_segments,
        **_pair_sizes(model),
        **_law_sizes(model),
        "FREE": int(JointType.FREE),
        "BALL": int(JointType.BALL),
        "SLIDE_JOINT": int(JointType.SLIDE),
        "HINGE": int(JointType.HINGE),
        "TURN": TURN,
        "SLIDE": SLIDE,
        "WORLD_SLIDE": WORLD_SLIDE,
        **{f"{name}_column": where.start for name, where in columns(model).items()},
        "num_parameters": max(where.stop for where in columns(model).values()),
    }
    fields = [
        *_tree_fields(model, dofs, level),
        *entry_fields,
        Field("quat_q", np.array(quat_q, np.int32), "coordinate of each quaternion's w"),
        Field("quat_dof", np.array(quat_dof, np.int32), "first of its three dofs"),
        Field("ball_q", model.joint_q_start[balls], "coordinate of a sprung ball joint"),
        Field("ball_dof", model.joint_dof_start[balls], "its first dof"),
        Field("point_shape", model.point_shape, "shape a contact point belongs to"),
        *_actuator_fields(model),
        *_pair_fields(model),
        *(replace(field, rare=True) for field in _law_fields(model, dofs)),
        *_constant_fields(model, dofs, balls),
    ]
    fields.sort(key=lambda field: field.values.dtype != np.int32)
    depths = np.array([len(chain) - 1 for chain in dofs.chain])
    return Layout(sizes, _grouped(depths, int(depths.max()) + 1), fields)
