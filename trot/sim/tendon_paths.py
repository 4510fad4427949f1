"""The path of a spatial tendon: waypoints, the spheres and cylinders that it may wrap on the way, and pulleys."""

from __future__ import annotations

from dataclasses import dataclass, field

import mujoco
import numpy as np

from trot.sim.errors import ModelError
from trot.sim.model import AROUND_CYLINDER, AROUND_SPHERE, STRAIGHT, WORLD, Floats
from trot.sim.unsupported import name_of
from trot.sim.weld import Welds, rotation

_KINDS = {int(mujoco.mjtWrap.mjWRAP_SPHERE): AROUND_SPHERE, int(mujoco.mjtWrap.mjWRAP_CYLINDER): AROUND_CYLINDER}


@dataclass(frozen=True)
class Piece:
    """From one waypoint to the next, straight or around a shape; points in the frames of their bodies."""

    kind: int
    body: tuple[int, int, int]
    """Of the two waypoints and of the shape; WORLD for a shape that is not there."""
    point: tuple[Floats, Floats]
    share: float
    """Of its length that counts, and of the muscle's force that pulls along it; 1 without a pulley."""
    middle: Floats = field(default_factory=lambda: np.zeros(3))
    axis: Floats = field(default_factory=lambda: np.eye(3))
    """(3, 3) the shape's axes as rows, that of a cylinder last."""
    radius: float = 0.0
    side: Floats | None = None
    """A point on the side that the tendon passes on."""


@dataclass(frozen=True)
class Path:
    """What of a tendon moves, and the length of what does not: straight between two waypoints of one body."""

    pieces: list[Piece]
    fixed_length: float


def read_path(compiled: mujoco.MjModel, welds: Welds, tendon: int) -> Path:
    """The tendon piece by piece. Refuses a fixed one, and wraps on the inside of a shape."""
    first = int(compiled.tendon_adr[tendon])
    end = first + int(compiled.tendon_num[tendon])
    kinds = compiled.wrap_type[first:end]
    if np.any(kinds == mujoco.mjtWrap.mjWRAP_JOINT):
        raise ModelError(f"tendon '{name_of(compiled, 'tendon', tendon)}' is fixed. Give the muscle a spatial one.")
    pieces: list[Piece] = []
    fixed_length, share = 0.0, 1.0
    for here in range(first, end - 1):
        kind, following = int(compiled.wrap_type[here]), int(compiled.wrap_type[here + 1])
        if kind == mujoco.mjtWrap.mjWRAP_PULLEY:
            share = 1 / float(compiled.wrap_prm[here])
        if kind != mujoco.mjtWrap.mjWRAP_SITE or following == mujoco.mjtWrap.mjWRAP_PULLEY:
            continue
        wraps = following in _KINDS
        piece = _straight(compiled, welds, here, here + 1 + wraps, share)
        if wraps:
            piece = _wrapped(compiled, welds, tendon, here + 1, piece)
        a, b = piece.point
        if piece.kind == STRAIGHT and piece.body[0] == piece.body[1]:
            fixed_length += share * float(np.linalg.norm(b - a))
        else:
            pieces.append(piece)
    return Path(pieces, fixed_length)


def _straight(compiled: mujoco.MjModel, welds: Welds, start: int, end: int, share: float) -> Piece:
    sites = compiled.wrap_objid[[start, end]]
    bodies = compiled.site_bodyid[sites]
    a, b = (welds.place_point(body, compiled.site_pos[site]) for site, body in zip(sites, bodies, strict=True))
    first, last = (int(owner) for owner in welds.owner[bodies])
    return Piece(STRAIGHT, (first, last, WORLD), (a, b), share)


def _wrapped(compiled: mujoco.MjModel, welds: Welds, tendon: int, wrap: int, piece: Piece) -> Piece:
    geom, side = int(compiled.wrap_objid[wrap]), int(compiled.wrap_prm[wrap])
    body = int(compiled.geom_bodyid[geom])
    owner = int(welds.owner[body])
    middle, quat = welds.place(body, compiled.geom_pos[geom], compiled.geom_quat[geom])
    radius = float(compiled.geom_size[geom, 0])
    side_point = None
    if side >= 0:
        names = f"tendon '{name_of(compiled, 'tendon', tendon)}' wraps geom '{name_of(compiled, 'geom', geom)}'"
        site_body = int(compiled.site_bodyid[side])
        if int(welds.owner[site_body]) != owner:
            raise ModelError(f"{names} with a sidesite on another body. Put the site on the geom's body.")
        side_point = welds.place_point(site_body, compiled.site_pos[side])
        if np.linalg.norm(side_point - middle) < radius:
            raise ModelError(f"{names} on its inside, which is not simulated. Move the sidesite out of the geom.")
    return Piece(
        _KINDS[int(compiled.wrap_type[wrap])], (*piece.body[:2], owner), piece.point, piece.share, middle,
        rotation(quat).T.copy(), radius, side_point,
    )  # fmt: skip
