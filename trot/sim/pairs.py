"""Which shapes may touch each other, or what is fixed to the world, and how: the pair fields of Model.

MuJoCo's rules decide what may collide: masks, <exclude>, no two geoms of one body, none of a body and the one it hangs
from. A <pair> of the file overrules them. The ground, one horizontal plane, is no pair (shapes.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import product

import mujoco
import numpy as np

from trot.sim.errors import ModelError
from trot.sim.model import WORLD, Floats, PairKind
from trot.sim.shapes import contact_constants, contact_is_off, explicit_pairs, kind_name, masks_meet, require_plain
from trot.sim.unsupported import disabled, name_of
from trot.sim.weld import Welds, rotation

ROUNDING = 0.1
"""By how much of its smallest half size a box is rounded off at the corners that touch another box."""

_PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)
_FIELD = int(mujoco.mjtGeom.mjGEOM_HFIELD)
_SPHERE = int(mujoco.mjtGeom.mjGEOM_SPHERE)
_CAPSULE = int(mujoco.mjtGeom.mjGEOM_CAPSULE)
_BOX = int(mujoco.mjtGeom.mjGEOM_BOX)
_FLAT = {_PLANE: PairKind.PLANE, _FIELD: PairKind.FIELD}


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
class _Pair:
    """Two geoms that may touch, and where the file lists them as a <pair>, which of these it is."""

    first: int
    second: int
    listed: int | None = None


def read_pairs(
    compiled: mujoco.MjModel,
    welds: Welds,
    user: dict[int, Floats],
    ground: int | None,
    *,
    self_collision: bool,
    obstacles: bool,
    notes: list[str],
) -> Pairs:
    """Gather the pairs, and say in notes what is left out.

    user holds the user attribute of each geom as the file gives it. Without self_collision two moving bodies do not
    touch, without obstacles nothing touches geoms that are fixed to the world, but for planes and what the file lists.
    """
    reader = _Reader(compiled, welds, user)
    if contact_is_off(compiled):
        return reader.result
    left_out = 0
    for pair in _find_pairs(compiled, welds):
        fixed = [geom for geom in (pair.first, pair.second) if welds.owner[compiled.geom_bodyid[geom]] == WORLD]
        flat = any(compiled.geom_type[geom] in _FLAT for geom in fixed)
        if pair.listed is None and ground in fixed:
            continue
        if pair.listed is None and not fixed and not self_collision:
            left_out += 1
        elif pair.listed is not None or not fixed or flat or obstacles:
            reader.add(pair)
    if left_out:
        notes.append(
            f"bodies pass through each other: masks let {left_out} pairs of shapes collide, and self_collision=True "
            "simulates them."
        )
    notes += reader.notes()
    reader.sort()
    return reader.result


def _find_pairs(compiled: mujoco.MjModel, welds: Welds) -> Iterator[_Pair]:
    """All that may collide by MuJoCo's rules, and can move against each other."""
    listed = explicit_pairs(compiled)
    for (first, second), index in listed.items():
        if welds.owner[compiled.geom_bodyid[first]] != welds.owner[compiled.geom_bodyid[second]]:
            yield _Pair(first, second, index)
    solid = np.flatnonzero((compiled.geom_contype != 0) | (compiled.geom_conaffinity != 0))
    parents_too = disabled(compiled, mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)
    for place, first in enumerate(map(int, solid)):
        for second in map(int, solid[place + 1 :]):
            bodies = compiled.geom_bodyid[first], compiled.geom_bodyid[second]
            if (
                welds.owner[bodies[0]] != welds.owner[bodies[1]]
                and (parents_too or not _is_parent_and_child(compiled, *bodies))
                and masks_meet(compiled, first, second)
                and (first, second) not in listed
            ):
                yield _Pair(first, second)


def _is_parent_and_child(compiled: mujoco.MjModel, first: int, second: int) -> bool:
    """Of what is welded together each; the world is nobody's parent here."""
    first, second = (int(compiled.body_weldid[body]) for body in (first, second))
    if first == 0 or second == 0:
        return False
    above = [int(compiled.body_weldid[compiled.body_parentid[body]]) for body in (first, second)]
    return bool(above[0] == second or above[1] == first)


class _Reader:
    def __init__(self, compiled: mujoco.MjModel, welds: Welds, user: dict[int, Floats]) -> None:
        self.result = Pairs()
        self._compiled, self._welds, self._user = compiled, welds, user
        self._feelers: dict[tuple[int, str], tuple[int, int]] = {}
        self._solids: dict[int, int] = {}
        self._passes: dict[int, list[int]] = {}
        self._boxes: list[tuple[int, int]] = []

    def add(self, pair: _Pair) -> None:
        """Both ways round where the shapes are two boxes: the corners of each against the other."""
        kinds = [int(self._compiled.geom_type[geom]) for geom in (pair.first, pair.second)]
        for first, second in ((pair.first, pair.second), (pair.second, pair.first)):
            kind, other = int(self._compiled.geom_type[first]), int(self._compiled.geom_type[second])
            if other in _FLAT and kind in (_SPHERE, _CAPSULE, _BOX):
                self._append(first, second, pair.listed, _FLAT[other], self._points(first))
                return
            if kind in (_SPHERE, _CAPSULE) and other in (_SPHERE, _CAPSULE):
                self._append(first, second, pair.listed, PairKind.ROUND, self._axis(first))
                return
            if kind in (_SPHERE, _CAPSULE) and other == _BOX:
                self._append(first, second, pair.listed, PairKind.BOX, self._axis(first))
                return
            if kind == other == _BOX:
                self._append(first, second, pair.listed, PairKind.BOX, self._rounded_corners(first))
        if kinds == [_BOX, _BOX]:
            self._boxes.append((pair.first, pair.second))
            return
        odd, other = (pair.first, pair.second) if kinds[0] not in _FLAT else (pair.second, pair.first)
        if kinds[0] in (_SPHERE, _CAPSULE, _BOX):
            odd, other = pair.second, pair.first
        self._passes.setdefault(odd, []).append(other)

    def notes(self) -> Iterator[str]:
        """What passes through what, and how boxes touch."""
        compiled = self._compiled
        for geom, others in self._passes.items():
            names = ", ".join(f"'{name_of(compiled, 'geom', other)}'" for other in others[:3])
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            yield (
                f"geom '{name_of(compiled, 'geom', geom)}' is of type {kind_name(compiled.geom_type[geom])} and passes "
                f"through {names}{more}: only spheres, capsules and boxes touch each other and slopes."
            )
        if self._boxes:
            first, second = (name_of(compiled, "geom", geom) for geom in self._boxes[0])
            yield (
                f"{len(self._boxes)} pairs of boxes, '{first}' and '{second}' the first, touch by their corners, a "
                "little rounded: edges that cross pass through each other."
            )
        for geom in sorted({geom for geom, _ in self._feelers} | set(self._solids)):
            if compiled.geom_condim[geom] in (4, 6):
                yield f"geom '{name_of(compiled, 'geom', geom)}': condim {compiled.geom_condim[geom]} is taken as 3."

    def sort(self) -> None:
        """By kind, as the kernels go through them."""
        result = self.result
        order = np.argsort(result.pair_kind, kind="stable")
        for listed in fields(result):
            if listed.name.startswith("pair_"):
                values = getattr(result, listed.name)
                setattr(result, listed.name, [values[index] for index in order])

    def _append(self, first: int, second: int, listed: int | None, kind: PairKind, feelers: tuple[int, int]) -> None:
        compiled, result = self._compiled, self.result
        require_plain(compiled, (first, second))
        bodies = [int(self._welds.owner[compiled.geom_bodyid[geom]]) for geom in (first, second)]
        result.pair_name.append(f"{name_of(compiled, 'geom', first)}, {name_of(compiled, 'geom', second)}")
        result.pair_kind.append(int(kind))
        result.pair_body.append((bodies[0], bodies[1]))
        result.pair_feeler.append(feelers)
        result.pair_solid.append(self._solid(second))
        result.pair_constants.append(self._constants(first, second, listed))

    def _constants(self, first: int, second: int, listed: int | None) -> Floats:
        """Springs and dampers of the two in series; what is fixed to the world and has no numbers is rigid."""
        springs = [
            contact_constants(self._compiled, geom, self._user.get(geom, np.zeros(0))) for geom in (first, second)
        ]
        yields = [springs[k][:3] for k, geom in enumerate((first, second)) if not self._is_rigid(geom)]
        together = np.array(yields or [springs[0][:3]])
        total = together.sum(axis=0)
        series = (
            together[0]
            if len(together) == 1
            else np.where(total > 0, together.prod(axis=0) / np.maximum(total, 1e-300), 0)
        )
        return np.append(series, self._friction(first, second, listed))

    def _is_rigid(self, geom: int) -> bool:
        fixed = self._welds.owner[self._compiled.geom_bodyid[geom]] == WORLD
        return bool(fixed and not np.any(self._user.get(geom, np.zeros(0))))

    def _friction(self, first: int, second: int, listed: int | None) -> float:
        """MuJoCo's rule: of the geom with the higher priority, else the larger; none where the condim is 1."""
        compiled, geoms = self._compiled, [first, second]
        if listed is not None:
            friction = float(compiled.pair_friction[listed, 0])
            if not 0 <= friction < np.inf:
                names = " and ".join(f"'{name_of(compiled, 'geom', geom)}'" for geom in geoms)
                raise ModelError(f"the pair of {names} has friction={friction}. Give a finite coefficient >= 0.")
            return friction * bool(compiled.pair_dim[listed] > 1)
        priority = compiled.geom_priority[geoms]
        deciding = [geom for geom in geoms if compiled.geom_priority[geom] == priority.max()]
        slippery = compiled.geom_condim[deciding].max() == 1
        return 0.0 if slippery else float(compiled.geom_friction[deciding, 0].max())

    def _pose(self, geom: int) -> tuple[int, Floats, Floats]:
        body = self._compiled.geom_bodyid[geom]
        pos, quat = self._welds.place(body, self._compiled.geom_pos[geom], self._compiled.geom_quat[geom])
        return int(self._welds.owner[body]), pos, quat

    def _axis(self, geom: int) -> tuple[int, int]:
        """A sphere or capsule as one feeler."""
        size, half = self._compiled.geom_size[geom], np.zeros(3)
        if self._compiled.geom_type[geom] == _CAPSULE:
            half[2] = size[1]
        return self._add_feelers(geom, "axis", np.zeros((1, 3)), half, float(size[0]))

    def _points(self, geom: int) -> tuple[int, int]:
        """The points that touch the ground: a sphere's centre, a capsule's ends, a box's corners."""
        size, kind = self._compiled.geom_size[geom], self._compiled.geom_type[geom]
        if kind == _SPHERE:
            return self._axis(geom)
        if kind == _CAPSULE:
            ends = np.array([[0, 0, -size[1]], [0, 0, size[1]]])
            return self._add_feelers(geom, "points", ends, np.zeros(3), float(size[0]))
        return self._add_feelers(geom, "points", _CORNERS * size, np.zeros(3), 0.0)

    def _rounded_corners(self, geom: int) -> tuple[int, int]:
        """Balls in the corners of a box, so that two faces that lie on each other know which way is out."""
        size = self._compiled.geom_size[geom]
        radius = ROUNDING * float(size.min())
        return self._add_feelers(geom, "corners", _CORNERS * (size - radius), np.zeros(3), radius)

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
        if kind in (_SPHERE, _CAPSULE):
            return self._axis(geom)[0]
        if geom not in self._solids:
            add = {_BOX: self._add_box, _PLANE: self._add_plane, _FIELD: self._add_field}[int(kind)]
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


_CORNERS = np.array(list(product((-1.0, 1.0), repeat=3)))
