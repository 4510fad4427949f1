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
from trot.sim.errors import ModelError
from trot.sim.finite import refuse_written_nan, require_finite
from trot.sim.hill_muscles import Muscles, hill_fields, muscle_notes
from trot.sim.model import Floats, JointType, Model
from trot.sim.pairs import Pairs, read_pairs
from trot.sim.shapes import Shapes, find_ground, read_shapes
from trot.sim.unsupported import disabled, find_unsupported, name_of
from trot.sim.weld import Welds, fold_welds, mass_properties

__all__ = ["ModelError", "load_model"]

LIMIT_STIFFNESS = 1e3
"""N/m or N m/rad, where a joint has no user attribute."""

_MUJOCO_CLOCK = 1.0
"""How finely MuJoCo tells the changes of a file apart, s."""

_EVERY_MASK = 0x7FFFFFFF
"""A ground that touches every geom which can touch anything."""


def load_model(
    source: str | os.PathLike[str],
    *,
    floating_base: bool = False,
    ground: bool = False,
    self_collision: bool = False,
    muscles: Muscles = "hill",
) -> Model:
    """Read a robot from a path to MJCF or URDF, or from the XML text itself.

    floating_base gives the first body, which must have no joint of its own, a free joint. ground adds the plane
    z = 0 where the file has none, as no URDF has. With self_collision moving bodies touch each other where the file's
    masks let them; else they pass through each other. A <muscle> is as in MuJoCo, or with muscles="tension" a constant
    tension times its control. What the file asks for and trot does not simulate raises
    ModelError; docs/robots.md lists it.
    """
    text, path = _read(source)
    with _naming(path):
        return _build(*_compile(text, path, floating_base, ground), text, path, self_collision, muscles)


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
    self_collision: bool = False,
    muscles: Muscles = "hill",
) -> Loaded:
    """The robot as its files are now, as load_model() reads it; `before` itself where nothing in them has changed."""
    text, path = _read(source)
    with _naming(path):
        spec, compiled = _compile(text, path, floating_base, ground)
        content = _digest(spec, compiled, text)
        if before is not None and before.content == content:
            return before
        return Loaded(_build(spec, compiled, text, path, self_collision, muscles), content)


def compile_robot(
    source: str | os.PathLike[str], *, floating_base: bool = False, ground: bool = False
) -> tuple[mujoco.MjSpec, mujoco.MjModel]:
    """The robot as MuJoCo's own, before and after its compiler, with what load_model() would add to it."""
    return _compile(*_read(source), floating_base, ground)


def _compile(text: str, path: Path | None, floating_base: bool, ground: bool) -> tuple[mujoco.MjSpec, mujoco.MjModel]:
    """Let MuJoCo read the file, add what the caller asks for, and compile."""
    try:
        # Halves of a character pair, which only a str of Python's can hold, would be a TypeError of the next call.
        text.encode()
        # Meshes and included files are found relative to the path, so the text alone does not do.
        spec = mujoco.MjSpec.from_string(text) if path is None else mujoco.MjSpec.from_file(str(path))
        if _is_urdf(text):
            _add_motors(spec)
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
    user = [[list(part.userdata) for part in parts] for parts in (spec.joints, spec.geoms)]
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


def _add_motors(spec: mujoco.MjSpec) -> None:
    """One motor per hinge or slide of a URDF, which has no actuators; its effort then bounds the control."""
    for joint in spec.joints:
        if joint.type in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE):
            motor = spec.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            motor.set_to_motor()


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


def _build(
    spec: mujoco.MjSpec,
    compiled: mujoco.MjModel,
    text: str,
    path: Path | None,
    self_collision: bool,
    muscles: Muscles,
) -> Model:
    """Keep what trot simulates."""
    welds = fold_welds(compiled)
    notes = list(muscle_notes(compiled, muscles))
    problems = list(find_unsupported(compiled))
    if problems:
        raise ModelError("\n  ".join(problems))
    if len(welds.moving) == 0:
        raise ModelError("no body moves. Give at least one body a joint, or load with floating_base=True.")

    # The compiler pads the user attribute with zeros; the spec still knows how many numbers the file gives.
    joint_user = {joint.id: np.array(joint.userdata, dtype=float) for joint in spec.joints}
    geom_user = {geom.id: np.array(geom.userdata, dtype=float) for geom in spec.geoms}
    # What is not finite is named below; NumPy need not warn of it.
    with np.errstate(all="ignore"):
        pairs = read_pairs(
            compiled,
            welds,
            geom_user,
            find_ground(compiled, welds),
            self_collision=self_collision,
            # A URDF tells the robot alone: what is fixed to the world there is its foot, and stands in nobody's way.
            obstacles=not _is_urdf(text),
            notes=notes,
        )
        model = Model(
            gravity=np.array(compiled.opt.gravity) * (not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_GRAVITY)),
            **_body_fields(compiled, welds),
            **_joint_fields(compiled, welds, joint_user),
            **_shape_fields(read_shapes(compiled, welds, geom_user)),
            **_pair_fields(pairs),
            **_actuator_fields(read_actuators(compiled, welds, muscles)),
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


def _joint_fields(compiled: mujoco.MjModel, welds: Welds, user: dict[int, Floats]) -> dict[str, Any]:
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
        "joint_limit_stiffness": np.array([_limit_stiffness(compiled, joint, user) for joint in joints]),
        "q_reference": np.array(compiled.qpos0),
        "q_spring": np.array(compiled.qpos_spring),
        "dof_armature": np.array(compiled.dof_armature),
        "dof_damping": compiled.dof_damping * dampers,
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


def _limit_stiffness(compiled: mujoco.MjModel, joint: int, user: dict[int, Floats]) -> float:
    numbers = user.get(joint, np.zeros(0))
    if not np.any(numbers):
        return LIMIT_STIFFNESS
    if len(numbers) != 1 or not 0 <= numbers[0] < np.inf:
        name = name_of(compiled, "joint", joint)
        raise ModelError(f"joint '{name}' has user={numbers.tolist()}. Give one number >= 0, the limit's stiffness.")
    return float(numbers[0])


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
        "muscle_actuator": np.array(actuators.muscle_actuator, np.int32),
        "muscle_peak_force": np.array(actuators.muscle_peak_force, float),
        "segment_muscle": np.array(actuators.segment_muscle, np.int32),
        "segment_body": np.array(actuators.segment_body, np.int32).reshape(-1, 2),
        "segment_point": np.array(actuators.segment_point, float).reshape(-1, 2, 3),
        **hill_fields(actuators.hills),
    }
