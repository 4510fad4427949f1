"""From a robot file to a Model: MuJoCo's compiler reads MJCF and URDF, trot keeps what it simulates."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from trot.sim.activations import act_fields
from trot.sim.actuators import Actuators, read_actuators
from trot.sim.added_actuators import Gains, Kind
from trot.sim.assets import settle_assets
from trot.sim.axis_constants import UserNumbers, axis_constants, find_damped_balls, friction_is_on, tell_friction
from trot.sim.bonds import bond_fields, read_bonds
from trot.sim.errors import ModelError
from trot.sim.finite import refuse_written_nan, require_finite
from trot.sim.hill_muscles import Muscles, hill_fields, muscle_notes
from trot.sim.inertias import repair_inertias
from trot.sim.keyframes import find_beyond_limits, read_keyframe
from trot.sim.leave_out import leave_out as leave_out_parts
from trot.sim.load_options import CONTACT, MESH_POINTS, AnyPath, LoadOptions, make_options
from trot.sim.model import Floats, JointType, Model
from trot.sim.notes import Findings, listed, verb
from trot.sim.pair_tables import Pairs
from trot.sim.pairs import read_pairs, same_tree
from trot.sim.shapes import Shapes, find_ground, read_shapes
from trot.sim.surfaces import Surfaces
from trot.sim.ties import Ties, read_ties
from trot.sim.unsupported import disabled, find_unsupported, name_of
from trot.sim.weld import Welds, fold_welds, lifted_masses, mass_properties

__all__ = ["ModelError", "load_model"]

_MUJOCO_CLOCK = 1.0
"""How finely MuJoCo tells the changes of a file apart, s."""

_EVERY_MASK = 0x7FFFFFFF
"""A ground that touches every geom which can touch anything."""

_LOWEST_PRIORITY = -0x7FFFFFFF
"""A ground whose friction never counts."""


def load_model(
    source: str | os.PathLike[str],
    *,
    floating_base: bool = False,
    ground: bool = False,
    actuators: Kind | None = None,
    kp: Gains | None = None,
    kd: Gains | None = None,
    self_collision: bool = False,
    keyframe: str | None = None,
    repair_inertia: bool = False,
    package_path: AnyPath | Iterable[AnyPath] = (),
    leave_out: str | Iterable[str] = (),
    mesh_points: int = MESH_POINTS,
    muscles: Muscles = "hill",
    contact: Iterable[float] = CONTACT,
    armature: float = 0.0,
) -> Model:
    """Read a robot from a path to MJCF or URDF, or from the XML text itself.

    floating_base gives the first body, which must have no joint of its own, a free joint. ground adds the plane
    z = 0 where the file has none, as no URDF has. actuators gives every hinge and slide of a file without actuators a
    motor (what a URDF gets anyway), a servo to a position (kp, and kd against its speed) or to a velocity (kd); gains
    by name are for the joints named only. With self_collision moving bodies touch each other where the file's masks let
    them; else they pass through each other. keyframe names the <key> that default_state() begins with.
    repair_inertia changes inertias that no body can have. package_path lists folders to look for meshes in. leave_out
    names what may be lost: equality, fluid, gravcomp, meshes, plugins, tendons. mesh_points is how many points of a
    mesh touch the ground, at most. A <muscle> is as in MuJoCo, or with muscles="tension" a constant tension times its
    control. contact is the stiffness, damping and friction stiffness of shapes whose geoms give none, armature the
    rotor inertia of hinges and slides that have none.

    Model.notes tells what was approximated, repaired or left out. What the file asks for and trot does not simulate
    raises ModelError, a line per reason; docs/robots.md lists it.
    """
    options = make_options(
        package_path, leave_out, floating_base=floating_base, ground=ground, actuators=actuators, kp=kp, kd=kd,
        self_collision=self_collision, keyframe=keyframe, repair_inertia=repair_inertia, mesh_points=mesh_points,
        muscles=muscles, contact=contact, armature=armature,
    )  # fmt: skip
    text, path = _read(source)
    with _naming(path):
        return _build(_compile(text, path, options), text, path, options)


@dataclass(frozen=True)
class Loaded:
    """A model, and what its files said."""

    model: Model
    content: bytes
    """A digest of all that the model is made from: the file itself, what it includes, and meshes."""


def load_if_changed(
    source: str | os.PathLike[str], before: Loaded | None, options: LoadOptions | None = None
) -> Loaded:
    """The robot as its files are now, as load_model() reads it; `before` itself where nothing in them has changed.

    `before` must have been loaded with the same options.
    """
    options = LoadOptions() if options is None else options
    text, path = _read(source)
    with _naming(path):
        robot = _compile(text, path, options)
        content = _digest(robot, text)
        if before is not None and before.content == content:
            return before
        return Loaded(_build(robot, text, path, options), content)


def compile_robot(
    source: str | os.PathLike[str], options: LoadOptions | None = None
) -> tuple[mujoco.MjSpec, mujoco.MjModel]:
    """The robot as MuJoCo's own, before and after its compiler, with what load_model() would change of it."""
    text, path = _read(source)
    robot = _compile(text, path, LoadOptions() if options is None else options)
    robot.found.raise_problems()
    return robot.spec, robot.compiled


@dataclass(frozen=True)
class _Robot:
    """What MuJoCo makes of a file, and what was told on the way."""

    spec: mujoco.MjSpec
    compiled: mujoco.MjModel
    found: Findings


def _compile(text: str, path: Path | None, options: LoadOptions) -> _Robot:
    """Let MuJoCo read the file, add what the caller asks for, and compile."""
    found = Findings()
    try:
        # Halves of a character pair, which only a str of Python's can hold, would be a TypeError of the next call.
        text.encode()
        spec = _parse(text, path, options, found)
        try:
            compiled = spec.compile()
        except ValueError:
            # The compiler leaves the specification half changed.
            found = Findings()
            spec = _parse(text, path, options, found)
            _mend(spec, path, options, found)
            compiled = spec.compile()
    except ValueError as error:
        raise ModelError("\n  ".join([*found.problems, str(error).strip()])) from error
    except (RuntimeError, MemoryError, mujoco.FatalError) as error:
        raise ModelError(f"MuJoCo cannot read it, perhaps for want of memory: {str(error).strip()}") from error
    if path is not None:
        _forget_fresh_assets(spec, path.parent)
    return _Robot(spec, compiled, found)


def _parse(text: str, path: Path | None, options: LoadOptions, found: Findings) -> mujoco.MjSpec:
    # Meshes and included files are found relative to the path, so the text alone does not do.
    spec = mujoco.MjSpec.from_string(text) if path is None else mujoco.MjSpec.from_file(str(path))
    found.notes += leave_out_parts(spec, options.leave_out)
    options.added_actuators.add_to(spec, _is_urdf(text))
    _add_armature(spec, options.armature)
    if options.floating_base:
        _free_first_body(spec)
        found.notes += _without_keyframes(spec)
    if options.ground:
        _add_ground(spec)
    return spec


def _mend(spec: mujoco.MjSpec, path: Path | None, options: LoadOptions, found: Findings) -> None:
    """Do about a specification that MuJoCo does not compile what can be done: meshes without files, odd inertias."""
    found.problems += settle_assets(spec, None if path is None else path.parent, options, found.notes)
    for wrong, done in repair_inertias(spec):
        if options.repair_inertia:
            found.notes.append(f"{wrong}; {done}.")
        else:
            found.problems.append(f"{wrong}. Correct the file, or load with repair_inertia=True: {done}.")


@contextlib.contextmanager
def _naming(path: Path | None) -> Iterator[None]:
    """Begin what is wrong with a robot by the name of its file."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path or 'robot'}: {error}") from None


def _digest(robot: _Robot, text: str) -> bytes:
    """The same for the same robot only."""
    content = np.empty(mujoco.mj_sizeModel(robot.compiled), np.uint8)
    mujoco.mj_saveModel(robot.compiled, None, content)
    digest = hashlib.sha256(content.tobytes())
    user = [[list(part.userdata) for part in parts] for parts in _user_parts(robot.spec)]
    sizes = (robot.spec.nuser_jnt, robot.spec.nuser_tendon)
    digest.update(repr((_is_urdf(text), user, sizes, robot.found)).encode())
    return digest.digest()


def _forget_fresh_assets(spec: mujoco.MjSpec, folder: Path) -> None:
    """Empty MuJoCo's memory of meshes where one was written just now, or cannot be found to ask.

    MuJoCo reads a mesh again when the second of its last change is another, so that of two changes within a second it
    would miss one.
    """
    names = [(spec.meshdir, mesh.file) for mesh in (*spec.meshes, *spec.hfields)]
    names += [(spec.texturedir, texture.file) for texture in spec.textures]
    files = [folder / directory / name for directory, name in names if name]
    latest = time.time() - 2 * _MUJOCO_CLOCK
    if not all(file.is_file() and file.stat().st_mtime < latest for file in files):
        mujoco.mj_clearCache(mujoco.mj_getCache())


def _read(source: str | os.PathLike[str]) -> tuple[str, Path | None]:
    """The XML text, and the file that it comes from."""
    if isinstance(source, str) and source.lstrip().startswith("<"):
        return source, None
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"no robot file '{source}'")
    if path.suffix.lower() not in (".xml", ".urdf"):
        raise ModelError(f"{path}: a robot file ends in .xml or .urdf. Rename it, or pass its text.")
    return path.read_text(encoding="utf-8", errors="replace"), path


def _is_urdf(text: str) -> bool:
    root = re.search(r"<([A-Za-z]\w*)", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
    return root is not None and root[1] == "robot"


def _free_first_body(spec: mujoco.MjSpec) -> None:
    body = spec.worldbody.first_body()
    if body is None:
        raise ModelError("floating_base needs a body, and the file has none.")
    if body.joints:
        raise ModelError(f"floating_base: body '{body.name}' already has a joint. Load without floating_base.")
    body.add_freejoint()


def _add_armature(spec: mujoco.MjSpec, armature: float) -> None:
    for joint in spec.joints:
        if joint.armature == 0 and joint.type in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE):
            joint.armature = armature


def _without_keyframes(spec: mujoco.MjSpec) -> Iterator[str]:
    """Poses of the file have no numbers for a joint that the file does not have."""
    names = [key.name for key in spec.keys]
    for key in list(spec.keys):
        spec.delete(key)
    if names:
        yield f"{listed('keyframe', names)} {verb(names, 'is', 'are')} left out: floating_base adds coordinates."


def _add_ground(spec: mujoco.MjSpec) -> None:
    plane = mujoco.mjtGeom.mjGEOM_PLANE
    if any(geom.type == plane and (geom.contype or geom.conaffinity) for geom in spec.geoms):
        return
    # The friction of the robot's shapes decides.
    spec.worldbody.add_geom(
        type=plane, size=[0, 0, 1], pos=[0, 0, 0], quat=[1, 0, 0, 0], contype=_EVERY_MASK, conaffinity=_EVERY_MASK,
        priority=_LOWEST_PRIORITY,
    )  # fmt: skip


def _build(robot: _Robot, text: str, path: Path | None, options: LoadOptions) -> Model:
    """Keep what trot simulates."""
    compiled, found = robot.compiled, robot.found
    welds = fold_welds(compiled)
    found.problems += find_unsupported(compiled)
    found.notes += muscle_notes(compiled, options.muscles)
    # What is not finite is named below; NumPy need not warn of it.
    with np.errstate(all="ignore"):
        actuators = read_actuators(compiled, welds, options.muscles)
        found.problems += actuators.problems
        joints = _joint_fields(compiled, welds, _joint_user(robot.spec), found)
        ties = read_ties(compiled, _tendon_user(robot.spec), found)
        bonds = read_bonds(compiled, welds, found)
        shapes, pairs = _read_contacts(robot, welds, options, alone=_is_urdf(text))
        pose = read_keyframe(compiled, options.keyframe, found)
        found.raise_problems()
        if len(welds.moving) == 0:
            raise ModelError("no body moves. Give at least one body a joint, or load with floating_base=True.")
        model = Model(
            gravity=np.array(compiled.opt.gravity) * (not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_GRAVITY)),
            **_body_fields(compiled, welds),
            **joints,
            **pose,
            **_shape_fields(shapes),
            **_pair_fields(pairs),
            **_actuator_fields(actuators),
            **_tie_fields(ties),
            **bond_fields(bonds),
            notes=(),
            source=compiled,
        )
    require_finite(model)
    refuse_written_nan(text, path)
    return replace(model, notes=(*found.notes, *find_beyond_limits(model)))


def _user_parts(spec: mujoco.MjSpec) -> tuple[list[Any], ...]:
    """All that may have a user attribute of trot's."""
    return spec.joints, spec.geoms, spec.tendons


def _user(parts: list[Any]) -> dict[int, Floats]:
    """The user attribute of each; the compiler pads it with zeros, the specification knows how many the file gives."""
    return {part.id: np.array(part.userdata, dtype=float) for part in parts}


def _joint_user(spec: mujoco.MjSpec) -> UserNumbers:
    return UserNumbers(_user(spec.joints), spec.nuser_jnt)


def _tendon_user(spec: mujoco.MjSpec) -> UserNumbers:
    return UserNumbers(_user(spec.tendons), spec.nuser_tendon)


def _read_contacts(robot: _Robot, welds: Welds, options: LoadOptions, *, alone: bool) -> tuple[Shapes, Pairs]:
    """What touches the ground, and what else touches what. A file that is alone tells of nothing but the robot."""
    compiled, found = robot.compiled, robot.found
    surfaces = Surfaces(compiled, _user(robot.spec.geoms), options.contact, found)
    ground = find_ground(compiled, welds)
    shapes = read_shapes(compiled, welds, ground, surfaces, options.mesh_points, found)
    # What is fixed to the world in such a file is the robot's foot.
    own = (lambda fixed, other: True) if alone else same_tree(compiled)
    pairs = read_pairs(
        compiled, welds, ground, surfaces, own, self_collision=options.self_collision, mesh_points=options.mesh_points,
        found=found,
    )  # fmt: skip
    found.notes += surfaces.notes()
    return shapes, pairs


def _body_fields(compiled: mujoco.MjModel, welds: Welds) -> dict[str, Any]:
    parents = compiled.body_parentid[welds.moving]
    poses = [
        welds.place(parent, compiled.body_pos[body], compiled.body_quat[body])
        for body, parent in zip(welds.moving, parents, strict=True)
    ]
    mass, com, inertia = mass_properties(compiled, welds)
    lift, lift_pos = lifted_masses(compiled, welds)
    return {
        "body_name": tuple(name_of(compiled, "body", int(body)) for body in welds.moving),
        "body_parent": welds.owner[parents],
        "body_pos": np.array([pos for pos, _ in poses]),
        "body_quat": np.array([quat for _, quat in poses]),
        "body_mass": mass,
        "body_com": com,
        "body_inertia": inertia,
        "body_lift": lift,
        "body_lift_pos": lift_pos,
    }


def _joint_fields(compiled: mujoco.MjModel, welds: Welds, user: UserNumbers, found: Findings) -> dict[str, Any]:
    """Joints, coordinates and dofs: MuJoCo's own, because welding removes none of them."""
    springs = not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_SPRING)
    dampers = not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_DAMPER)
    lower, upper = _joint_limits(compiled)
    joints = range(compiled.njnt)
    constants = axis_constants(compiled, "joint", joints, user, found)
    found.problems += find_damped_balls(compiled, constants)
    found.notes += tell_friction(compiled, constants)
    return {
        "joint_name": tuple(name_of(compiled, "joint", joint) for joint in joints),
        "joint_type": np.array(compiled.jnt_type, np.int32),
        "joint_body": welds.owner[compiled.jnt_bodyid],
        "joint_q_start": np.array(compiled.jnt_qposadr, np.int32),
        "joint_dof_start": np.array(compiled.jnt_dofadr, np.int32),
        "joint_axis": np.array(compiled.jnt_axis),
        "joint_anchor": np.array(compiled.jnt_pos),
        "joint_stiffness": compiled.jnt_stiffness * springs,
        "joint_lower": lower,
        "joint_upper": upper,
        "joint_limit_stiffness": np.array([each.limit_stiffness for each in constants]),
        "joint_limit_damping": np.array([each.limit_damping for each in constants]),
        "joint_friction_speed": np.array([each.friction_speed for each in constants]),
        "q_reference": np.array(compiled.qpos0),
        "q_spring": np.array(compiled.qpos_spring),
        "dof_armature": np.array(compiled.dof_armature),
        "dof_damping": compiled.dof_damping * dampers,
        "dof_friction": compiled.dof_frictionloss * friction_is_on(compiled),
    }


def _joint_limits(compiled: mujoco.MjModel) -> tuple[Floats, Floats]:
    """Lower and upper limit per joint; a ball joint has only an upper one, on its angle of rotation."""
    lower, upper = np.full(compiled.njnt, -np.inf), np.full(compiled.njnt, np.inf)
    if disabled(compiled, mujoco.mjtDisableBit.mjDSBL_LIMIT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT):
        return lower, upper
    limited = compiled.jnt_limited.astype(bool)
    one_axis = limited & (compiled.jnt_type != JointType.BALL)
    lower[one_axis] = compiled.jnt_range[one_axis, 0]
    upper[limited] = compiled.jnt_range[limited, 1]
    return lower, upper


def _shape_fields(shapes: Shapes) -> dict[str, Any]:
    stiffness, damping, friction_stiffness, friction = shapes.constants.T.copy()
    return {
        "ground_height": shapes.ground_height,
        "shape_name": shapes.name,
        "shape_body": shapes.body,
        "shape_stiffness": stiffness,
        "shape_damping": damping,
        "shape_friction_stiffness": friction_stiffness,
        "shape_friction": friction,
        "point_shape": shapes.point_shape,
        "point_pos": shapes.point_pos,
        "point_radius": shapes.point_radius,
    }


def _pair_fields(pairs: Pairs) -> dict[str, Any]:
    stiffness, damping, friction_stiffness, friction = np.array(pairs.pair_constants).reshape(-1, 4).T.copy()
    return {
        "feeler_body": np.array(pairs.feeler_body, np.int32),
        "feeler_pos": np.array(pairs.feeler_pos, float).reshape(-1, 3),
        "feeler_half": np.array(pairs.feeler_half, float).reshape(-1, 3),
        "feeler_radius": np.array(pairs.feeler_radius, float),
        "box_body": np.array(pairs.box_body, np.int32),
        "box_pos": np.array(pairs.box_pos, float).reshape(-1, 3),
        "box_quat": np.array(pairs.box_quat, float).reshape(-1, 4),
        "box_size": np.array(pairs.box_size, float).reshape(-1, 3),
        "plane_pos": np.array(pairs.plane_pos, float).reshape(-1, 3),
        "plane_normal": np.array(pairs.plane_normal, float).reshape(-1, 3),
        "field_pos": np.array(pairs.field_pos, float).reshape(-1, 3),
        "field_quat": np.array(pairs.field_quat, float).reshape(-1, 4),
        "field_spacing": np.array(pairs.field_spacing, float).reshape(-1, 2),
        "field_height": tuple(pairs.field_height),
        "pair_name": tuple(pairs.pair_name),
        "pair_kind": np.array(pairs.pair_kind, np.int32),
        "pair_body": np.array(pairs.pair_body, np.int32).reshape(-1, 2),
        "pair_feeler": np.array(pairs.pair_feeler, np.int32).reshape(-1, 2),
        "pair_solid": np.array(pairs.pair_solid, np.int32),
        "pair_stiffness": stiffness,
        "pair_damping": damping,
        "pair_friction_stiffness": friction_stiffness,
        "pair_friction": friction,
    }


def _actuator_fields(actuators: Actuators) -> dict[str, Any]:
    return {
        "actuator_name": tuple(actuators.name),
        "control_lower": np.array(actuators.control_lower, float),
        "control_upper": np.array(actuators.control_upper, float),
        "motor_actuator": np.array(actuators.motor_actuator, np.int32),
        "motor_dof": np.array(actuators.motor_dof, np.int32),
        "motor_gear": np.array(actuators.motor_gear, float),
        "servo_actuator": np.array(actuators.servo_actuator, np.int32),
        "servo_act": np.array(actuators.servo_act, np.int32),
        "servo_gain": np.array(actuators.servo_gain, float).reshape(-1, 3),
        "servo_bias": np.array(actuators.servo_bias, float).reshape(-1, 3),
        "servo_lower": np.array(actuators.servo_lower, float),
        "servo_upper": np.array(actuators.servo_upper, float),
        "drive_servo": np.array(actuators.drive_servo, np.int32),
        "drive_dof": np.array(actuators.drive_dof, np.int32),
        "drive_gear": np.array(actuators.drive_gear, float),
        "dof_force_lower": actuators.force_lower,
        "dof_force_upper": actuators.force_upper,
        "muscle_actuator": np.array(actuators.muscle_actuator, np.int32),
        "muscle_peak_force": np.array(actuators.muscle_peak_force, float),
        "segment_muscle": np.array(actuators.segment_muscle, np.int32),
        "segment_body": np.array(actuators.segment_body, np.int32).reshape(-1, 2),
        "segment_point": np.array(actuators.segment_point, float).reshape(-1, 2, 3),
        **hill_fields(actuators.hills),
        **act_fields(actuators.acts),
    }


def _tie_fields(ties: Ties) -> dict[str, Any]:
    return {
        "tie_name": tuple(ties.name),
        "tie_stiffness": np.array(ties.stiffness, float),
        "tie_rest": np.array(ties.rest, float).reshape(-1, 2),
        "tie_damping": np.array(ties.damping, float),
        "tie_limits": np.array(ties.limits, float).reshape(-1, 2),
        "tie_limit_stiffness": np.array([each.limit_stiffness for each in ties.constants], float),
        "tie_limit_damping": np.array([each.limit_damping for each in ties.constants], float),
        "tie_friction": np.array(ties.friction, float),
        "tie_friction_speed": np.array([each.friction_speed for each in ties.constants], float),
        "strand_tie": np.array(ties.strand_tie, np.int32),
        "strand_joint": np.array(ties.strand_joint, np.int32),
        "strand_reference": np.array(ties.strand_reference, float),
        "strand_coefficient": np.array(ties.strand_coefficient, float).reshape(-1, 5),
    }
