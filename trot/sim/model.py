"""What a robot file becomes: a read-only Model, stored once, with no world index."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from trot.sim.state import State

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

WORLD = -1
"""The parent of a root body, and the body of a muscle waypoint that sits on the ground."""


STRAIGHT, AROUND_SPHERE, AROUND_CYLINDER = 0, 1, 2
"""What a tendon does from one waypoint to the next."""


class JointType(IntEnum):
    """MuJoCo's numbering."""

    FREE = 0
    BALL = 1
    SLIDE = 2
    HINGE = 3

    @property
    def num_plain(self) -> int:
        """Coordinates that are plain numbers, one per dof; they come before the quaternion, if there is one."""
        return {JointType.FREE: 3, JointType.BALL: 0}.get(self, 1)

    @property
    def has_quaternion(self) -> bool:
        return self in (JointType.FREE, JointType.BALL)


class PairKind(IntEnum):
    """What the second shape of a pair is, in the order in which pairs stand in a Model."""

    ROUND = 0
    """A sphere or capsule."""
    BOX = 1
    PLANE = 2
    FIELD = 3
    """A height field."""


class ActKind(IntEnum):
    """How an activation follows its control."""

    MUSCLE = 0
    """With MuJoCo's time constants of rising and falling."""
    FILTER = 1
    """At a rate of the difference over a time constant."""
    EXACT_FILTER = 2
    """As a filter, by its exact solution over a substep."""
    INTEGRATOR = 3
    """The control is its rate."""


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A tree of bodies with at least one dof each: what is welded together is one body.

    Bodies, joints and dofs stand in depth-first order, as in MuJoCo. SI units. Every array is read-only.
    """

    gravity: Floats
    """(3,) acceleration in world axes."""
    ground_height: float | None
    """z of the ground plane; None where the file has no plane."""

    # Bodies: mass properties in the body frame.
    body_name: tuple[str, ...]
    body_parent: Ints
    """(num_bodies,) parent body, WORLD for a root."""
    body_pos: Floats
    """(num_bodies, 3) origin in the parent's frame while every joint of the body is at its reference."""
    body_quat: Floats
    """(num_bodies, 4) orientation w x y z in the parent's frame, likewise."""
    body_mass: Floats
    """(num_bodies,) kg."""
    body_com: Floats
    """(num_bodies, 3) centre of mass."""
    body_inertia: Floats
    """(num_bodies, 3, 3) about the centre of mass, body axes."""

    body_lift: Floats
    """(num_bodies,) mass whose weight is borne from outside (gravcomp), kg."""
    body_lift_pos: Floats
    """(num_bodies, 3) where, in the body frame."""

    # Joints: several per body act one after the other, in order.
    joint_name: tuple[str, ...]
    joint_type: Ints
    joint_body: Ints
    joint_q_start: Ints
    """(num_joints,) first entry in joint_q: free 7, ball 4, slide and hinge 1."""
    joint_dof_start: Ints
    """(num_joints,) first entry in joint_qd: free 6, ball 3, slide and hinge 1."""
    joint_axis: Floats
    """(num_joints, 3) unit axis in the body frame; unused for free and ball."""
    joint_anchor: Floats
    """(num_joints, 3) point in the body frame that the joint turns about."""
    joint_stiffness: Floats
    """(num_joints,) spring towards q_spring, N/m or N m/rad."""
    joint_lower: Floats
    """(num_joints,) lower limit of a hinge or slide, -inf without."""
    joint_upper: Floats
    """(num_joints,) upper limit; for a ball joint the largest angle of rotation; inf without."""
    joint_limit_stiffness: Floats
    """(num_joints,) penalty spring beyond a limit, N/m or N m/rad."""
    joint_limit_damping: Floats
    """(num_joints,) force per depth beyond a limit and speed, N s/m^2 or N m s/rad^2; hinge and slide only."""
    joint_friction_speed: Floats
    """(num_joints,) speed from which on dry friction has its full force, m/s or rad/s."""
    q_reference: Floats
    """(num_q,) joint_q at which the bodies stand as the file draws them."""
    q_spring: Floats
    """(num_q,) joint_q at which the springs are at rest."""

    default_q: Floats
    """(num_q,) joint_q of default_state(): q_reference, or a keyframe's."""
    default_qd: Floats
    """(num_dofs,) joint_qd of default_state(): zeros, or a keyframe's."""

    # Dofs.
    dof_armature: Floats
    """(num_dofs,) rotor inertia added to the diagonal of the mass matrix."""
    dof_damping: Floats
    """(num_dofs,) N s/m or N m s/rad."""
    dof_friction: Floats
    """(num_dofs,) dry friction, N or N m."""
    dof_force_lower: Floats
    """(num_dofs,) least force of all motors and servos together, -inf without."""
    dof_force_upper: Floats
    """(num_dofs,) the largest, inf without."""

    # Shapes that may touch the ground, and the points that stand for them, sorted by body.
    shape_name: tuple[str, ...]
    shape_body: Ints
    shape_stiffness: Floats
    """(num_shapes,) normal force per depth, N/m."""
    shape_damping: Floats
    """(num_shapes,) normal force per depth and approach speed, N s/m^2."""
    shape_friction_stiffness: Floats
    """(num_shapes,) friction per sliding speed while it sticks, N s/m."""
    shape_friction: Floats
    """(num_shapes,) Coulomb's coefficient."""
    point_shape: Ints
    point_pos: Floats
    """(num_points, 3) centre of a small sphere in the body frame: sphere centre, capsule end or surface point."""
    point_radius: Floats
    """(num_points,) 0 for a box corner or another point on a surface."""

    # Shapes that may touch each other, or what is fixed to the world. A feeler is a ball, or a capsule: a ball swept
    # from pos - half to pos + half. A pair is the feelers of one shape against another shape.
    feeler_body: Ints
    """(num_feelers,) WORLD allowed, as in the bodies below."""
    feeler_pos: Floats
    """(num_feelers, 3) its middle in the body frame."""
    feeler_half: Floats
    """(num_feelers, 3) half its axis, zero for a ball."""
    feeler_radius: Floats
    box_body: Ints
    box_pos: Floats
    """(num_boxes, 3) its middle in the body frame."""
    box_quat: Floats
    box_size: Floats
    """(num_boxes, 3) half its sides."""
    plane_pos: Floats
    """(num_planes, 3) a point of it, in the world."""
    plane_normal: Floats
    field_pos: Floats
    """(num_fields, 3) its middle at height 0, in the world."""
    field_quat: Floats
    field_spacing: Floats
    """(num_fields, 2) between two heights along x and along y, m."""
    field_height: tuple[Floats, ...]
    """For each field (rows along y, columns along x), m."""
    pair_name: tuple[str, ...]
    """The two geoms."""
    pair_kind: Ints
    """(num_pairs,) what the second shape is, ascending."""
    pair_body: Ints
    """(num_pairs, 2)"""
    pair_feeler: Ints
    """(num_pairs, 2) first feeler of the first shape, and past the last."""
    pair_solid: Ints
    """(num_pairs,) the second shape: which feeler, box, plane or field."""
    pair_stiffness: Floats
    """(num_pairs,) as of a shape, and so the other three."""
    pair_damping: Floats
    pair_friction_stiffness: Floats
    pair_friction: Floats

    # Actuators, in the file's order: control[a] is clamped to [control_lower[a], control_upper[a]].
    actuator_name: tuple[str, ...]
    control_lower: Floats
    control_upper: Floats
    motor_actuator: Ints
    """(num_motors,) which control drives this entry; a motor on a ball joint has three entries."""
    motor_dof: Ints
    motor_gear: Floats
    """(num_motors,) generalised force per unit of control."""
    servo_actuator: Ints
    servo_act: Ints
    """(num_servos,) which activation drives it; -1 where its control does."""
    servo_gain: Floats
    """(num_servos, 3) force per unit of control: a constant, per length, per rate."""
    servo_bias: Floats
    """(num_servos, 3) force without control, likewise."""
    servo_lower: Floats
    """(num_servos,) least force before the gear, -inf without."""
    servo_upper: Floats
    drive_servo: Ints
    """(num_drives,) ascending; a servo on a fixed tendon has one drive per joint."""
    drive_dof: Ints
    drive_gear: Floats
    """(num_drives,) length per unit of joint_q, and generalised force per unit of the servo's."""
    muscle_actuator: Ints
    muscle_peak_force: Floats
    """(num_muscles,) tension at activation 1, N."""
    segment_muscle: Ints
    """(num_segments,) ascending; only segments whose two ends sit on different bodies are kept."""
    segment_body: Ints
    """(num_segments, 2) bodies of the two waypoints, WORLD allowed."""
    segment_point: Floats
    """(num_segments, 2, 3) waypoints in the frames of those bodies."""

    # Ties: fixed tendons with forces of their own, and equalities of joints.
    tie_name: tuple[str, ...]
    tie_stiffness: Floats
    """(num_ties,) spring outside of the resting range."""
    tie_rest: Floats
    """(num_ties, 2) shortest and longest length at rest."""
    tie_damping: Floats
    tie_limits: Floats
    """(num_ties, 2) shortest and longest allowed length, infinite without."""
    tie_limit_stiffness: Floats
    tie_limit_damping: Floats
    tie_friction: Floats
    tie_friction_speed: Floats
    strand_tie: Ints
    """(num_strands,) ascending; a strand is one joint's part of a tie."""
    strand_joint: Ints
    """(num_strands,) hinges and slides."""
    strand_reference: Floats
    strand_coefficient: Floats
    """(num_strands, 5) polynomial of joint_q less its reference that adds to the tie's length, constant first."""

    # Bonds: what holds two bodies together at a point, and welds in orientation too.
    bond_name: tuple[str, ...]
    bond_body: Ints
    """(num_bonds, 2) WORLD allowed for one of the two."""
    bond_point: Floats
    """(num_bonds, 2, 3) the anchor in the frame of each."""
    bond_quat: Floats
    """(num_bonds, 2, 4) the frame of the bond in that of each; a weld holds the two aligned."""
    bond_stiffness: Floats
    """(num_bonds,) N/m"""
    bond_damping: Floats
    """(num_bonds,) N s/m"""
    bond_turn_stiffness: Floats
    """(num_bonds,) N m/rad, 0 where the bodies may turn."""
    bond_turn_damping: Floats
    """(num_bonds,) N m s/rad"""

    # Muscles with MuJoCo's curves, along tendons that may wrap shapes.
    hill_actuator: Ints
    hill_act: Ints
    """(num_hills,) which activation drives it; -1 where its control does."""
    hill_peak_force: Floats
    """(num_hills,) N before the gear, at the best length and at rest."""
    hill_gear: Floats
    hill_best_length: Floats
    """(num_hills,) that of the largest force, m."""
    hill_offset: Floats
    """(num_hills,) its length without that of the pieces, in best lengths."""
    hill_curve: Floats
    """(num_hills, 5) MuJoCo's lmin, lmax, vmax, fpmax and fvmax."""
    hill_force_range: Floats
    """(num_hills, 2) N before the gear, a pull being negative; infinite without."""
    piece_hill: Ints
    """(num_pieces,) ascending; a piece is the way of a tendon from one waypoint to the next."""
    piece_kind: Ints
    """(num_pieces,) STRAIGHT, AROUND_SPHERE, AROUND_CYLINDER."""
    piece_body: Ints
    """(num_pieces, 3) bodies of the two waypoints and of the shape, WORLD allowed."""
    piece_point: Floats
    """(num_pieces, 2, 3) waypoints in the frames of those bodies."""
    piece_share: Floats
    """(num_pieces,) 1 over the divisor of its pulley."""
    piece_middle: Floats
    """(num_pieces, 3) of the shape in its body's frame."""
    piece_axis: Floats
    """(num_pieces, 3, 3) the shape's axes as rows, in its body's frame; that of a cylinder is the last."""
    piece_radius: Floats
    piece_side: Floats
    """(num_pieces, 3) a point on the side where the tendon passes, in the body's frame; NaN where on either."""

    # Activations: states of their own, which follow a control.
    act_actuator: Ints
    act_kind: Ints
    """(num_acts,) which ActKind."""
    act_time: Floats
    """(num_acts, 3) time constants of rising and falling, s, and the difference of control over which they mix.

    A filter has one time constant, twice; an integrator none."""
    act_range: Floats
    """(num_acts, 2) infinite without."""

    notes: tuple[str, ...]
    """What of the file is approximated or left out, one sentence each."""
    source: mujoco.MjModel = field(repr=False)
    """MuJoCo's compiled model, for drawing and as an oracle."""

    def __post_init__(self) -> None:
        for value in (*vars(self).values(), *self.field_height):
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __repr__(self) -> str:
        counts = f"{self.num_bodies} bodies, {self.num_dofs} dofs, {self.num_controls} controls"
        muscles = f", {self.num_muscles} muscles" if self.num_muscles else ""
        return f"Model({counts}{muscles}, {float(self.body_mass.sum()):.4g} kg)"

    @property
    def num_q(self) -> int:
        return len(self.q_reference)

    @property
    def num_dofs(self) -> int:
        return len(self.dof_armature)

    @property
    def num_bodies(self) -> int:
        return len(self.body_mass)

    @property
    def num_joints(self) -> int:
        return len(self.joint_type)

    @property
    def num_shapes(self) -> int:
        return len(self.shape_body)

    @property
    def num_points(self) -> int:
        return len(self.point_shape)

    @property
    def num_feelers(self) -> int:
        return len(self.feeler_body)

    @property
    def num_pairs(self) -> int:
        return len(self.pair_kind)

    @property
    def num_controls(self) -> int:
        return len(self.control_lower)

    @property
    def num_servos(self) -> int:
        return len(self.servo_actuator)

    @property
    def num_ties(self) -> int:
        return len(self.tie_stiffness)

    @property
    def num_bonds(self) -> int:
        return len(self.bond_stiffness)

    @property
    def num_muscles(self) -> int:
        return len(self.muscle_actuator)

    @property
    def num_segments(self) -> int:
        return len(self.segment_muscle)

    @property
    def num_hills(self) -> int:
        return len(self.hill_actuator)

    @property
    def num_acts(self) -> int:
        """Activations that are states: columns of State.activation."""
        return len(self.act_actuator)

    @property
    def dof_name(self) -> tuple[str, ...]:
        """One name per dof: the joint's own, with an axis appended where the joint has several."""
        suffixes = {JointType.FREE: ("x", "y", "z", "rx", "ry", "rz"), JointType.BALL: ("rx", "ry", "rz")}
        names: list[str] = []
        for name, kind in zip(self.joint_name, self.joint_type, strict=True):
            several = suffixes.get(JointType(kind))
            names += [name] if several is None else [f"{name}.{suffix}" for suffix in several]
        return tuple(names)

    def sample_range(self) -> tuple[Floats, Floats]:
        """A finite range of every control to draw from: its own, or two units of it where it is open."""
        lower, upper = self.control_lower, self.control_upper
        from_above = np.where(np.isfinite(upper), np.minimum(upper - 2, -1), -1.0)
        lower = np.where(np.isfinite(lower), lower, from_above)
        return lower, np.where(np.isfinite(upper), upper, np.maximum(lower + 2, 1))

    def default_state(
        self, num_worlds: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> State:
        """Every world at the file's reference pose and at rest, or as the keyframe says that it was loaded with.

        Activations are 0.
        """
        if not isinstance(num_worlds, int) or num_worlds < 1:
            raise ValueError(f"num_worlds must be a whole number of at least 1, not {num_worlds}")
        joint_q = torch.tensor(self.default_q, device=device, dtype=dtype).repeat(num_worlds, 1)
        joint_qd = torch.tensor(self.default_qd, device=device, dtype=dtype).repeat(num_worlds, 1)
        activation = joint_q.new_zeros(num_worlds, self.num_acts) if self.num_acts else None
        return State(joint_q, joint_qd, activation=activation)
