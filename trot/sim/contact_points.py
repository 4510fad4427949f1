"""The points that stand for a shape where it may touch the ground or a slope."""

from __future__ import annotations

from itertools import product

import mujoco
import numpy as np

from trot.sim.model import Floats

RIM_POINTS = 8
"""On each of the two rims of a cylinder."""

SPHERE = int(mujoco.mjtGeom.mjGEOM_SPHERE)
CAPSULE = int(mujoco.mjtGeom.mjGEOM_CAPSULE)
ELLIPSOID = int(mujoco.mjtGeom.mjGEOM_ELLIPSOID)
CYLINDER = int(mujoco.mjtGeom.mjGEOM_CYLINDER)
BOX = int(mujoco.mjtGeom.mjGEOM_BOX)
MESH = int(mujoco.mjtGeom.mjGEOM_MESH)

SHAPES = (SPHERE, CAPSULE, BOX, CYLINDER, ELLIPSOID, MESH)
"""The kinds of geom that can touch the ground and slopes."""

CORNERS = np.array(list(product((-1, 1), repeat=3)), dtype=float)
"""Of a box of half size 1."""
_AROUND = np.array([direction for direction in product((-1, 0, 1), repeat=3) if any(direction)], dtype=float)
"""From the middle of a cube to its faces, edges and corners."""


def contact_points(compiled: mujoco.MjModel, geom: int, mesh_points: int) -> Floats:
    """(n, 3) in the geom's own frame."""
    kind, size = compiled.geom_type[geom], compiled.geom_size[geom]
    if kind == SPHERE:
        return np.zeros((1, 3))
    if kind == CAPSULE:
        return np.array([[0, 0, -size[1]], [0, 0, size[1]]])
    if kind == CYLINDER:
        angle = 2 * np.pi * np.arange(RIM_POINTS) / RIM_POINTS
        rim = np.stack([size[0] * np.cos(angle), size[0] * np.sin(angle), np.full(RIM_POINTS, size[1])], axis=1)
        return np.concatenate([rim, rim * [1, 1, -1]])
    if kind == ELLIPSOID:
        on_surface: Floats = _AROUND / np.linalg.norm(_AROUND, axis=1, keepdims=True) * size
        return on_surface
    if kind == MESH:
        return thin_out(hull_vertices(compiled, int(compiled.geom_dataid[geom])), mesh_points)
    corners: Floats = CORNERS * size
    return corners


def point_radius(compiled: mujoco.MjModel, geom: int) -> float:
    """Of the small spheres around the points: zero where these lie on the surface itself."""
    return float(compiled.geom_size[geom, 0]) if compiled.geom_type[geom] in (SPHERE, CAPSULE) else 0.0


def hull_vertices(compiled: mujoco.MjModel, mesh: int) -> Floats:
    """The corners of a mesh's convex hull, as MuJoCo computes it; all its vertices where it computes none."""
    first, count = compiled.mesh_vertadr[mesh], compiled.mesh_vertnum[mesh]
    vertices: Floats = np.array(compiled.mesh_vert[first : first + count], float)
    graph = compiled.mesh_graphadr[mesh]
    if graph < 0:
        return vertices
    # The graph begins with its numbers of corners and faces, then a number per corner, then which vertices they are.
    corners = compiled.mesh_graph[graph]
    which = compiled.mesh_graph[graph + 2 + corners : graph + 2 + 2 * corners]
    hull: Floats = vertices[np.sort(which)]
    return hull


def thin_out(points: Floats, count: int) -> Floats:
    """At most so many of them, far from each other: each is the one farthest from those before it.

    The first is the one farthest from their middle. Of several that are as far, to a millionth of the whole, the first
    in order is taken, so that rounding does not choose.
    """
    if len(points) <= count:
        return points
    grain = 1e-6 * float(np.ptp(points, axis=0).max()) or 1.0
    distance = _distance(points, points.mean(axis=0), grain)
    chosen = [int(np.argmax(distance))]
    distance = _distance(points, points[chosen[0]], grain)
    while len(chosen) < count:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, _distance(points, points[chosen[-1]], grain))
    thinned: Floats = points[np.sort(chosen)]
    return thinned


def _distance(points: Floats, other: Floats, grain: float) -> Floats:
    """Of each point from another, in whole grains."""
    grains: Floats = np.round(np.linalg.norm(points - other, axis=1) / grain)
    return grains
