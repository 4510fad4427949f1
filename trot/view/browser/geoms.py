"""The geoms of a MuJoCo model as nodes of a viser scene, in the frames of their bodies."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import viser
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

SHOWN_GROUPS = 3
"""MuJoCo's own viewer shows groups 0 to 2 and hides the rest, by custom what is only there to collide."""
ROUND_SEGMENTS = 24
HAIR = 0.012
"""Every second body along a limb is drawn larger by this share, just more than its facets deviate from round: in equal
surfaces at a joint the colours would flicker."""
DEFAULT_RGBA = (0.5, 0.5, 0.5, 1.0)
"""MuJoCo's: a geom of this colour takes the one of its material."""

Geom = mujoco.mjtGeom


def shown_geoms(model: mujoco.MjModel) -> list[int]:
    """The geoms that can be seen, planes left out."""
    return [
        geom for geom in range(model.ngeom)
        if Geom(model.geom_type[geom]) not in (Geom.mjGEOM_PLANE, Geom.mjGEOM_HFIELD)
        and model.geom_group[geom] < SHOWN_GROUPS and geom_rgba(model, geom)[3] > 0
    ]  # fmt: skip


def geom_rgba(model: mujoco.MjModel, geom: int) -> Floats:
    """Red, green, blue and opacity in [0, 1]."""
    rgba = np.array(model.geom_rgba[geom], np.float64)
    material = int(model.geom_matid[geom])
    if material >= 0 and np.allclose(rgba, DEFAULT_RGBA):
        rgba = np.array(model.mat_rgba[material], np.float64)
    return rgba


def add_geom(scene: viser.SceneApi, name: str, model: mujoco.MjModel, geom: int) -> Any:
    """A node for the geom; the parent in its name is the frame of the geom's body."""
    rgba = geom_rgba(model, geom)
    red, green, blue = (round(255 * float(channel)) for channel in rgba[:3])
    look: dict[str, Any] = {
        "color": (red, green, blue),
        "opacity": float(rgba[3]) if rgba[3] < 1 else None,
        "position": tuple(model.geom_pos[geom].tolist()),
        "wxyz": tuple(model.geom_quat[geom].tolist()),
    }
    larger = 1 + HAIR * (_depth(model, int(model.geom_bodyid[geom])) % 2)
    size = (larger * model.geom_size[geom]).tolist()
    kind = Geom(model.geom_type[geom])
    if kind == Geom.mjGEOM_SPHERE:
        return scene.add_icosphere(name, radius=size[0], **look)
    if kind == Geom.mjGEOM_ELLIPSOID:
        return scene.add_icosphere(name, radius=1.0, scale=(size[0], size[1], size[2]), **look)
    if kind == Geom.mjGEOM_BOX:
        return scene.add_box(name, dimensions=(2 * size[0], 2 * size[1], 2 * size[2]), **look)
    if kind == Geom.mjGEOM_MESH:
        vertices, faces = _mesh(model, int(model.geom_dataid[geom]))
        return scene.add_mesh_simple(name, vertices, faces, flat_shading=True, **look)
    if kind in (Geom.mjGEOM_CAPSULE, Geom.mjGEOM_CYLINDER):
        vertices, faces = _revolved(_outline(size[0], size[1], round_ends=kind == Geom.mjGEOM_CAPSULE))
        return scene.add_mesh_simple(name, vertices, faces, **look)
    raise ValueError(f"the viewer cannot draw geom {geom} of type {kind.name}")


def _outline(radius: float, half_length: float, *, round_ends: bool) -> Floats:
    """Rows (distance from the axis, height), from the top to the bottom."""
    if round_ends:
        angles = np.linspace(0, np.pi / 2, ROUND_SEGMENTS // 4 + 1)
        cap = np.column_stack([radius * np.sin(angles), half_length + radius * np.cos(angles)])
        return np.concatenate([cap, (cap * [1, -1])[::-1]])
    # The rim comes twice: vertices that lid and wall share would be shaded as if the edge were round.
    rim = [[radius, half_length], [radius, half_length]]
    top = np.array([[0.0, half_length], *rim])
    return np.concatenate([top, (top * [1, -1])[::-1]])


def _revolved(outline: Floats) -> tuple[Floats, Indices]:
    """Vertices and outward faces of the surface that an outline sweeps around the z axis."""
    turn = 2 * np.pi * np.arange(ROUND_SEGMENTS) / ROUND_SEGMENTS
    ring = np.column_stack([np.cos(turn), np.sin(turn), np.ones_like(turn)])
    vertices = (outline[:, None, [0, 0, 1]] * ring).reshape(-1, 3)
    row, column = np.meshgrid(np.arange(len(outline) - 1), np.arange(ROUND_SEGMENTS), indexing="ij")
    here, beside = row * ROUND_SEGMENTS + column, row * ROUND_SEGMENTS + (column + 1) % ROUND_SEGMENTS
    below, below_beside = here + ROUND_SEGMENTS, beside + ROUND_SEGMENTS
    faces = np.stack([here, below, below_beside, here, below_beside, beside], axis=-1).reshape(-1, 3)
    corners = vertices[faces]
    # At the poles, and between the two rims, half of the faces or all of them have no area.
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    return vertices, faces[area > 1e-12 * max(1.0, float(np.abs(outline).max())) ** 2]


def _depth(model: mujoco.MjModel, body: int) -> int:
    return 0 if body == 0 else 1 + _depth(model, int(model.body_parentid[body]))


def _mesh(model: mujoco.MjModel, mesh: int) -> tuple[Floats, Indices]:
    vertex, face = model.mesh_vertadr[mesh], model.mesh_faceadr[mesh]
    vertices = model.mesh_vert[vertex : vertex + model.mesh_vertnum[mesh]]
    faces = model.mesh_face[face : face + model.mesh_facenum[mesh]]
    return np.array(vertices, np.float64), np.array(faces, np.int64)
