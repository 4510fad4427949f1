"""Tables of forces that only some robots have: servos, ties, bonds, muscles with curves, shapes against each other."""

from __future__ import annotations

import numpy as np

from trot.sim.cpp_struct import Field
from trot.sim.dof_tables import Dofs, finite, grouped, starts
from trot.sim.model import WORLD, Floats, Model, PairKind
from trot.sim.parameters import columns
from trot.sim.weld import rotation


def _where_used(values: Floats, used: bool) -> Floats:
    """A table that only some robots need takes no room in the others."""
    return values if used else values[:0]


def _servo_acts(model: Model) -> int:
    return int(np.sum(model.servo_act >= 0))


def _act_kinds(model: Model) -> list[Field]:
    """Only where there are others than those of muscles."""
    plain = model.act_kind if _servo_acts(model) else model.act_kind[:0]
    return [Field("act_kind", plain, "MUSCLE_ACT, FILTER_ACT, EXACT_FILTER_ACT, INTEGRATOR_ACT")]


def _servo_fields(model: Model, dofs: Dofs) -> list[Field]:
    by_dof, dof_start = grouped(model.drive_dof, model.num_dofs)
    actuator_servo = np.full(model.num_controls, -1, np.int32)
    actuator_servo[model.servo_actuator] = np.arange(model.num_servos)
    used = model.num_servos > 0
    drive_q = np.where(dofs.is_simple[model.drive_dof], dofs.q[model.drive_dof], -1).astype(np.int32)
    drives = np.bincount(model.drive_servo, minlength=model.num_servos)
    return [
        Field("servo_actuator", model.servo_actuator, "control that drives it"),
        Field("servo_act", model.servo_act if _servo_acts(model) else model.servo_act[:0], "activation instead, or -1"),
        Field("actuator_servo", actuator_servo if used else actuator_servo[:0], "-1 for a motor or muscle"),
        Field("servo_drive_start", starts(drives) if used else drives[:0].astype(np.int32), "first drive of a servo"),
        Field("drive_dof", model.drive_dof, "dof that the drive moves"),
        Field("drive_q", drive_q, "its coordinate; -1 where it has no length"),
        Field("dof_drive", by_dof, "drives by dof"),
        Field("dof_drive_start", dof_start if used else dof_start[:0], "first drive of a dof in dof_drive"),
        Field("drive_gear", model.drive_gear, "length per unit of joint_q, force on the dof per unit of force"),
        Field("servo_gain", model.servo_gain.ravel(), "force per unit of control: constant, per length, per rate"),
        Field("servo_bias", model.servo_bias.ravel(), "force without control, likewise"),
        Field("servo_lower", finite(model.servo_lower), "range of the force"),
        Field("servo_upper", finite(model.servo_upper), "range of the force"),
    ]


def _tie_fields(model: Model) -> list[Field]:
    used = model.num_ties > 0
    strand_dof = model.joint_dof_start[model.strand_joint]
    by_dof, dof_start = grouped(strand_dof, model.num_dofs)
    strands = np.bincount(model.strand_tie, minlength=model.num_ties)
    return [
        Field("tie_strand_start", starts(strands) if used else strands[:0].astype(np.int32), "first strand of a tie"),
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
        Field("tie_lower", finite(model.tie_limits[:, 0]), "limits of the length"),
        Field("tie_upper", finite(model.tie_limits[:, 1]), "limits of the length"),
        Field("tie_limit_stiffness", model.tie_limit_stiffness, "beyond them"),
        Field("tie_limit_damping", model.tie_limit_damping, "beyond them, per depth and rate"),
        Field("tie_friction", model.tie_friction, "dry friction"),
        Field("tie_friction_speed", model.tie_friction_speed, "rate from which on it has its full force"),
    ]


def _bond_fields(model: Model) -> list[Field]:
    ends = model.bond_body.ravel()
    on_body = np.flatnonzero(ends != WORLD).astype(np.int32)
    order, body_start = grouped(ends[on_body], model.num_bodies)
    frames = np.array([[rotation(quat) for quat in quats] for quats in model.bond_quat]).reshape(-1, 2, 3, 3)
    turns = np.array((model.bond_turn_stiffness != 0) | (model.bond_turn_damping != 0), np.int32)
    return [
        Field("bond_body_a", model.bond_body[:, 0].copy(), "its first body, -1 for the world"),
        Field("bond_body_b", model.bond_body[:, 1].copy(), "its second"),
        Field("bond_turns", turns, "whether it holds the orientation too"),
        Field("body_bond", on_body[order], "2 * bond + which of its bodies, by body"),
        Field("body_bond_start", body_start if model.num_bonds else body_start[:0], "first of a body"),
        Field("bond_point_a", model.bond_point[:, 0].ravel(), "anchor in the frame of body a, m"),
        Field("bond_point_b", model.bond_point[:, 1].ravel(), "anchor in the frame of body b, m"),
        Field("bond_frame_a", frames[:, 0].ravel(), "what a weld aligns, in the frame of body a, row by row"),
        Field("bond_frame_b", frames[:, 1].ravel(), "with this, in the frame of body b"),
        Field("bond_stiffness", model.bond_stiffness, "N/m"),
        Field("bond_damping", model.bond_damping, "N s/m"),
        Field("bond_turn_stiffness", model.bond_turn_stiffness, "N m/rad"),
        Field("bond_turn_damping", model.bond_turn_damping, "N m s/rad"),
    ]


def law_sizes(model: Model) -> dict[str, int]:
    """How many there are of what most robots have none of; the kernels leave out the laws whose size is zero."""
    limited = np.isfinite(model.joint_lower) | np.isfinite(model.joint_upper)
    return {
        "num_servos": model.num_servos,
        "num_drives": len(model.drive_dof),
        "num_servo_acts": _servo_acts(model),
        "num_ties": model.num_ties,
        "num_strands": len(model.strand_tie),
        "num_bonds": model.num_bonds,
        "num_lifts": int(np.sum(model.body_lift != 0)),
        "num_force_ranges": int(np.sum(np.isfinite(model.dof_force_lower) | np.isfinite(model.dof_force_upper))),
        "num_damped_limits": int(np.sum(limited & (model.joint_limit_damping > 0))),
        "num_frictions": int(np.sum(model.dof_friction > 0)),
    }


def law_fields(model: Model, dofs: Dofs) -> list[Field]:
    """Ranges, friction and damped limits of dofs, servos, ties and bonds."""
    sizes, simple = law_sizes(model), dofs.is_simple.astype(bool)
    ranges, damped, rubs = (sizes[name] > 0 for name in ("num_force_ranges", "num_damped_limits", "num_frictions"))
    lifts = sizes["num_lifts"] > 0
    limit_damping = model.joint_limit_damping[dofs.joint] * simple
    return [
        Field("dof_force_lower", _where_used(finite(model.dof_force_lower), ranges), "of motors and servos together"),
        Field("dof_force_upper", _where_used(finite(model.dof_force_upper), ranges), "of motors and servos together"),
        Field("dof_limit_damping", _where_used(limit_damping, damped), "N s/m^2 or N m s/rad^2"),
        Field("dof_friction", _where_used(model.dof_friction, rubs), "dry friction, N or N m"),
        Field("dof_friction_speed", _where_used(model.joint_friction_speed[dofs.joint], rubs), "at its full force"),
        *_servo_fields(model, dofs),
        *_act_kinds(model),
        *_tie_fields(model),
        *_bond_fields(model),
        Field("body_lift", _where_used(model.body_lift, lifts), "mass whose weight is borne from outside, kg"),
        Field("body_lift_position", _where_used(model.body_lift_pos, lifts).ravel(), "where, in the body frame, m"),
    ]


def hill_fields(model: Model) -> list[Field]:
    """Muscles with curves, the pieces of their tendons, and activations."""
    least, most, speed, passive, fastest = model.hill_curve.T.copy()
    per_length = model.hill_gear / model.hill_best_length
    pushes = np.sort(finite(model.hill_force_range) * model.hill_gear[:, None], axis=1)
    rise, fall, smooth = model.act_time.T.copy()
    actuator_hill = np.full(model.num_controls, -1, np.int32)
    actuator_hill[model.hill_actuator] = np.arange(model.num_hills)
    return [
        Field("actuator_hill", actuator_hill, "-1 for one that is no such muscle"),
        Field("hill_actuator", model.hill_actuator, "its control"),
        Field("hill_act", model.hill_act, "its activation, -1 for the control itself"),
        Field("act_actuator", model.act_actuator, "control that it follows"),
        *_piece_fields(model),
        Field("hill_peak", model.hill_peak_force * model.hill_gear, "N along the tendon"),
        Field("hill_per_length", per_length, "1 / m"),
        Field("hill_per_rate", per_length / speed, "s / m"),
        Field("hill_offset", model.hill_offset, "normalised length where the pieces have none"),
        Field("hill_shorter", 2 / (1 - least), "1 / half the width of FL below the best length"),
        Field("hill_longer", 2 / (most - 1), "1 / half the width above"),
        Field("hill_passive", passive, "FP at the end of FL"),
        Field("hill_fastest", fastest, "FV of a muscle that is stretched fast"),
        Field("hill_inverse_rise", 1 / np.maximum(fastest - 1, 1e-15), "1 / (that - 1)"),
        Field("hill_lower", finite(pushes[:, 0]), "N along the tendon"),
        Field("hill_upper", finite(pushes[:, 1]), "N along the tendon"),
        Field("act_rise", rise, "s"),
        Field("act_fall", fall, "s"),
        Field(
            "act_per_gap", np.where(smooth < 1e-15, 0.0, 1 / np.maximum(smooth, 1e-15)), "0: the time constant jumps"
        ),
        Field("act_lower", finite(model.act_range[:, 0]), "range of an activation"),
        Field("act_upper", finite(model.act_range[:, 1]), "range of an activation"),
    ]


def _piece_fields(model: Model) -> list[Field]:
    ends = model.piece_body.ravel()
    on_body = np.flatnonzero(ends != WORLD).astype(np.int32)
    order, body_start = grouped(ends[on_body], model.num_bodies)
    pieces = np.bincount(model.piece_hill, minlength=model.num_hills)
    has_side = np.array(np.isfinite(model.piece_side).all(axis=1), np.int32)
    return [
        Field("hill_piece_start", starts(pieces), "first piece of a muscle"),
        Field("piece_hill", model.piece_hill, "muscle it belongs to"),
        Field("piece_kind", model.piece_kind, "STRAIGHT, AROUND_SPHERE, AROUND_CYLINDER"),
        Field("piece_body_a", model.piece_body[:, 0].copy(), "body of one end, -1 for the world"),
        Field("piece_body_b", model.piece_body[:, 1].copy(), "body of the other"),
        Field("piece_shape_body", model.piece_body[:, 2].copy(), "body of the shape that it may wrap"),
        Field("piece_has_side", has_side, "whether it must pass on one side"),
        Field("body_piece", on_body[order], "3 * piece + which of its bodies, by body"),
        Field("body_piece_start", body_start, "first of a body"),
        Field("piece_point_a", model.piece_point[:, 0].copy(), "end in the frame of body a, m"),
        Field("piece_point_b", model.piece_point[:, 1].copy(), "end in the frame of body b, m"),
        Field("piece_share", model.piece_share, "of its length that counts"),
        Field("piece_middle", model.piece_middle, "of the shape in its body's frame, m"),
        Field("piece_axis", model.piece_axis, "its axes as rows, likewise"),
        Field("piece_radius", model.piece_radius, "m"),
        Field("piece_side", np.nan_to_num(model.piece_side), "where it passes, in the body's frame, m"),
    ]


def pair_sizes(model: Model) -> dict[str, int]:
    """How many shapes touch each other, by kind, and where their constants stand."""
    found = columns(model)
    names = ("pair_stiffness", "pair_damping", "pair_friction_stiffness", "pair_friction")
    return {
        "num_feelers": model.num_feelers,
        "num_pairs": model.num_pairs,
        **{f"num_{kind.name.lower()}_pairs": int((model.pair_kind == kind).sum()) for kind in PairKind},
        **{f"{name}_column": found[name].start if name in found else 0 for name in names},
    }


def pair_fields(model: Model) -> list[Field]:
    """Shapes that touch each other or what is fixed to the world."""
    bodies = model.pair_body.ravel()
    on_body = np.flatnonzero(bodies != WORLD).astype(np.int32)
    order, body_start = grouped(bodies[on_body], model.num_bodies)
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
        Field("field_start", starts(np.array([rows.size for rows in heights], np.int64)), "first in field_height"),
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
