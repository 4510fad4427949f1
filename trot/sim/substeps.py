"""How many substeps a robot takes: its stiffest springs and dampers against the inertia that they move.

With the mass matrix M, semi-implicit Euler with a substep h keeps the motion of linear springs K and dampers C from
growing while 4 M - 2 h C - h^2 K is positive definite: for one mass m, h < 4 / (g + sqrt(g^2 + 4 w^2)) with g = c / m
and w^2 = k / m, which is 2 / w for a spring alone and 2 m / c for a damper alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trot.sim.model import ActKind, Floats, Model
from trot.sim.pose import Pose
from trot.sim.stiff_terms import FRICTION, Term, contact_terms, lasting_terms

SAFETY = 1.5
"""Substeps in the longest that does not grow. Gradients of the tasks stop growing at 1 (docs/your_own.md, Substeps)."""

BOUNCE = 6.0
"""The same for springs that are met, contacts and limits. What bounces on one without damping for two seconds gains
up to 60 % of its energy at 1.5, though its motion does not grow while they touch, 15 % at 4 and 5 % at 6."""

LEAST = 4
"""Substeps for the accuracy of the motion itself, where nothing is stiff."""

LOOKED_AT = 12
"""Of the ways in which a robot may touch, so many of the stiffest are worked out with all that acts besides."""


@dataclass(frozen=True)
class StiffTerm:
    """One of the forces that decide on the substep."""

    name: str
    """As in "friction of geom 'foot'"."""
    longest: float
    """The longest substep, s, with which its motion does not grow if it acts alone."""
    push: Push | None = None
    """None where it moves nothing, as an activation."""


@dataclass(frozen=True)
class Push:
    """A spring and damper, and what it moves, in the direction in which it is stiffest: units by its joint."""

    stiffness: float
    damping: float
    inertia: float
    dof: str
    """The one that it moves most."""
    gear: float
    """Its own motion per motion of that dof."""
    met: bool
    """Whether it begins to push where something meets it."""

    @property
    def margin(self) -> float:
        """Substeps in the longest that does not grow."""
        return BOUNCE if self.met else SAFETY


@dataclass(frozen=True)
class Substeps:
    """How many a control step takes, and why."""

    count: int
    control_dt: float
    longest: float
    """The longest substep, s, with which no motion grows, all taken together; infinite where nothing is stiff."""
    without_friction: int
    """The count if contacts had no friction. Its force is bounded, so that between the two nothing blows up; but
    whatever sticks chatters, and gradients grow."""
    terms: tuple[StiffTerm, ...]
    """The one that decides, then the others from the stiffest on."""

    def sentence(self) -> str:
        """For a reader: the number, and what decides."""
        begin = f"{self.count} for a control step of {1e3 * self.control_dt:.1f} ms"
        if not self.terms or self.count == LEAST:
            return f"{begin}; nothing is stiff enough to ask for more"
        # One of each kind: there are four feet, and the second says no more than the first.
        kinds = {term.name.partition(" '")[0]: term for term in reversed(self.terms)}
        told = [f"{term.name}, {1e3 * term.longest:.2g} ms" for term in self.terms if term in kinds.values()][:3]
        others = f"; next: {'; '.join(told[1:])}" if told[1:] else ""
        return f"{begin}. What decides, with the longest substep that it bears alone: {told[0]}{others}"


def suggest_substeps(model: Model, control_dt: float = 1 / 60) -> Substeps:
    """From contacts, friction, limits, servos, springs, dampers, ties, bonds and muscles, at the default pose."""
    pose = Pose(model)
    inverse = np.asarray(np.linalg.inv(pose.mass_matrix()), np.float64)
    lasting = [term for term in lasting_terms(model, pose) if _acts(term)]
    ways = [[term for term in way if _acts(term)] for way in contact_terms(model, pose)]
    slow = _activations(model)
    found = _alone(model, inverse, [*lasting, *(term for way in ways for term in way)])
    found |= {name: StiffTerm(name, bound) for name, bound in slow.items()}
    longest, count, decides = _decide(inverse, lasting, ways, slow, control_dt)
    smooth = [[term for term in way if not term.name.startswith(FRICTION)] for way in ways]
    ranked = sorted(found.values(), key=lambda term: (term.name != decides, term.longest))
    return Substeps(
        count, control_dt, longest, _decide(inverse, lasting, smooth, slow, control_dt)[1],
        tuple(ranked),
    )  # fmt: skip


def _decide(
    inverse: Floats, lasting: list[Term], ways: list[list[Term]], slow: dict[str, float], control_dt: float
) -> tuple[float, int, str]:
    """The longest substep that does not grow, the count, and the name of what decides on it."""
    longest, decides = min([_stiffest(inverse, lasting, ways), *((bound, name) for name, bound in slow.items())])
    met, met_first = _stiffest(inverse, _springs(lasting), [_springs(way) for way in ways])
    count, count_of_springs = (_count(part * control_dt / h) for part, h in ((SAFETY, longest), (BOUNCE, met)))
    return longest, max(count, count_of_springs), met_first if count_of_springs > count else decides


def _springs(terms: list[Term]) -> list[Term]:
    """Of those that are met, without their damping."""
    return [replace(term, damping=0 * term.damping) for term in terms if term.one_sided]


def longest_substep(inverse: Floats, terms: Sequence[Term]) -> tuple[float, str]:
    """The longest that does not grow with all these terms at once, and which of them does most about it.

    inverse is that of the mass matrix.
    """
    if not terms:
        return math.inf, ""
    rows = np.concatenate([term.jacobian for term in terms])
    stiffness, damping = (np.concatenate([getattr(t, what) for t in terms]) for what in ("stiffness", "damping"))
    # 1 / h is the largest root mu of det(4 mu^2 M - 2 mu C - K) = 0: of the dofs, or of the rows where these are fewer.
    if len(rows) < len(inverse):
        give = rows @ inverse @ rows.T
        by_damping, by_stiffness, move = give * damping / 2, give * stiffness / 4, np.eye(len(rows))
    else:
        by_damping, by_stiffness = (inverse @ (rows.T * c @ rows) for c in (damping / 2, stiffness / 4))
        move = rows
    count = len(by_damping)
    roots, vectors = np.linalg.eig(np.block([[by_damping, by_stiffness], [np.eye(count), np.zeros((count, count))]]))
    which = int(roots.real.argmax())
    rate = float(roots[which].real)
    if not rate > 0:
        return math.inf, ""
    motion = move @ vectors[count:, which].real
    work = (2 * damping / rate + stiffness / rate**2) * motion**2
    owner = np.repeat(np.arange(len(terms)), [len(term.jacobian) for term in terms])
    return 1 / rate, terms[int(np.bincount(owner, work).argmax())].name


def _stiffest(inverse: Floats, lasting: list[Term], ways: list[list[Term]]) -> tuple[float, str]:
    """Over the ways to touch that seem the stiffest, each together with all that lasts."""
    ranked = sorted(ways, key=lambda way: -sum(_rate(inverse, term) for term in way))
    return min((longest_substep(inverse, [*lasting, *way]) for way in ([], *ranked[:LOOKED_AT])), key=lambda f: f[0])


def _alone(model: Model, inverse: Floats, terms: Sequence[Term]) -> dict[str, StiffTerm]:
    """Each element by itself, in the way in which it acts most stiffly."""
    stiffest: dict[str, tuple[float, Term]] = {}
    for term in terms:
        rate = _rate(inverse, term)
        if term.name not in stiffest or rate > stiffest[term.name][0]:
            stiffest[term.name] = rate, term
    return {
        name: StiffTerm(name, longest_substep(inverse, [term])[0], _push(model, inverse, term))
        for name, (_, term) in stiffest.items()
    }


def _push(model: Model, inverse: Floats, term: Term) -> Push | None:
    give = np.einsum("ij,jk,ik->i", term.jacobian, inverse, term.jacobian)
    row = int((term.damping * give / 2 + np.sqrt(term.stiffness * give) / 2).argmax())
    if give[row] == 0:
        # It pushes where nothing can move.
        return None
    along = term.jacobian[row]
    dof = int((along**2 * inverse.diagonal()).argmax())
    return Push(
        float(term.stiffness[row]), float(term.damping[row]), 1 / float(give[row]), model.dof_name[dof],
        float(along[dof]), term.one_sided,
    )  # fmt: skip


def _rate(inverse: Floats, term: Term) -> float:
    """An estimate of 1 / longest_substep(), as if its rows did not know of each other."""
    give = np.einsum("ij,jk,ik->i", term.jacobian, inverse, term.jacobian)
    return float((term.damping * give).sum() / 2 + math.sqrt((term.stiffness * give).sum()) / 2)


def _activations(model: Model) -> dict[str, float]:
    """Explicit Euler bears twice a time constant, which of a muscle that rests is half of what the file gives.

    A filter that is integrated exactly bears anything.
    """
    bound = (model.act_time[:, :2] > 0) & (model.act_kind != ActKind.EXACT_FILTER)[:, None]
    times = np.where(bound, model.act_time[:, :2], np.inf).min(axis=1)
    names = [f"activation of '{model.actuator_name[actuator]}'" for actuator in model.act_actuator]
    return {name: float(time) for name, time in zip(names, times, strict=True) if np.isfinite(time)}


def _count(needed: float) -> int:
    # Rounding must not ask for one more.
    return max(LEAST, math.ceil(needed - 1e-9))


def _acts(term: Term) -> bool:
    return bool(np.any((term.stiffness > 0) | (term.damping > 0)))
