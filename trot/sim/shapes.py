"""The ground, and the shapes of a robot that may touch it, each stood for by some points.

The ground is one horizontal plane. What else shapes touch, each other among it, is in pairs.py. Stiffness and damping
are the shape's own; friction is that of shape and plane together, by MuJoCo's rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from trot.sim.contact_points import CYLINDER, ELLIPSOID, MESH, SHAPES, contact_points, point_radius
from trot.sim.model import WORLD, Floats, Ints
from trot.sim.notes import Findings, listed, verb
from trot.sim.surfaces import Surfaces, contact_is_off, explicit_pairs, kind_name, masks_meet
from trot.sim.unsupported import describe_geom, name_of
from trot.sim.weld import Welds, rotation

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
    compiled: mujoco.MjModel,
    welds: Welds,
    ground: int | None,
    surfaces: Surfaces,
    mesh_points: int,
    found: Findings,
) -> Shapes:
    """Find what may touch the ground."""
    if ground is not None:
        surfaces.meet(ground)
    touching = [] if ground is None else list(_find_touching(compiled, welds, ground, found))
    # A geom of a welded body can stand in the file after the geoms of its owner's other children.
    touching.sort(key=lambda geom: welds.owner[compiled.geom_bodyid[geom]])
    points = [_points(compiled, welds, geom, mesh_points) for geom in touching]
    counts = [len(ends) for ends in points]
    constants = [(*surfaces.springs(geom), surfaces.friction(geom, ground)) for geom in touching if ground is not None]
    found.notes += tell_points(compiled, dict(zip(touching, counts, strict=True)), "the ground")
    return Shapes(
        ground_height=None if ground is None else _plane_height(compiled, welds, ground),
        name=tuple(name_of(compiled, "geom", geom) for geom in touching),
        body=welds.owner[compiled.geom_bodyid[touching]].astype(np.int32),
        constants=np.array(constants, dtype=float).reshape(-1, 4),
        point_shape=np.repeat(np.arange(len(touching), dtype=np.int32), counts),
        point_pos=np.concatenate([np.zeros((0, 3)), *points]),
        point_radius=np.repeat(np.array([point_radius(compiled, geom) for geom in touching], dtype=float), counts),
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
            return ground
    return None


def _plane_height(compiled: mujoco.MjModel, welds: Welds, ground: int) -> float:
    return float(welds.place_point(compiled.geom_bodyid[ground], compiled.geom_pos[ground])[2])


def _find_touching(compiled: mujoco.MjModel, welds: Welds, ground: int, found: Findings) -> Iterator[int]:
    pairs = explicit_pairs(compiled)
    for geom in range(compiled.ngeom):
        own = welds.owner[compiled.geom_bodyid[geom]] != WORLD
        # A <pair> with the ground has constants of its own, and so is a pair here too.
        if own and masks_meet(compiled, geom, ground) and (min(geom, ground), max(geom, ground)) not in pairs:
            if compiled.geom_type[geom] in SHAPES:
                yield geom
            else:
                found.problems.append(
                    f"geom '{describe_geom(compiled, geom)}' is of type {kind_name(compiled.geom_type[geom])}; only a "
                    "sphere, capsule, box, cylinder, ellipsoid or mesh can touch the ground. Replace it by some of "
                    'these, or set contype="0" conaffinity="0" if it is only drawn.'
                )


def tell_points(compiled: mujoco.MjModel, counts: dict[int, int], touched: str) -> Iterator[str]:
    """Which geoms touch by points that are not quite their shape; counts holds the number of each."""
    ways = {CYLINDER: "its rims", ELLIPSOID: "its surface", MESH: "its convex hull"}
    for kind, where in ways.items():
        for count in sorted(set(counts.values())):
            geoms = [geom for geom, points in counts.items() if compiled.geom_type[geom] == kind and points == count]
            if geoms:
                yield _tell_kind(kind, [describe_geom(compiled, geom) for geom in geoms], count, where, touched)


def _tell_kind(kind: int, names: Sequence[str], count: int, where: str, touched: str) -> str:
    article = "an" if kind == ELLIPSOID else "a"
    which = f"{listed('geom', names)} {verb(names, f'is {article}', 'are each ' + article)} {kind_name(kind)}"
    return f"{which}: {count} points of {where} touch {touched}."


def _points(compiled: mujoco.MjModel, welds: Welds, geom: int, mesh_points: int) -> Floats:
    """(n, 3) the shape's contact points in the frame of the Model body."""
    body = compiled.geom_bodyid[geom]
    pos, quat = welds.place(body, compiled.geom_pos[geom], compiled.geom_quat[geom])
    placed: Floats = pos + contact_points(compiled, geom, mesh_points) @ rotation(quat).T
    return placed
