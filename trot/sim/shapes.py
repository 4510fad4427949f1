"""The ground, and the shapes of a robot that may touch it, each stood for by some points.

Contact is between the robot and one horizontal plane only: two moving bodies pass through each other. Stiffness and
damping are the shape's own; friction is that of the pair of shape and plane, by MuJoCo's rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from trot.sim.contact_points import CYLINDER, ELLIPSOID, MESH, SHAPES, contact_points, point_radius
from trot.sim.model import WORLD, Floats, Ints
from trot.sim.notes import Findings, listed, verb
from trot.sim.unsupported import describe_geom, disabled, name_of
from trot.sim.weld import Welds, rotation

CONTACT_STIFFNESS = 2e4
"""N/m, where a geom has no user attribute."""
CONTACT_DAMPING = 1e3
"""N s/m^2, likewise."""
FRICTION_STIFFNESS = 1e3
"""N s/m, likewise."""

LEAST_STIFFNESS = 1.0
"""N/m. A user attribute of three numbers that begins with less than this is not trot's: it would hold nothing."""

_UPRIGHT = 1e-9
"""How far the normal of the ground may be from vertical: rounding, nothing more."""

_PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)


@dataclass(frozen=True)
class Shapes:
    """The ground and shape fields of Model."""

    ground_height: float | None
    name: tuple[str, ...]
    body: Ints
    constants: Floats
    """(num_shapes, 4) stiffness, damping, friction stiffness, friction coefficient."""
    point_shape: Ints
    point_pos: Floats
    point_radius: Floats


def read_shapes(
    compiled: mujoco.MjModel, welds: Welds, user: dict[int, Floats], mesh_points: int, found: Findings
) -> Shapes:
    """Find the ground and what may touch it. user holds the user attribute of each geom as the file gives it."""
    ground = _find_ground(compiled, welds, found)
    touching = [] if ground is None else list(_find_touching(compiled, welds, ground, found))
    # A geom of a welded body can stand in the file after the geoms of its owner's other children.
    touching.sort(key=lambda touch: welds.owner[compiled.geom_bodyid[touch.geom]])
    geoms = [touch.geom for touch in touching]
    points = [_points(compiled, welds, geom, mesh_points) for geom in geoms]
    counts = [len(ends) for ends in points]
    constants = [(*_constants(compiled, t.geom, user.get(t.geom, np.zeros(0)), found), t.friction) for t in touching]
    found.notes += _approximated(compiled, touching, counts)
    found.notes += _foreign_user(compiled, geoms, user)
    return Shapes(
        ground_height=None if ground is None else _plane_height(compiled, welds, ground),
        name=tuple(name_of(compiled, "geom", geom) for geom in geoms),
        body=welds.owner[compiled.geom_bodyid[geoms]].astype(np.int32),
        constants=np.array(constants).reshape(-1, 4),
        point_shape=np.repeat(np.arange(len(geoms), dtype=np.int32), counts),
        point_pos=np.concatenate([np.zeros((0, 3)), *points]),
        point_radius=np.repeat(np.array([point_radius(compiled, geom) for geom in geoms], dtype=float), counts),
    )


def _find_ground(compiled: mujoco.MjModel, welds: Welds, found: Findings) -> int | None:
    """The one plane that can be touched, or None; a plane that no mask lets through is only drawn."""
    if _contact_is_off(compiled):
        return None
    solid = (compiled.geom_contype != 0) | (compiled.geom_conaffinity != 0)
    planes = [int(geom) for geom in np.flatnonzero((compiled.geom_type == _PLANE) & solid)]
    if not planes:
        return None
    names = [describe_geom(compiled, plane) for plane in planes]
    if len(planes) > 1:
        found.problems.append(f"planes '{names[0]}' and '{names[1]}': only one ground plane is simulated. Remove one.")
    ground = planes[0]
    _, quat = welds.place(compiled.geom_bodyid[ground], compiled.geom_pos[ground], compiled.geom_quat[ground])
    if np.abs(rotation(quat)[:, 2] - [0, 0, 1]).max() > _UPRIGHT:
        found.problems.append(f"plane '{names[0]}' is not horizontal, its normal must be +z. Tilt gravity instead.")
    found.problems += _bad_friction(compiled, ground)
    return ground


def _contact_is_off(compiled: mujoco.MjModel) -> bool:
    return disabled(compiled, mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)


def _plane_height(compiled: mujoco.MjModel, welds: Welds, ground: int) -> float:
    return float(welds.place_point(compiled.geom_bodyid[ground], compiled.geom_pos[ground])[2])


def _can_touch(compiled: mujoco.MjModel, geom: int, other: int) -> bool:
    """Whether masks and <exclude> let two geoms of different bodies collide, as in MuJoCo."""
    contype, conaffinity = compiled.geom_contype, compiled.geom_conaffinity
    masks = (contype[geom] & conaffinity[other]) | (contype[other] & conaffinity[geom])
    low, high = sorted((compiled.geom_bodyid[geom], compiled.geom_bodyid[other]))
    return bool(masks) and (low << 16) + high not in compiled.exclude_signature


@dataclass(frozen=True)
class _Touch:
    """A geom that may touch the ground, and what MuJoCo would make of the two together."""

    geom: int
    condim: int
    friction: float


def _find_touching(compiled: mujoco.MjModel, welds: Welds, ground: int, found: Findings) -> Iterator[_Touch]:
    pairs = _pairs_with(compiled, ground)
    for geom in _geoms_of_robot(compiled, welds):
        if geom not in pairs and not _can_touch(compiled, geom, ground):
            continue
        problems = list(_find_untouchable(compiled, geom, ground))
        if problems:
            found.problems += problems
        elif geom in pairs:
            pair = pairs[geom]
            yield _touch(geom, compiled.pair_dim[pair], compiled.pair_friction[pair, 0])
        else:
            yield _touch(geom, *_mixed(compiled, geom, ground))


def _touch(geom: int, condim: int, friction: float) -> _Touch:
    return _Touch(geom, int(condim), 0.0 if condim == 1 else float(friction))


def _mixed(compiled: mujoco.MjModel, geom: int, other: int) -> tuple[int, float]:
    """Condim and friction of a contact by MuJoCo's rule: the geom of higher priority decides, else the larger one."""
    condim, friction, priority = compiled.geom_condim, compiled.geom_friction, compiled.geom_priority
    if priority[geom] != priority[other]:
        decides = geom if priority[geom] > priority[other] else other
        return condim[decides], friction[decides, 0]
    return max(condim[geom], condim[other]), max(friction[geom, 0], friction[other, 0])


def _pairs_with(compiled: mujoco.MjModel, ground: int) -> dict[int, int]:
    """<contact><pair> elements by the geom that they let touch the ground, whatever its masks say."""
    both = zip(compiled.pair_geom1, compiled.pair_geom2, strict=True)
    return {int(a if b == ground else b): pair for pair, (a, b) in enumerate(both) if ground in (a, b)}


def _find_untouchable(compiled: mujoco.MjModel, geom: int, ground: int) -> Iterator[str]:
    """One sentence or two per reason why this geom's contact with the ground cannot be simulated."""
    name, kind = describe_geom(compiled, geom), compiled.geom_type[geom]
    if kind not in SHAPES:
        yield (
            f"geom '{name}' is of type {_kind_name(kind)}; only a sphere, capsule, box, cylinder, ellipsoid or mesh "
            'can touch the ground. Replace it by some of these, or set contype="0" conaffinity="0" if it is only drawn.'
        )
    for field in ("geom_surfacevel", "geom_adhesion"):
        if np.any(getattr(compiled, field, np.zeros(compiled.ngeom))[[geom, ground]] != 0):
            yield f"geom '{name}' or the ground has {field[5:]}, which is not simulated. Remove it."
    yield from _bad_friction(compiled, geom)


def _approximated(compiled: mujoco.MjModel, touching: Sequence[_Touch], counts: Sequence[int]) -> Iterator[str]:
    """What is another shape or another friction than the file's."""
    for condim in (4, 6):
        names = [describe_geom(compiled, touch.geom) for touch in touching if touch.condim == condim]
        if names:
            yield (
                f"condim {condim} of {listed('geom', names)} on the ground is taken as 3: torsional and rolling "
                "friction are not simulated."
            )
    ways = {CYLINDER: "its rims", ELLIPSOID: "its surface", MESH: "its convex hull"}
    for kind, where in ways.items():
        for count in sorted(set(counts)):
            names = [
                describe_geom(compiled, touch.geom)
                for touch, points in zip(touching, counts, strict=True)
                if compiled.geom_type[touch.geom] == kind and points == count
            ]
            if names:
                article = "an" if kind == ELLIPSOID else "a"
                yield (
                    f"{listed('geom', names)} {verb(names, f'is {article}', 'are each ' + article)} "
                    f"{_kind_name(kind)}: {count} points of {where} touch the ground."
                )


def find_fixed(compiled: mujoco.MjModel, welds: Welds, own: Callable[[int], bool]) -> Iterator[str]:
    """What stands in the world, other than planes, and is not touched. own(body) tells the robot's own base."""
    if _contact_is_off(compiled):
        return
    robot = list(_geoms_of_robot(compiled, welds))
    fixed = [
        geom
        for geom in range(compiled.ngeom)
        if welds.owner[compiled.geom_bodyid[geom]] == WORLD and compiled.geom_type[geom] != _PLANE
    ]
    met = [geom for geom in fixed if any(_can_touch(compiled, geom, part) for part in robot)]
    base = [describe_geom(compiled, geom) for geom in met if own(int(compiled.geom_bodyid[geom]))]
    others = [describe_geom(compiled, geom) for geom in met if not own(int(compiled.geom_bodyid[geom]))]
    if base:
        which = f"{listed('geom', base)} of the robot's fixed base"
        yield f"{which} {verb(base, 'is', 'are')} not touched by its other parts."
    if others:
        which = f"{listed('geom', others)} fixed to the world"
        yield f"{which} {verb(others, 'is', 'are')} left out: the robot passes through."


def has_moving_part(compiled: mujoco.MjModel) -> Callable[[int], bool]:
    """Whether a body that is fixed to the world belongs to a robot: something moves in the tree that it is part of."""
    moves = np.zeros(compiled.nbody, bool)
    moves[compiled.body_rootid[compiled.jnt_bodyid]] = True
    return lambda body: bool(moves[compiled.body_rootid[body]])


def find_pairs(compiled: mujoco.MjModel, welds: Welds) -> Iterator[str]:
    """<contact><pair> elements that have no effect: of two geoms of the robot, or with something that is no plane."""
    if _contact_is_off(compiled):
        return
    names = []
    for pair in zip(compiled.pair_geom1, compiled.pair_geom2, strict=True):
        fixed = [welds.owner[compiled.geom_bodyid[geom]] == WORLD for geom in pair]
        on_plane = any(still and compiled.geom_type[geom] == _PLANE for geom, still in zip(pair, fixed, strict=True))
        if not on_plane and not all(fixed):
            names.append(" and ".join(describe_geom(compiled, geom) for geom in pair))
    if names:
        yield f"{listed('contact pair', names)} {verb(names, 'is', 'are')} left out: only the ground is touched."


def _geoms_of_robot(compiled: mujoco.MjModel, welds: Welds) -> Iterator[int]:
    return (geom for geom in range(compiled.ngeom) if welds.owner[compiled.geom_bodyid[geom]] != WORLD)


def _points(compiled: mujoco.MjModel, welds: Welds, geom: int, mesh_points: int) -> Floats:
    """(n, 3) the shape's contact points in the frame of the Model body."""
    body = compiled.geom_bodyid[geom]
    pos, quat = welds.place(body, compiled.geom_pos[geom], compiled.geom_quat[geom])
    placed: Floats = pos + contact_points(compiled, geom, mesh_points) @ rotation(quat).T
    return placed


def _constants(compiled: mujoco.MjModel, geom: int, user: Floats, found: Findings) -> tuple[float, float, float]:
    """Stiffness, damping and friction stiffness of one shape."""
    if not _is_ours(user):
        return CONTACT_STIFFNESS, CONTACT_DAMPING, FRICTION_STIFFNESS
    if not np.all(np.isfinite(user)) or np.any(user < 0):
        name = describe_geom(compiled, geom)
        found.problems.append(f"geom '{name}' has user={user.tolist()}. Give three finite contact constants >= 0.")
    return float(user[0]), float(user[1]), float(user[2])


def _is_ours(user: Floats) -> bool:
    """Whether a user attribute holds trot's constants; other programs use the attribute for their own ends."""
    return len(user) == 3 and not 0 <= user[0] < LEAST_STIFFNESS


def _foreign_user(compiled: mujoco.MjModel, geoms: Sequence[int], user: dict[int, Floats]) -> Iterator[str]:
    names = [
        describe_geom(compiled, geom)
        for geom in geoms
        if np.any(user.get(geom, np.zeros(0))) and not _is_ours(user[geom])
    ]
    if names:
        yield (
            f"user of {listed('geom', names)} is not read: it is not a contact stiffness of {LEAST_STIFFNESS:g} N/m or "
            "more, a damping and a friction stiffness."
        )


def _bad_friction(compiled: mujoco.MjModel, geom: int) -> Iterator[str]:
    friction = compiled.geom_friction[geom]
    if not np.all((friction >= 0) & (friction < np.inf)):
        name = describe_geom(compiled, geom)
        yield f"geom '{name}' has friction={friction.tolist()}. Give finite coefficients >= 0."


def _kind_name(kind: int) -> str:
    return str(mujoco.mjtGeom(kind).name).removeprefix("mjGEOM_").lower()
