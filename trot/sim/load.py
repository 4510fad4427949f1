"""From a robot file to a Model: MuJoCo's compiler reads MJCF and URDF, trot keeps what it simulates."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from trot.sim.actuators import Actuators, read_actuators
from trot.sim.added_actuators import AddedActuators, Gains, Kind
from trot.sim.errors import ModelError
from trot.sim.finite import refuse_written_nan, require_finite
from trot.sim.model import Floats, JointType, Model
from trot.sim.shapes import Shapes, find_obstacles, read_shapes
from trot.sim.ties import AxisConstants, Ties, axis_constants, friction_is_on, read_ties
from trot.sim.unsupported import disabled, find_unsupported, name_of
from trot.sim.weld import Welds, fold_welds, mass_properties

__all__ = ["ModelError", "load_model"]

NOTHING_ASKED = AddedActuators()
"""Motors for a URDF, nothing for MJCF."""

_MUJOCO_CLOCK = 1.0
"""How finely MuJoCo tells the changes of a file apart, s."""

_EVERY_MASK = 0x7FFFFFFF
"""A ground that touches every geom which can touch anything."""


def load_model(
    source: str | os.PathLike[str],
    *,
    floating_base: bool = False,
    ground: bool = False,
    actuators: Kind | None = None,
    kp: Gains | None = None,
    kd: Gains | None = None,
) -> Model:
    """Read a robot from a path to MJCF or URDF, or from the XML text itself.

    floating_base gives the first body, which must have no joint of its own, a free joint. ground adds the plane
    z = 0 where the file has none, as no URDF has. actuators gives every hinge and slide of a file without actuators a
    motor (what a URDF gets anyway), a servo to a position (kp, and kd against its speed) or to a velocity (kd). Gains
    by name are for the joints named only. What the file asks for and trot does not simulate raises ModelError;
    docs/robots.md lists it.
    """
    text, path = _read(source)
    added = AddedActuators.of(actuators, kp, kd)
    with _naming(path):
        return _build(*_compile(text, path, floating_base, ground, added), text, path)


@dataclass(frozen=True)
class Loaded:
    """A model, and what its files said."""

    model: Model
    content: bytes
    """A digest of all that the model is made from: the file itself, what it includes, and meshes."""


def load_if_changed(
    source: str | os.PathLike[str],
    before: Loaded | None,
    *,
    floating_base: bool = False,
    ground: bool = False,
    added: AddedActuators = NOTHING_ASKED,
) -> Loaded:
    """The robot as its files are now, as load_model() reads it; `before` itself where nothing in them has changed."""
    text, path = _read(source)
    with _naming(path):
        spec, compiled = _compile(text, path, floating_base, ground, added)
        content = _digest(spec, compiled, text)
        if before is not None and before.content == content:
            return before
        return Loaded(_build(spec, compiled, text, path), content)


def compile_robot(
    source: str | os.PathLike[str],
    *,
    floating_base: bool = False,
    ground: bool = False,
    added: AddedActuators = NOTHING_ASKED,
) -> tuple[mujoco.MjSpec, mujoco.MjModel]:
    """The robot as MuJoCo's own, before and after its compiler, with what load_model() would add to it."""
    return _compile(*_read(source), floating_base, ground, added)


def _compile(
    text: str, path: Path | None, floating_base: bool, ground: bool, added: AddedActuators
) -> tuple[mujoco.MjSpec, mujoco.MjModel]:
    """Let MuJoCo read the file, add what the caller asks for, and compile."""
    try:
        # Halves of a character pair, which only a str of Python's can hold, would be a TypeError of the next call.
        text.encode()
        # Meshes and included files are found relative to the path, so the text alone does not do.
        spec = mujoco.MjSpec.from_string(text) if path is None else mujoco.MjSpec.from_file(str(path))
        added.add_to(spec, _is_urdf(text))
        if floating_base:
            _free_first_body(spec)
        if ground:
            _add_ground(spec)
        compiled = spec.compile()
    except ValueError as error:
        raise ModelError(str(error).strip()) from error
    except (RuntimeError, MemoryError, mujoco.FatalError) as error:
        raise ModelError(f"MuJoCo cannot read it, perhaps for want of memory: {str(error).strip()}") from error
    if path is not None:
        _forget_fresh_assets(spec, path.parent)
    return spec, compiled


@contextlib.contextmanager
def _naming(path: Path | None) -> Iterator[None]:
    """Begin what is wrong with a robot by the name of its file."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{path or 'robot'}: {error}") from None


def _digest(spec: mujoco.MjSpec, compiled: mujoco.MjModel, text: str) -> bytes:
    """The same for the same robot only."""
    content = np.empty(mujoco.mj_sizeModel(compiled), np.uint8)
    mujoco.mj_saveModel(compiled, None, content)
    digest = hashlib.sha256(content.tobytes())
    user = [[list(part.userdata) for part in parts] for parts in (spec.joints, spec.geoms, spec.tendons)]
    digest.update(repr((_is_urdf(text), user)).encode())
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


def _add_ground(spec: mujoco.MjSpec) -> None:
    plane = mujoco.mjtGeom.mjGEOM_PLANE
    if any(geom.type == plane and (geom.contype or geom.conaffinity) for geom in spec.geoms):
        return
    spec.worldbody.add_geom(
        type=plane, size=[0, 0, 1], pos=[0, 0, 0], quat=[1, 0, 0, 0], contype=_EVERY_MASK, conaffinity=_EVERY_MASK
    )


def _build(spec: mujoco.MjSpec, compiled: mujoco.MjModel, text: str, path: Path | None) -> Model:
    """Keep what trot simulates."""
    welds = fold_welds(compiled)
    problems = list(find_unsupported(compiled))
    # A URDF tells the robot alone: what is fixed to the world there is its foot, and stands in nobody's way.
    if not _is_urdf(text):
        problems += find_obstacles(compiled, welds)
    # The compiler pads the user attribute with zeros; the spec still knows how many numbers the file gives.
    joint_user, geom_user, tendon_user = (
        {part.id: np.array(part.userdata, dtype=float) for part in parts}
        for parts in (spec.joints, spec.geoms, spec.tendons)
    )
    actuators, ties = read_actuators(compiled, welds), read_ties(compiled, tendon_user)
    joint_constants, wrong_joints = _joint_constants(compiled, joint_user)
    problems += [*actuators.problems, *ties.problems, *wrong_joints]
    if problems:
        raise ModelError("\n  ".join(problems))
    if len(welds.moving) == 0:
        raise ModelError("no body moves. Give at least one body a joint, or load with floating_base=True.")

    notes = [*ties.notes, *_friction_notes(compiled, joint_constants)]
    # What is not finite is named below; NumPy need not warn of it.
    with np.errstate(all="ignore"):
        model = Model(
            gravity=np.array(compiled.opt.gravity) * (not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_GRAVITY)),
            **_body_fields(compiled, welds),
            **_joint_fields(compiled, welds, joint_constants),
            **_shape_fields(read_shapes(compiled, welds, geom_user)),
            **_actuator_fields(actuators),
            **_tie_fields(ties),
            notes=tuple(notes),
            source=compiled,
        )
    require_finite(model)
    refuse_written_nan(text, path)
    return model


def _body_fields(compiled: mujoco.MjModel, welds: Welds) -> dict[str, Any]:
    parents = compiled.body_parentid[welds.moving]
    poses = [
        welds.place(parent, compiled.body_pos[body], compiled.body_quat[body])
        for body, parent in zip(welds.moving, parents, strict=True)
    ]
    mass, com, inertia = mass_properties(compiled, welds)
    return {
        "body_name": tuple(name_of(compiled, "body", int(body)) for body in welds.moving),
        "body_parent": welds.owner[parents],
        "body_pos": np.array([pos for pos, _ in poses]),
        "body_quat": np.array([quat for _, quat in poses]),
        "body_mass": mass,
        "body_com": com,
        "body_inertia": inertia,
    }


def _joint_fields(compiled: mujoco.MjModel, welds: Welds, constants: list[AxisConstants]) -> dict[str, Any]:
    """Joints, coordinates and dofs: MuJoCo's own, because welding removes none of them."""
    springs = not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_SPRING)
    dampers = not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_DAMPER)
    lower, upper = _joint_limits(compiled)
    joints = range(compiled.njnt)
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


def _joint_constants(compiled: mujoco.MjModel, user: dict[int, Floats]) -> tuple[list[AxisConstants], list[str]]:
    """Of every joint, and what is wrong with their user attributes."""
    constants, problems = list[AxisConstants](), list[str]()
    for joint in range(compiled.njnt):
        owner = f"joint '{name_of(compiled, 'joint', joint)}'"
        found, problem = axis_constants(owner, user.get(joint, np.zeros(0)))
        constants.append(found)
        if problem is not None:
            problems.append(problem)
        if found.limit_damping and compiled.jnt_type[joint] == JointType.BALL:
            problems.append(f"{owner} is a ball, whose limit has no damping. Give 0 as the second user number.")
    return constants, problems


def _friction_notes(compiled: mujoco.MjModel, constants: list[AxisConstants]) -> Iterator[str]:
    """One sentence per speed at which dry friction is full."""
    rubbing = compiled.dof_frictionloss[compiled.jnt_dofadr] * friction_is_on(compiled) > 0
    for speed in sorted({constants[joint].friction_speed for joint in np.flatnonzero(rubbing)}):
        joints = [joint for joint in np.flatnonzero(rubbing) if constants[joint].friction_speed == speed]
        more = f" and {len(joints) - 1} more" if len(joints) > 1 else ""
        yield (
            f"frictionloss of joint '{name_of(compiled, 'joint', int(joints[0]))}'{more} is smooth: full from "
            f"{speed:g} rad/s or m/s on, and a joint at rest creeps."
        )


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


def _actuator_fields(actuators: Actuators) -> dict[str, Any]:
    return {
        "actuator_name": tuple(actuators.name),
        "control_lower": np.array(actuators.control_lower, float),
        "control_upper": np.array(actuators.control_upper, float),
        "motor_actuator": np.array(actuators.motor_actuator, np.int32),
        "motor_dof": np.array(actuators.motor_dof, np.int32),
        "motor_gear": np.array(actuators.motor_gear, float),
        "servo_actuator": np.array(actuators.servo_actuator, np.int32),
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
