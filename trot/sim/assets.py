"""Files that a robot file names: found where ROS would find them, left out where they are only drawn."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import mujoco

from trot.sim.inertias import weighs
from trot.sim.load_options import LoadOptions
from trot.sim.notes import listed, verb

READABLE = (".stl", ".obj", ".msh")
"""Meshes that MuJoCo reads."""

_LEVELS_UP = 6
"""How many folders above the robot's own are looked in for its package."""


def settle_assets(spec: mujoco.MjSpec, folder: Path | None, options: LoadOptions, notes: list[str]) -> Iterator[str]:
    """Point the specification to the files that there are, and take out what has none.

    What that changes of the picture alone is noted; what it would change of the motion is yielded, a sentence each.
    """
    left_out = _LeftOutMeshes()
    for mesh in list(spec.meshes):
        if mesh.file:
            found = _find(mesh.file, spec.meshdir, folder, options.package_path)
            if found is not None and found.suffix.lower() in READABLE:
                # MuJoCo would look for a relative one below the robot's folder.
                mesh.file = str(found.resolve())
            else:
                yield from _take_out_mesh(spec, mesh, found, options, left_out)
    notes += left_out.sentences()
    for texture in list(spec.textures):
        files = [name for name in (texture.file, *texture.cubefiles) if name]
        if any(_find(name, spec.texturedir, folder, options.package_path) is None for name in files):
            notes.append(f"texture '{texture.name}' is not drawn: there is no file '{files[0]}'.")
            _take_out_texture(spec, texture)
    for skin in list(spec.skins):
        if skin.file and _find(skin.file, spec.meshdir, folder, options.package_path) is None:
            notes.append(f"skin '{skin.name}' is not drawn: there is no file '{skin.file}'.")
            spec.delete(skin)


class _LeftOutMeshes:
    """Meshes that are left out, told in one sentence per reason: a robot may have dozens, all for the same one."""

    def __init__(self) -> None:
        self._lost: dict[bool, tuple[list[str], list[str]]] = {True: ([], []), False: ([], [])}

    def add(self, bodies: list[str], file: str, is_there: bool) -> None:
        of_bodies, files = self._lost[is_there]
        of_bodies += [body for body in bodies if body not in of_bodies]
        files.append(file)

    def sentences(self) -> Iterator[str]:
        for is_there, (bodies, files) in self._lost.items():
            if files:
                begin = f"{verb(files, 'a mesh', 'meshes')} of {listed('body', bodies)} {verb(files, 'is', 'are')} left"
                named = listed("file", files)
                if is_there:
                    named = named.partition(" ")[2]
                    yield f"{begin} out: MuJoCo does not read {named}."
                else:
                    yield f"{begin} out: there {verb(files, 'is', 'are')} no {named}."


def _take_out_mesh(
    spec: mujoco.MjSpec, mesh: mujoco.MjsMesh, found: Path | None, options: LoadOptions, left_out: _LeftOutMeshes
) -> Iterator[str]:
    trouble = f"there is no file '{mesh.file}'" if found is None else f"MuJoCo does not read '{found.name}'"
    users = [geom for geom in spec.geoms if geom.meshname == mesh.name]
    bodies = list(dict.fromkeys(geom.parent.name for geom in users))
    accepted = "meshes" in options.leave_out
    if any(weighs(spec, geom) for geom in users) and not (accepted or options.repair_inertia):
        yield (f"a mesh gives {listed('body', bodies)} mass, but {trouble}. {_hint(found)}, or write an <inertial>.")
    elif any(geom.contype or geom.conaffinity for geom in users) and _has_ground(spec) and not accepted:
        yield (
            f"a mesh of {listed('body', bodies)} could touch the ground, but {trouble}. {_hint(found)}, "
            "or load with leave_out=('meshes',)."
        )
    elif users:
        left_out.add(bodies, mesh.file if found is None else found.name, is_there=found is not None)
    for geom in users:
        spec.delete(geom)
    spec.delete(mesh)


def _hint(found: Path | None) -> str:
    if found is None:
        return "Put it there, give its folder as package_path=[...]"
    return f"Convert it to {' or '.join(READABLE)}"


def _has_ground(spec: mujoco.MjSpec) -> bool:
    kinds = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)
    return any(geom.type in kinds and (geom.contype or geom.conaffinity) for geom in spec.geoms)


def _take_out_texture(spec: mujoco.MjSpec, texture: mujoco.MjsTexture) -> None:
    for material in spec.materials:
        material.textures = ["" if name == texture.name else name for name in material.textures]
    spec.delete(texture)


def _find(name: str, directory: str, folder: Path | None, package_path: tuple[str, ...]) -> Path | None:
    """The first place where the file is."""
    return next((place for place in _places(name, directory, folder, package_path) if place.is_file()), None)


def _places(name: str, directory: str, folder: Path | None, package_path: tuple[str, ...]) -> Iterator[Path]:
    """Where a file may be: where MuJoCo looks, in the folders given, in those of ROS, and up from the robot's own."""
    scheme, _, rest = name.rpartition("://")
    # Some exporters write package:/ or package:///.
    rest = re.sub(r"^(package|model|file):/*", "", rest)
    if scheme == "file":
        yield Path("/", rest)
    inside = rest.strip("/").partition("/")[2]
    in_package = scheme in ("package", "model") or rest != name
    base = folder if folder is not None else Path.cwd()
    if not in_package:
        yield base / directory / rest
        yield base / rest
        yield base / Path(rest).name
    for given in (*package_path, *filter(None, os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep))):
        root = Path(given).expanduser()
        yield root / rest.strip("/")
        if in_package:
            yield root / inside
    for above in (base.resolve(), *base.resolve().parents[:_LEVELS_UP]):
        yield above / rest.strip("/")
        if in_package:
            yield above / inside
