"""How a Model reaches the kernels: sizes and tree tables worked out once, packed as one C++ struct.

Field by field this is the struct `Model` that the kernel headers read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trot.sim.bundles import bundle_fields, bundle_sizes
from trot.sim.cpp_struct import Field, Layout
from trot.sim.dof_tables import SLIDE, TURN, UNBOUNDED, WORLD_SLIDE, Dofs, dofs_of, finite, grouped, starts
from trot.sim.force_tables import hill_fields, law_fields, law_sizes, pair_fields, pair_sizes
from trot.sim.model import AROUND_CYLINDER, AROUND_SPHERE, STRAIGHT, WORLD, ActKind, JointType, Model
from trot.sim.parameters import columns
from trot.sim.weld import rotation


def _levels(model: Model) -> NDArray[np.int32]:
    level = np.zeros(model.num_bodies, np.int32)
    for body, parent in enumerate(model.body_parent):
        level[body] = 0 if parent == WORLD else level[parent] + 1
    return level


def _entry_tables(dofs: Dofs, level: NDArray[np.int32], lanes: int) -> tuple[dict[str, int], list[Field]]:
    """The entries of the mass matrix in the order in which factorise() finishes them.

    A row holds the right-hand side, then one number per ancestor; an entry is columns_per_entry of these at a time.
    """
    columns_per_entry = 4 if lanes == 1 else 1
    rows_in_lanes = lanes > 1 and len(dofs.body) <= lanes
    turn = dofs.body_end[dofs.body] - 1 - np.arange(len(dofs.body))
    num_levels, max_body_dofs = int(level.max()) + 1, int((dofs.body_end - dofs.body_start).max())
    row_stride = -(-(1 + max(len(chain) for chain in dofs.chain)) // 4) * 4  # whole quads (kernels/lane_rows.h)
    cells: list[list[tuple[int, int]]] = [[] for _ in range(num_levels * max_body_dofs)]
    for dof, chain in enumerate(dofs.chain):
        cell = cells[level[dofs.body[dof]] * max_body_dofs + turn[dof]]
        if not rows_in_lanes:
            cell += [(dof, column) for column in range(0, 1 + len(chain), columns_per_entry)]
    entries = np.array([entry for cell in cells for entry in cell], np.int32).reshape(-1, 2)
    turn_start = starts(np.array([len(cell) for cell in cells]))
    max_dofs = [max(turn[level[dofs.body] == k]) + 1 for k in range(num_levels)]
    sizes = {
        "num_entries": len(entries),
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
    ]
    return sizes, fields


def _tree_fields(model: Model, dofs: Dofs, level: NDArray[np.int32]) -> list[Field]:
    level_body, level_start = grouped(level, int(level.max()) + 1)
    has_parent = np.flatnonzero(model.body_parent != WORLD).astype(np.int32)
    order, child_start = grouped(model.body_parent[has_parent], model.num_bodies)
    lines: list[list[int]] = []
    body_end = np.arange(1, model.num_bodies + 1, dtype=np.int32)
    for body, parent in enumerate(model.body_parent):
        lines.append(([] if parent == WORLD else lines[parent]) + [body])
        body_end[lines[body]] = body + 1
    depth = np.array([len(chain) - 1 for chain in dofs.chain], np.int32)
    chain_start, last_dof = starts(depth + 1)[:-1], dofs.body_end - 1
    joint_count = np.bincount(model.joint_body, minlength=model.num_bodies)
    point_body = model.shape_body[model.point_shape] if model.num_points else np.zeros(0, np.int32)
    return [
        Field("body_parent", model.body_parent, "-1 for a root"),
        Field("body_dof_start", np.append(dofs.body_start, model.num_dofs).astype(np.int32), "first dof of a body"),
        Field("body_joint_start", starts(joint_count), "first joint"),
        Field("body_point_start", grouped(point_body, model.num_bodies)[1], "first contact point"),
        Field("level_body", level_body, "bodies by distance from the root"),
        Field("level_start", level_start, "first of a level in level_body"),
        Field("body_subtree_end", body_end, "past the last body that it carries"),
        Field("ancestor", np.concatenate(lines).astype(np.int32), "bodies from the root to each body, itself included"),
        Field("ancestor_start", starts(np.array([len(line) for line in lines])), "first of a body's in ancestor"),
        Field("child", has_parent[order], "bodies by parent"),
        Field("child_start", child_start, "first child of a body"),
        Field("joint_type", model.joint_type, "FREE, BALL, SLIDE, HINGE"),
        Field("joint_q_start", model.joint_q_start, "first coordinate"),
        Field("joint_dof_start", model.joint_dof_start, "first dof"),
        Field("dof_body", dofs.body, "body it moves"),
        Field("dof_joint", dofs.joint.astype(np.int32), "joint it belongs to"),
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


def _longest_line(model: Model, dofs: Dofs) -> int:
    """Most dofs that kernels/kinematics_lanes.h joins to another: inwards of it in the root, or else outside of that.

    A free joint is placed at once.
    """
    free = model.joint_type[dofs.joint] == JointType.FREE
    root_end = np.array([dofs.body_end[dofs.body[chain[0]]] for chain in dofs.chain])
    lines = [
        [inner for inner in chain if (inner < end) == (chain[-1] < end)]
        for chain, end in zip(dofs.chain, root_end, strict=True)
    ]
    return max(0 if is_free else len(line) - 1 for line, is_free in zip(lines, free, strict=True))


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
    by_actuator, actuator_start = grouped(model.motor_actuator, model.num_controls)
    motor_dof = model.motor_dof[by_actuator]
    by_dof, dof_start = grouped(motor_dof, model.num_dofs)
    return [
        Field("actuator_motor_start", actuator_start, "first motor of an actuator"),
        Field("motor_actuator", model.motor_actuator[by_actuator], "control that drives it"),
        Field("motor_dof", motor_dof, "dof it drives"),
        Field("dof_motor", by_dof, "motors by dof"),
        Field("dof_motor_start", dof_start, "first motor of a dof in dof_motor"),
        Field("motor_gear", model.motor_gear[by_actuator], "generalised force per unit of control"),
        Field("control_lower", finite(model.control_lower), "range of a control"),
        Field("control_upper", finite(model.control_upper), "range of a control"),
    ]


def _constant_fields(model: Model, dofs: Dofs, balls: list[int]) -> list[Field]:
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
        Field("dof_lower", finite(model.joint_lower)[joint], "m or rad"),
        Field("dof_upper", finite(model.joint_upper)[joint], "m or rad"),
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


def kernel_layout(model: Model, lanes: int) -> Layout:
    """Work out every size and table that the kernels of this model are compiled with or read.

    lanes is how many share one world. One lane takes a few columns of a mass-matrix row at a time, since they share
    what they read. Many lanes take one column each; or, if there are enough, a row each, and need no list of entries.
    """
    dofs, level = dofs_of(model), _levels(model)
    quat_q, quat_dof, balls = _quaternions(model)
    entry_sizes, entry_fields = _entry_tables(dofs, level, lanes)
    sizes = {
        "num_q": model.num_q,
        "num_dofs": model.num_dofs,
        "num_bodies": model.num_bodies,
        "num_levels": int(level.max()) + 1,
        "num_depths": max(len(chain) for chain in dofs.chain),
        "longest_line": _longest_line(model, dofs),
        **entry_sizes,
        "num_quats": len(quat_q),
        "num_ball_springs": len(balls),
        "num_shapes": model.num_shapes,
        "num_points": model.num_points,
        "num_controls": model.num_controls,
        **bundle_sizes(model, lanes),
        "num_hills": model.num_hills,
        "num_pieces": len(model.piece_hill),
        "num_acts": model.num_acts,
        **pair_sizes(model),
        **law_sizes(model),
        **{f"{kind.name}_ACT": int(kind) for kind in ActKind},
        "STRAIGHT": STRAIGHT,
        "AROUND_SPHERE": AROUND_SPHERE,
        "AROUND_CYLINDER": AROUND_CYLINDER,
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
        *bundle_fields(model, lanes),
        *hill_fields(model),
        *pair_fields(model),
        *(replace(field, rare=True) for field in law_fields(model, dofs)),
        *_constant_fields(model, dofs, balls),
    ]
    fields.sort(key=lambda field: field.values.dtype != np.int32)
    depths = np.array([len(chain) - 1 for chain in dofs.chain])
    return Layout(sizes, grouped(depths, int(depths.max()) + 1), fields)
