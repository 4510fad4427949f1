"""Whether two geoms may touch, and the constants of their contact: MuJoCo's rules, and the user attribute."""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np

from trot.sim.model import Floats
from trot.sim.notes import Findings, listed
from trot.sim.unsupported import describe_geom, disabled

LEAST_STIFFNESS = 1.0
"""N/m. A user attribute of three numbers that begins with less than this is not trot's: it would hold nothing."""


def contact_is_off(compiled: mujoco.MjModel) -> bool:
    """Whether the file switches all contact off."""
    return disabled(compiled, mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)


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


def kind_name(kind: int) -> str:
    """As MJCF writes it."""
    return str(mujoco.mjtGeom(kind).name).removeprefix("mjGEOM_").lower()


class Surfaces:
    """Contact constants of the geoms that touch something; what is wrong with a geom is found once."""

    def __init__(
        self, compiled: mujoco.MjModel, user: dict[int, Floats], springs: tuple[float, ...], found: Findings
    ) -> None:
        """Of a file; user holds the user attribute of each geom as the file gives it, springs what others have."""
        self._compiled, self._user, self._springs, self._found = compiled, user, springs, found
        self._met: set[int] = set()
        self._rolling: dict[tuple[int, str], set[str]] = {}

    def meet(self, geom: int) -> None:
        """Look at a geom that touches something."""
        if geom not in self._met:
            self._met.add(geom)
            self._found.problems += self._wrong_with(geom)

    def springs(self, geom: int) -> Floats:
        """(3,) stiffness, damping and friction stiffness of one shape."""
        self.meet(geom)
        if self.has_own_springs(geom):
            return self._user[geom]
        return np.array(self._springs)

    def has_own_springs(self, geom: int) -> bool:
        """Whether its user attribute holds trot's constants; other programs use the attribute for their own ends."""
        user = self._user.get(geom, np.zeros(0))
        return len(user) == 3 and not 0 <= user[0] < LEAST_STIFFNESS

    def friction(self, first: int, second: int, pair: int | None = None) -> float:
        """Coulomb's coefficient by MuJoCo's rule: of the geom with the higher priority, else the larger one.

        The condim likewise, and no friction where it is 1. A <pair> of the file has its own.
        """
        compiled, geoms = self._compiled, (first, second)
        for geom in geoms:
            self.meet(geom)
        if pair is not None:
            return self._friction_of_pair(pair)
        highest = max(compiled.geom_priority[geom] for geom in geoms)
        deciding = [geom for geom in geoms if compiled.geom_priority[geom] == highest]
        condim = int(max(compiled.geom_condim[geom] for geom in deciding))
        for geom in deciding:
            if compiled.geom_condim[geom] == condim:
                self._note_condim(condim, "geom", describe_geom(compiled, geom))
        return 0.0 if condim == 1 else float(max(compiled.geom_friction[geom, 0] for geom in deciding))

    def notes(self) -> Iterator[str]:
        """What is not read of the geoms that were asked for."""
        for (condim, kind), names in sorted(self._rolling.items()):
            yield (
                f"condim {condim} of {listed(kind, sorted(names))} is taken as 3: torsional and rolling friction are "
                "not simulated."
            )
        foreign = [
            describe_geom(self._compiled, geom)
            for geom in sorted(self._met)
            if np.any(self._user.get(geom, np.zeros(0))) and not self.has_own_springs(geom)
        ]
        if foreign:
            yield (
                f"user of {listed('geom', foreign)} is not read: it is not a contact stiffness of "
                f"{LEAST_STIFFNESS:g} N/m or more, a damping and a friction stiffness."
            )

    def _friction_of_pair(self, pair: int) -> float:
        compiled = self._compiled
        ends = (compiled.pair_geom1[pair], compiled.pair_geom2[pair])
        name = " and ".join(describe_geom(compiled, int(geom)) for geom in ends)
        friction, condim = float(compiled.pair_friction[pair, 0]), int(compiled.pair_dim[pair])
        if not 0 <= friction < np.inf:
            self._found.problems.append(
                f"contact pair '{name}' has friction={friction}. Give a finite coefficient >= 0."
            )
        self._note_condim(condim, "contact pair", name)
        return 0.0 if condim == 1 else friction

    def _note_condim(self, condim: int, kind: str, name: str) -> None:
        if condim > 3:
            self._rolling.setdefault((condim, kind), set()).add(name)

    def _wrong_with(self, geom: int) -> Iterator[str]:
        compiled, name = self._compiled, describe_geom(self._compiled, geom)
        for field in ("geom_surfacevel", "geom_adhesion"):
            if np.any(getattr(compiled, field, np.zeros(compiled.ngeom))[geom] != 0):
                yield f"geom '{name}' has {field[5:]}, which is not simulated. Remove it."
        friction = compiled.geom_friction[geom]
        if not np.all((friction >= 0) & (friction < np.inf)):
            yield f"geom '{name}' has friction={friction.tolist()}. Give finite coefficients >= 0."
        if self.has_own_springs(geom):
            user = self._user[geom]
            if not np.all(np.isfinite(user)) or np.any(user < 0):
                yield f"geom '{name}' has user={user.tolist()}. Give three finite contact constants >= 0."
