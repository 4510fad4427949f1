"""The ground, and the shapes of a robot that may touch it, each stood for by one to eight points.

The ground is one horizontal plane. What else shapes touch, each other among it, is in pairs.py.
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
    ground = find_ground(compiled, welds)
    touching = [] if ground is None else _find_touching(compiled, welds, ground)
    # A geom of a welded body can stand in the file after the geoms of its owner's other children.
    touching.sort(key=lambda geom: welds.owner[compiled.geom_bodyid[geom]])
    points = [_points(compiled, welds, geom) for geom in touching]
    radii = [0.0 if compiled.geom_type[geom] == _BOX else compiled.geom_size[geom, 0] for geom in touching]
    counts = [len(ends) for ends in points]
    constants = [contact_constants(compiled, geom, user.get(geom, np.zeros(0))) for geom in touching]
    return Shapes(
        ground_height=None if ground is None else _plane_height(compiled, welds, ground),
        name=tuple(name_of(compiled, "geom", geom) for geom in touching),
        body=welds.owner[compiled.geom_bodyid[touching]].astype(np.int32),
        constants=np.array(constants).reshape(-1, 4),
        point_shape=np.repeat(np.arange(len(touching), dtype=np.int32), counts),
        point_pos=np.concatenate([np.zeros((0, 3)), *points]),
        point_radius=np.repeat(np.array(radii, dtype=float), counts),
    )


def find_ground(compiled: mujoco.MjModel, welds: Welds) -> int | None:
    """The first horizontal plane that can be touched, or None; a plane that no mask lets through is only drawn."""
    if contact_is_off(compiled):
        return None
    solid = (compiled.geom_contype != 0) | (compiled.geom_conaffinity != 0)
    for ground in map(int, np.flatnonzero((compiled.geom_type == _PLANE) & solid)):
        _, quat = welds.place(compiled.geom_bodyid[ground], compiled.geom_pos[ground], compiled.geom_quat[ground])
        # A quaternion of NaN is refused by name later.
        if not np.abs(rotation(quat)[:, 2] - [0, 0, 1]).max() > _UPRIGHT:
            _require_friction(compiled, ground)
            return ground
    return None


def contact_is_off(compiled: mujoco.MjModel) -> bool:
    """Whether the file switches all contact off."""
    return disabled(compiled, mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)


def _plane_height(compiled: mujoco.MjModel, welds: Welds, ground: int) -> float:
    return float(welds.place_point(compiled.geom_bodyid[ground], compiled.geom_pos[ground])[2])


def masks_meet(compiled: mujoco.MjModel, geom: int, other: int) -> bool:
    """Whether masks and <exclude> let two geoms of different bodies collide, as in MuJoCo."""
    contype, conaffinity = compiled.geom_contype, compiled.geom_conaffinity
    masks = (contype[geom] & conaffinity[other]) | (contype[other] & conaffinity[geom])
    low, high = sorted((compiled.geom_bodyid[geom], compiled.geom_bodyid[other]))
    return bool(masks) and (low << 16) + high not in compiled.exclude_signature


def explicit_pairs(compiled: mujoco.MjModel) -> dict[tuple[int, int], int]:
    """The geoms of every <pair> of the file, the lower number first, and which pair it is."""
    ends = zip(compiled.pair_geom1, compiled.pair_geom2, strict=True)
    return {(int(min(pair)), int(max(pair))): index for index, pair in enumerate(ends)}


def _find_touching(compiled: mujoco.MjModel, welds: Welds, ground: int) -> list[int]:
    listed = explicit_pairs(compiled)
    touching = [
        geom
        for geom in _geoms_of_robot(compiled, welds)
        if masks_meet(compiled, geom, ground) and (min(geom, ground), max(geom, ground)) not in listed
    ]
    for geom in touching:
        name, kind = name_of(compiled, "geom", geom), compiled.geom_type[geom]
        if kind not in (_SPHERE, _CAPSULE, _BOX):
            raise ModelError(
                f"geom '{name}' is of type {kind_name(kind)}; only a sphere, capsule or box can touch the ground. "
                'Replace it by some of these, or set contype="0" conaffinity="0" if it is only drawn.'
            )
        if compiled.geom_condim[geom] not in (1, 3):
            raise ModelError(
                f"geom '{name}' has condim={compiled.geom_condim[geom]}; torsional and rolling friction are not "
                'simulated. Set condim="3".'
            )
        require_plain(compiled, (geom, ground))
    return touching


def require_plain(compiled: mujoco.MjModel, geoms: tuple[int, int]) -> None:
    """Refuse what makes a surface move or stick."""
    for geom in geoms:
        for field in ("geom_surfacevel", "geom_adhesion"):
            if np.any(getattr(compiled, field, np.zeros(compiled.ngeom))[geom] != 0):
                name = name_of(compiled, "geom", geom)
                raise ModelError(f"geom '{name}' has {field[5:]}, which is not simulated. Remove it.")


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


def contact_constants(compiled: mujoco.MjModel, geom: int, user: Floats) -> tuple[float, float, float, float]:
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


def kind_name(kind: int) -> str:
    """As MJCF writes it."""
    return str(mujoco.mjtGeom(kind).name).removeprefix("mjGEOM_").lower()
