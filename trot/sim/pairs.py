"""Which shapes may touch each other, or what is fixed to the world, and how: the pair fields of Model.

MuJoCo's rules decide what may collide: masks, <exclude>, no two geoms of one body, none of a body and the one it hangs
from. A <pair> of the file overrules them. The ground, one horizontal plane, is no pair (shapes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import mujoco
import numpy as np

from trot.sim.model import WORLD
from trot.sim.notes import Findings, listed, verb
from trot.sim.pair_tables import FLAT, PairReader, Pairs, Touch
from trot.sim.surfaces import Surfaces, contact_is_off, explicit_pairs, masks_meet
from trot.sim.unsupported import describe_geom, disabled
from trot.sim.weld import Welds

Own = Callable[[int, int], bool]
"""Whether a geom that is fixed to the world, the first, is the base of the robot that the second belongs to."""


def read_pairs(
    compiled: mujoco.MjModel,
    welds: Welds,
    ground: int | None,
    surfaces: Surfaces,
    own: Own,
    *,
    self_collision: bool,
    mesh_points: int,
    found: Findings,
) -> Pairs:
    """Gather the pairs, and note what is left out: without self_collision whatever two moving bodies are to each other.

    What the file lists as a <pair> is never left out.
    """
    reader = PairReader(compiled, welds, surfaces, mesh_points)
    if contact_is_off(compiled):
        return reader.result
    moving, base = 0, dict[int, None]()
    for touch in _find_touches(compiled, welds):
        ends = (touch.first, touch.second)
        fixed = [geom for geom in ends if welds.owner[compiled.geom_bodyid[geom]] == WORLD]
        if touch.pair is not None:
            reader.add(touch)
        elif not fixed and not self_collision:
            moving += 1
        elif fixed and compiled.geom_type[fixed[0]] not in FLAT and own(fixed[0], sum(ends) - fixed[0]):
            base[fixed[0]] = None
        elif ground not in fixed:
            reader.add(touch)
    found.notes += _left_out(compiled, moving, list(base))
    found.notes += reader.notes()
    reader.sort()
    return reader.result


def same_tree(compiled: mujoco.MjModel) -> Own:
    """A robot's base is what is fixed to the world in the tree of bodies that the robot hangs from."""

    def own(fixed: int, other: int) -> bool:
        roots = compiled.body_rootid[compiled.geom_bodyid[[fixed, other]]]
        return bool(roots[0] == roots[1])

    return own


def _left_out(compiled: mujoco.MjModel, moving: int, base: list[int]) -> Iterator[str]:
    if moving:
        many = "1 pair" if moving == 1 else f"{moving} pairs"
        yield (
            f"bodies pass through each other: masks let {many} of shapes collide, and self_collision=True simulates "
            f"{'it' if moving == 1 else 'them'}."
        )
    if base:
        names = [describe_geom(compiled, geom) for geom in sorted(base)]
        which = f"{listed('geom', names)} of the robot's fixed base"
        yield f"{which} {verb(names, 'is', 'are')} not touched by its other parts."


def _find_touches(compiled: mujoco.MjModel, welds: Welds) -> Iterator[Touch]:
    """All that may collide by MuJoCo's rules, and can move against each other."""
    explicit = explicit_pairs(compiled)
    for (first, second), index in explicit.items():
        if welds.owner[compiled.geom_bodyid[first]] != welds.owner[compiled.geom_bodyid[second]]:
            yield Touch(first, second, index)
    solid = np.flatnonzero((compiled.geom_contype != 0) | (compiled.geom_conaffinity != 0))
    parents_too = disabled(compiled, mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)
    for place, first in enumerate(map(int, solid)):
        for second in map(int, solid[place + 1 :]):
            bodies = compiled.geom_bodyid[first], compiled.geom_bodyid[second]
            if (
                welds.owner[bodies[0]] != welds.owner[bodies[1]]
                and (parents_too or not _is_parent_and_child(compiled, *bodies))
                and masks_meet(compiled, first, second)
                and (first, second) not in explicit
            ):
                yield Touch(first, second)


def _is_parent_and_child(compiled: mujoco.MjModel, first: int, second: int) -> bool:
    """Of what is welded together each; the world is nobody's parent here."""
    first, second = (int(compiled.body_weldid[body]) for body in (first, second))
    if first == 0 or second == 0:
        return False
    above = [int(compiled.body_weldid[compiled.body_parentid[body]]) for body in (first, second)]
    return bool(above[0] == second or above[1] == first)
