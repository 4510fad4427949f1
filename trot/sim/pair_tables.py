"""The pair fields of Model: how each kind of shape touches each other kind, with which constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

import mujoco
import numpy as np

from trot.sim.contact_points import BOX, CAPSULE, CORNERS, SHAPES, SPHERE, contact_points, point_radius
from trot.sim.model import WORLD, Floats, PairKind
from trot.sim.notes import listed, verb
from trot.sim.shapes import tell_points
from trot.sim.surfaces import Surfaces, kind_name
from trot.sim.unsupported import describe_geom, name_of
from trot.sim.weld import Welds, rotation

ROUNDING = 0.1
"""By how much of its smallest half size a box is rounded off at the corners that touch another box."""

_PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)
_FIELD = int(mujoco.mjtGeom.mjGEOM_HFIELD)
FLAT = {_PLANE: PairKind.PLANE, _FIELD: PairKind.FIELD}


@dataclass
class Pairs:
    """The pair fields of Model while they are gathered."""

    feeler_body: list[int] = field(default_factory=list)
    feeler_pos: list[Floats] = field(default_factory=list)
    feeler_half: list[Floats] = field(default_factory=list)
    feeler_radius: list[float] = field(default_factory=list)
    box_body: list[int] = field(default_factory=list)
    box_pos: list[Floats] = field(default_factory=list)
    box_quat: list[Floats] = field(default_factory=list)
    box_size: list[Floats] = field(default_factory=list)
    plane_pos: list[Floats] = field(default_factory=list)
    plane_normal: list[Floats] = field(default_factory=list)
    field_pos: list[Floats] = field(default_factory=list)
    field_quat: list[Floats] = field(default_factory=list)
    field_spacing: list[Floats] = field(default_factory=list)
    field_height: list[Floats] = field(default_factory=list)
    pair_name: list[str] = field(default_factory=list)
    pair_kind: list[int] = field(default_factory=list)
    pair_body: list[tuple[int, int]] = field(default_factory=list)
    pair_feeler: list[tuple[int, int]] = field(default_factory=list)
    pair_solid: list[int] = field(default_factory=list)
    pair_constants: list[Floats] = field(default_factory=list)


@dataclass(frozen=True)
class Touch:
    """Two geoms that may touch, and where the file lists them as a <pair>, which of these it is."""

    first: int
    second: int
    pair: int | None = None


class PairReader:
    """Makes tables of pairs that are added one by one."""

    def __init__(self, compiled: mujoco.MjModel, welds: Welds, surfaces: Surfaces, mesh_points: int) -> None:
        self.result = Pairs()
        self._compiled, self._welds, self._surfaces, self._mesh_points = compiled, welds, surfaces, mesh_points
        self._feelers: dict[tuple[int, str], tuple[int, int]] = {}
        self._solids: dict[int, int] = {}
        self._on_flat: dict[int, int] = {}
        self._passes: dict[int, dict[int, None]] = {}
        self._boxes: list[tuple[int, int]] = []

    def add(self, touch: Touch) -> None:
        """Both ways round where the shapes are two boxes: the corners of each against the other."""
        kinds = [int(self._compiled.geom_type[geom]) for geom in (touch.first, touch.second)]
        for first, second in ((touch.first, touch.second), (touch.second, touch.first)):
            kind, other = int(self._compiled.geom_type[first]), int(self._compiled.geom_type[second])
            if other in FLAT and kind in SHAPES:
                self._append(first, second, touch.pair, FLAT[other], self._points(first))
                return
            if kind in (SPHERE, CAPSULE) and other in (SPHERE, CAPSULE):
                self._append(first, second, touch.pair, PairKind.ROUND, self._axis(first))
                return
            if kind in (SPHERE, CAPSULE) and other == BOX:
                self._append(first, second, touch.pair, PairKind.BOX, self._axis(first))
                return
            if kind == other == BOX:
                self._append(first, second, touch.pair, PairKind.BOX, self._rounded_corners(first))
        if kinds == [BOX, BOX]:
            self._boxes.append((touch.first, touch.second))
            return
        odd, other = (touch.first, touch.second) if kinds[0] not in FLAT else (touch.second, touch.first)
        if kinds[0] in (SPHERE, CAPSULE, BOX):
            odd, other = touch.second, touch.first
        self._passes.setdefault(odd, {})[other] = None

    def notes(self) -> Iterator[str]:
        """What passes through what, how boxes touch, and which shapes touch by points."""
        yield from tell_points(self._compiled, self._on_flat, "planes and height fields")
        for kind in sorted({int(self._compiled.geom_type[geom]) for geom in self._passes}):
            odd = [geom for geom in self._passes if self._compiled.geom_type[geom] == kind]
            others = dict.fromkeys(other for geom in odd for other in self._passes[geom])
            names, met = ([describe_geom(self._compiled, geom) for geom in geoms] for geoms in (odd, others))
            yield (
                f"{listed('geom', names)} {verb(names, 'is', 'are')} of type {kind_name(kind)} and "
                f"{verb(names, 'passes', 'pass')} through {listed('geom', met)}: only spheres, capsules and boxes "
                "touch each other and obstacles."
            )
        if self._boxes:
            names = [" and ".join(describe_geom(self._compiled, geom) for geom in boxes) for boxes in self._boxes]
            yield (
                f"{listed('pair', names)} of boxes {verb(names, 'touches', 'touch')} by corners, a little rounded: "
                "edges that cross pass through each other."
            )

    def sort(self) -> None:
        """By kind, as the kernels go through them."""
        result = self.result
        order = np.argsort(result.pair_kind, kind="stable")
        for table in fields(result):
            if table.name.startswith("pair_"):
                values = getattr(result, table.name)
                setattr(result, table.name, [values[index] for index in order])

    def _append(self, first: int, second: int, pair: int | None, kind: PairKind, feelers: tuple[int, int]) -> None:
        compiled, result = self._compiled, self.result
        bodies = [int(self._welds.owner[compiled.geom_bodyid[geom]]) for geom in (first, second)]
        result.pair_name.append(f"{name_of(compiled, 'geom', first)}, {name_of(compiled, 'geom', second)}")
        result.pair_kind.append(int(kind))
        result.pair_body.append((bodies[0], bodies[1]))
        result.pair_feeler.append(feelers)
        result.pair_solid.append(self._solid(second))
        result.pair_constants.append(self._constants(first, second, pair))

    def _constants(self, first: int, second: int, pair: int | None) -> Floats:
        """Springs and dampers of the two in series; what is fixed to the world and has no numbers is rigid."""
        yielding = [self._surfaces.springs(geom) for geom in (first, second) if not self._is_rigid(geom)]
        together = np.array(yielding or [self._surfaces.springs(first)])
        total = together.sum(axis=0)
        series = (
            together[0]
            if len(together) == 1
            else np.where(total > 0, together.prod(axis=0) / np.maximum(total, 1e-300), 0)
        )
        return np.append(series, self._surfaces.friction(first, second, pair))

    def _is_rigid(self, geom: int) -> bool:
        fixed = self._welds.owner[self._compiled.geom_bodyid[geom]] == WORLD
        return bool(fixed and not self._surfaces.has_own_springs(geom))

    def _pose(self, geom: int) -> tuple[int, Floats, Floats]:
        body = self._compiled.geom_bodyid[geom]
        pos, quat = self._welds.place(body, self._compiled.geom_pos[geom], self._compiled.geom_quat[geom])
        return int(self._welds.owner[body]), pos, quat

    def _axis(self, geom: int) -> tuple[int, int]:
        """A sphere or capsule as one feeler."""
        size, half = self._compiled.geom_size[geom], np.zeros(3)
        if self._compiled.geom_type[geom] == CAPSULE:
            half[2] = size[1]
        return self._add_feelers(geom, "axis", np.zeros((1, 3)), half, float(size[0]))

    def _points(self, geom: int) -> tuple[int, int]:
        """The points that touch the ground, each a ball."""
        centres = contact_points(self._compiled, geom, self._mesh_points)
        self._on_flat[geom] = len(centres)
        return self._add_feelers(geom, "points", centres, np.zeros(3), point_radius(self._compiled, geom))

    def _rounded_corners(self, geom: int) -> tuple[int, int]:
        """Balls in the corners of a box, so that two faces that lie on each other know which way is out."""
        size = self._compiled.geom_size[geom]
        radius = ROUNDING * float(size.min())
        return self._add_feelers(geom, "corners", CORNERS * (size - radius), np.zeros(3), radius)

    def _add_feelers(self, geom: int, name: str, centres: Floats, half: Floats, radius: float) -> tuple[int, int]:
        if (geom, name) not in self._feelers:
            result, (body, pos, quat) = self.result, self._pose(geom)
            start = len(result.feeler_body)
            for centre in centres:
                result.feeler_body.append(body)
                result.feeler_pos.append(pos + rotation(quat) @ centre)
                result.feeler_half.append(rotation(quat) @ half)
                result.feeler_radius.append(radius)
            self._feelers[geom, name] = (start, len(result.feeler_body))
        return self._feelers[geom, name]

    def _solid(self, geom: int) -> int:
        """Where the second shape of a pair stands in the table of its kind."""
        kind = self._compiled.geom_type[geom]
        if kind in (SPHERE, CAPSULE):
            return self._axis(geom)[0]
        if geom not in self._solids:
            add = {BOX: self._add_box, _PLANE: self._add_plane, _FIELD: self._add_field}[int(kind)]
            self._solids[geom] = add(geom)
        return self._solids[geom]

    def _add_box(self, geom: int) -> int:
        result, (body, pos, quat) = self.result, self._pose(geom)
        result.box_body.append(body)
        result.box_pos.append(pos)
        result.box_quat.append(quat)
        result.box_size.append(np.array(self._compiled.geom_size[geom]))
        return len(result.box_body) - 1

    def _add_plane(self, geom: int) -> int:
        result, (_, pos, quat) = self.result, self._pose(geom)
        result.plane_pos.append(pos)
        result.plane_normal.append(rotation(quat)[:, 2])
        return len(result.plane_pos) - 1

    def _add_field(self, geom: int) -> int:
        """A height field's heights lie row by row along y, above the geom's frame."""
        compiled, result = self._compiled, self.result
        _, pos, quat = self._pose(geom)
        index = compiled.geom_dataid[geom]
        rows, columns = int(compiled.hfield_nrow[index]), int(compiled.hfield_ncol[index])
        size, start = compiled.hfield_size[index], compiled.hfield_adr[index]
        shares = compiled.hfield_data[start : start + rows * columns].astype(float)
        result.field_pos.append(pos)
        result.field_quat.append(quat)
        result.field_spacing.append(np.array([2 * size[0] / (columns - 1), 2 * size[1] / (rows - 1)]))
        result.field_height.append(shares.reshape(rows, columns) * size[2])
        return len(result.field_pos) - 1
