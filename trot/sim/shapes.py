"""The ground, and the shapes of a robot that may touch it, each stood for by one to eight points.

Contact is between the robot and one horizontal plane only: two moving bodies pass through each other.
Contact constants are the shape's own; those of the plane are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import mujoco
import numpy as np

from trot.sim.errors import ModelError
from trot.sim.model import WORLD, Floats, Ints
from trot.sim.unsupported import disabled, name_of
from trot.sim.weld import Welds, rotation

CONTACT_STIFFNESS = 2e4
"""N/m, where a geom has no user attribute."""
CONTACT_DAMPING = 1e3
"""N s/m^2, likewise."""
FRICTION_STIFFNESS = 1e3
"""N s/m, likewise."""

_UPRIGHT = 1e-9
"""How far the normal of the ground may be from vertical: rounding, nothing more."""

_PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)
_SPHERE = int(mujoco.mjtGeom.mjGEOM_SPHERE)
_CAPSULE = int(mujoco.mjtGeom.mjGEOM_CAPSULE)
_BOX = int(mujoco.mjtGeom.mjGEOM_BOX)


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


def read_shapes(compiled: mujoco.MjModel, welds: Welds, user: dict[int, Floats]) -> Shapes:
    """Find the ground and what may touch it. user holds the user attribute of each geom as the file gives it."""
    ground = _find_ground(compiled, welds)
    touching = [] if ground is None else _find_touching(compiled, welds, ground)
    # A geom of a welded body can stand in the file after the geoms of its owner's other children.
    touching.sort(key=lambda geom: welds.owner[compiled.geom_bodyid[geom]])
    points = [_points(compiled, welds, geom) for geom in touching]
    radii = [0.0 if compiled.geom_type[geom] == _BOX else compiled.geom_size[geom, 0] for geom in touching]
    counts = [len(ends) for ends in points]
    constants = [_constants(compiled, geom, user.get(geom, np.zeros(0))) for geom in touching]
    return Shapes(
        ground_height=None if ground is None else _plane_height(compiled, welds, ground),
        name=tuple(name_of(compiled, "geom", geom) for geom in touching),
        body=welds.owner[compiled.geom_bodyid[touching]].astype(np.int32),
        constants=np.array(constants).reshape(-1, 4),
        point_shape=np.repeat(np.arange(len(touching), dtype=np.int32), counts),
        point_pos=np.concatenate([np.zeros((0, 3)), *points]),
        point_radius=np.repeat(np.array(radii, dtype=float), counts),
    )


def _find_ground(compiled: mujoco.MjModel, welds: Welds) -> int | None:
    """The one plane that can be touched, or None; a plane that no mask lets through is only drawn."""
    if _contact_is_off(compiled):
        return None
    solid = (compiled.geom_contype != 0) | (compiled.geom_conaffinity != 0)
    planes = [int(geom) for geom in np.flatnonzero((compiled.geom_type == _PLANE) & solid)]
    if not planes:
        return None
    names = [name_of(compiled, "geom", plane) for plane in planes]
    if len(planes) > 1:
        raise ModelError(f"planes '{names[0]}' and '{names[1]}': only one ground plane is simulated. Remove one.")
    ground = planes[0]
    _, quat = welds.place(compiled.geom_bodyid[ground], compiled.geom_pos[ground], compiled.geom_quat[ground])
    if np.abs(rotation(quat)[:, 2] - [0, 0, 1]).max() > _UPRIGHT:
        raise ModelError(f"plane '{names[0]}' is not horizontal, its normal must be +z. Tilt gravity instead.")
    _require_friction(compiled, ground)
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


def _find_touching(compiled: mujoco.MjModel, welds: Welds, ground: int) -> list[int]:
    touching = [geom for geom in _geoms_of_robot(compiled, welds) if _can_touch(compiled, geom, ground)]
    for geom in touching:
        name, kind = name_of(compiled, "geom", geom), compiled.geom_type[geom]
        if kind not in (_SPHERE, _CAPSULE, _BOX):
            raise ModelError(
                f"geom '{name}' is of type {_kind_name(kind)}; only a sphere, capsule or box can touch the ground. "
                'Replace it by some of these, or set contype="0" conaffinity="0" if it is only drawn.'
            )
        if compiled.geom_condim[geom] not in (1, 3):
            raise ModelError(
                f"geom '{name}' has condim={compiled.geom_condim[geom]}; torsional and rolling friction are not "
                'simulated. Set condim="3".'
            )
        for field in ("geom_surfacevel", "geom_adhesion"):
            if np.any(getattr(compiled, field, np.zeros(compiled.ngeom))[[geom, ground]] != 0):
                raise ModelError(f"geom '{name}' or the ground has {field[5:]}, which is not simulated. Remove it.")
    return touching


def find_obstacles(compiled: mujoco.MjModel, welds: Welds) -> Iterator[str]:
    """One sentence or two per geom that stands in the world and that the robot could run into."""
    if _contact_is_off(compiled):
        return
    robot = list(_geoms_of_robot(compiled, welds))
    for geom in range(compiled.ngeom):
        fixed = welds.owner[compiled.geom_bodyid[geom]] == WORLD
        if fixed and compiled.geom_type[geom] != _PLANE and any(_can_touch(compiled, geom, part) for part in robot):
            name, kind = name_of(compiled, "geom", geom), _kind_name(compiled.geom_type[geom])
            yield (
                f"geom '{name}' ({kind}) is fixed to the world; only a plane can be touched there. Remove it, or set "
                'contype="0" conaffinity="0".'
            )


def _geoms_of_robot(compiled: mujoco.MjModel, welds: Welds) -> Iterator[int]:
    return (geom for geom in range(compiled.ngeom) if welds.owner[compiled.geom_bodyid[geom]] != WORLD)


def _points(compiled: mujoco.MjModel, welds: Welds, geom: int) -> Floats:
    """(1, 2 or 8, 3) sphere centre, capsule ends or box corners in the frame of the Model body."""
    body, size, kind = compiled.geom_bodyid[geom], compiled.geom_size[geom], compiled.geom_type[geom]
    pos, quat = welds.place(body, compiled.geom_pos[geom], compiled.geom_quat[geom])
    if kind == _SPHERE:
        local = np.zeros((1, 3))
    elif kind == _CAPSULE:
        local = np.array([[0, 0, -size[1]], [0, 0, size[1]]])
    else:
        local = np.array(list(product((-1, 1), repeat=3))) * size
    return pos + local @ rotation(quat).T


def _constants(compiled: mujoco.MjModel, geom: int, user: Floats) -> tuple[float, float, float, float]:
    """Stiffness, damping, friction stiffness and friction coefficient of one shape."""
    name = name_of(compiled, "geom", geom)
    _require_friction(compiled, geom)
    friction = 0.0 if compiled.geom_condim[geom] == 1 else float(compiled.geom_friction[geom, 0])
    if not np.any(user):
        return CONTACT_STIFFNESS, CONTACT_DAMPING, FRICTION_STIFFNESS, friction
    if len(user) != 3:
        raise ModelError(
            f"geom '{name}' has {len(user)} user numbers. Give all three, "
            'user="stiffness damping friction_stiffness", or none.'
        )
    if not np.all(np.isfinite(user)) or np.any(user < 0):
        raise ModelError(f"geom '{name}' has user={user.tolist()}. Give three finite contact constants >= 0.")
    return float(user[0]), float(user[1]), float(user[2]), friction


def _require_friction(compiled: mujoco.MjModel, geom: int) -> None:
    friction = compiled.geom_friction[geom]
    if not np.all((friction >= 0) & (friction < np.inf)):
        name = name_of(compiled, "geom", geom)
        raise ModelError(f"geom '{name}' has friction={friction.tolist()}. Give finite coefficients >= 0.")


def _kind_name(kind: int) -> str:
    return str(mujoco.mjtGeom(kind).name).removeprefix("mjGEOM_").lower()
