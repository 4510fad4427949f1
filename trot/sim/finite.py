"""Numbers of a robot file that no simulation survives: named by the element that has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from trot.sim.errors import ModelError
from trot.sim.model import Floats, Model, PairKind

_OPEN = (
    "joint_lower", "joint_upper", "control_lower", "control_upper", "servo_lower", "servo_upper", "dof_force_lower",
    "dof_force_upper", "tie_limits", "hill_force_range", "act_range",
)  # fmt: skip
"""Infinite where there is no limit."""

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ELEMENT = re.compile(r"<(\w+)([^<>]*)>")
_INCLUDED = re.compile(r"""<(?:include|model)\b[^<>]*\bfile\s*=\s*(["'])(.*?)\1""")
_NAN = re.compile(r"""([\w:]+)\s*=\s*(["'])([-+.\deE\s]*nan[-+.\deE\sna]*)\2""", re.IGNORECASE)


def refuse_written_nan(text: str, path: Path | None) -> None:
    """Refuse NaN in the text itself, or in a file that it includes: MuJoCo takes some for attributes left out."""
    texts = _with_included(text, Path.cwd() if path is None else path.parent)
    for file, written in texts.items():
        for element in _ELEMENT.finditer(written):
            for attribute, _, value in _NAN.findall(element[2]):
                # Somebody may be called Nan.
                named = re.compile(rf"""\bname\s*=\s*["']{re.escape(value)}["']""")
                if not any(map(named.search, texts.values())):
                    where = "" if file is None else f"in {file}: "
                    raise ModelError(f'{where}<{element[1]}> has {attribute}="{value}". Give numbers, or leave it out.')


def _with_included(text: str, folder: Path) -> dict[Path | None, str]:
    """The text and that of every MJCF file named in it, comments left out; MuJoCo has read them all before."""
    found: dict[Path | None, str] = {None: _COMMENT.sub("", text)}
    waiting = [(found[None], folder)]
    while waiting:
        written, here = waiting.pop()
        for _, name in _INCLUDED.findall(written):
            # MuJoCo looks beside the robot's own file, and a model that is attached beside its own.
            file = next((place for place in (folder / name, here / name) if place.is_file()), None)
            if file is not None and file not in found:
                found[file] = _COMMENT.sub("", file.read_text(encoding="utf-8", errors="replace"))
                waiting.append((found[file], file.parent))
    return found


def require_finite(model: Model) -> None:
    """Refuse what is NaN, infinite, or too large for single precision."""
    problems = list(_find_not_finite(model))
    if problems:
        raise ModelError("\n  ".join(problems))


def _find_not_finite(model: Model) -> Iterator[str]:
    """One sentence per element, about the first of its numbers that is not finite."""
    named: set[str] = set()
    if not _fits(np.array(model.gravity)).all():
        yield f"option gravity is {model.gravity.tolist()}. Give finite numbers."
    if model.ground_height is not None and not _fits(np.array(model.ground_height)).all():
        yield f"the ground plane lies at z = {model.ground_height}. Give a finite position."
    if not all(_fits(heights).all() for heights in model.field_height):
        yield "a height field holds numbers that are not finite. Give finite heights."
    for field, owners in _owners(model).items():
        values: Floats = getattr(model, field)
        bad = np.isnan(values) if field in _OPEN else ~_fits(values)
        for index in np.flatnonzero(bad.any(axis=tuple(range(1, bad.ndim)))):
            owner = owners[index]
            if owner not in named:
                named.add(owner)
                what = field.partition("_")[2].replace("_", " ")
                yield f"{owner}: {what} is {values[index].tolist()}. Give finite numbers that fit single precision."


def _fits(values: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    found: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = np.abs(values) <= np.finfo(np.float32).max
    return found


def _owners(model: Model) -> dict[str, list[str]]:
    """For every field of the model that holds numbers, the element of the file that each of its rows belongs to."""
    bodies = [f"body '{name}'" for name in model.body_name]
    joints = [f"joint '{name}'" for name in model.joint_name]
    shapes = [f"geom '{name}'" for name in model.shape_name]
    actuators = [f"actuator '{name}'" for name in model.actuator_name]
    muscles = [actuators[actuator] for actuator in model.muscle_actuator]
    servos, ties = [actuators[actuator] for actuator in model.servo_actuator], list(model.tie_name)
    hills = [actuators[actuator] for actuator in model.hill_actuator]
    of_coordinates = [joints[j] for j in np.searchsorted(model.joint_q_start, np.arange(model.num_q), "right") - 1]
    of_dofs = [f"joint '{name}'" for name in model.dof_name]
    groups = {
        "body": (bodies, ("mass", "pos", "quat", "com", "inertia", "lift", "lift_pos")),
        "joint": (
            joints,
            ("axis", "anchor", "stiffness", "lower", "upper", "limit_stiffness", "limit_damping", "friction_speed"),
        ),
        "q": (of_coordinates, ("reference", "spring")),
        "dof": (of_dofs, ("armature", "damping", "friction", "force_lower", "force_upper")),
        "shape": (shapes, ("stiffness", "damping", "friction_stiffness", "friction")),
        "point": ([shapes[shape] for shape in model.point_shape], ("pos", "radius")),
        "control": (actuators, ("lower", "upper")),
        "motor": ([actuators[actuator] for actuator in model.motor_actuator], ("gear",)),
        "servo": (servos, ("gain", "bias", "lower", "upper")),
        "drive": ([servos[servo] for servo in model.drive_servo], ("gear",)),
        "muscle": (muscles, ("peak_force",)),
        "tie": (
            ties,
            (
                "stiffness",
                "rest",
                "damping",
                "limits",
                "limit_stiffness",
                "limit_damping",
                "friction",
                "friction_speed",
            ),
        ),
        "strand": ([ties[tie] for tie in model.strand_tie], ("reference", "coefficient")),
        "segment": ([muscles[muscle] for muscle in model.segment_muscle], ("point",)),
        "hill": (hills, ("peak_force", "gear", "best_length", "offset", "curve", "force_range")),
        "act": ([actuators[actuator] for actuator in model.act_actuator], ("time", "range")),
        "piece": ([hills[hill] for hill in model.piece_hill], ("point", "share", "middle", "axis", "radius")),
    }
    pairs = _pair_owners(model)
    groups |= {
        "bond": (
            list(model.bond_name),
            ("point", "quat", "stiffness", "damping", "turn_stiffness", "turn_damping"),
        ),
        "feeler": (pairs["feeler"], ("pos", "half", "radius")),
        "box": (pairs["box"], ("pos", "quat", "size")),
        "plane": (pairs["plane"], ("pos", "normal")),
        "field": (pairs["field"], ("pos", "quat", "spacing")),
        "pair": (pairs["pair"], ("stiffness", "damping", "friction_stiffness", "friction")),
    }
    found = {f"{kind}_{name}": owners for kind, (owners, names) in groups.items() for name in names}
    return found | {"default_q": of_coordinates, "default_qd": of_dofs}


def _pair_owners(model: Model) -> dict[str, list[str]]:
    """The geoms of the pair that each feeler and each second shape belongs to."""
    owners = {
        "pair": [f"geoms {name}" for name in model.pair_name],
        "feeler": ["a geom"] * model.num_feelers,
        "box": ["a geom"] * len(model.box_pos),
        "plane": ["a geom"] * len(model.plane_pos),
        "field": ["a geom"] * len(model.field_pos),
    }
    kinds = {PairKind.ROUND: "feeler", PairKind.BOX: "box", PairKind.PLANE: "plane", PairKind.FIELD: "field"}
    for pair, (first, end) in enumerate(model.pair_feeler):
        owners["feeler"][first:end] = [owners["pair"][pair]] * (end - first)
        owners[kinds[PairKind(model.pair_kind[pair])]][model.pair_solid[pair]] = owners["pair"][pair]
    return owners
