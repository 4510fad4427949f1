"""Masses and inertias that no rigid body can have, as URDF files of exporters often give them: named, or repaired."""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np

from trot.sim.model import Floats

LEAST_MASS = 1e-3
"""kg, given to a moving body that has none."""
LEAST_INERTIA = 1e-6
"""kg m^2 about every axis, likewise."""

_NOTHING = 1e-14
"""What MuJoCo takes for no mass and no inertia."""
_FLATTEST = 1e-3
"""The smallest moment of a repaired inertia, as a share of the largest."""
_ROOM = 1e-9
"""How much larger than the third, relatively, two moments together become: MuJoCo's own rounding must not undo it."""


def repair_inertias(spec: mujoco.MjSpec) -> Iterator[tuple[str, str]]:
    """Make every body one that MuJoCo compiles: per change, what was wrong and what was done about it."""
    if spec.compiler.inertiafromgeom == mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE:
        return
    for body in spec.bodies:
        moments, axes = _principal(body)
        if body.explicitinertial and not _possible(moments):
            repaired = _repaired(moments)
            _set_inertia(body, repaired, axes)
            yield (
                f"body '{body.name}' has principal moments of inertia {_numbers(moments)}, which no body can have: "
                "each must be positive, and none larger than the other two together",
                f"they are taken as {_numbers(repaired)}",
            )
    for body in spec.bodies:
        if body.joints and not _has_inertia(spec, body):
            was = f"mass {body.mass:g}"
            body.explicitinertial, body.mass = True, max(body.mass, LEAST_MASS)
            _set_inertia(body, np.full(3, LEAST_INERTIA), None)
            yield (
                f"body '{body.name}' moves with {was} and without inertia",
                f"it is given {body.mass:g} kg and {LEAST_INERTIA:g} kg m^2 about every axis",
            )


def _principal(body: mujoco.MjsBody) -> tuple[Floats, Floats | None]:
    """The three principal moments, and their axes where the file gives a full matrix."""
    full, plain = np.array(body.fullinertia), np.array(body.inertia, dtype=float)
    if np.isnan(full[0]):
        return plain, None
    if not np.isfinite(full).all():
        # MuJoCo names what is no number.
        return np.zeros(3), None
    xx, yy, zz, xy, xz, yz = full
    moments, axes = np.linalg.eigh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return moments, axes


def _possible(moments: Floats) -> bool:
    """Whether MuJoCo takes them; none at all is possible for what does not move."""
    return not np.any(moments) or bool(moments.min() >= _NOTHING and moments.sum() >= 2 * moments.max())


def _repaired(moments: Floats) -> Floats:
    """The largest stays; the others are raised until they are positive and together as large."""
    largest = max(float(moments.max()), LEAST_INERTIA)
    repaired = np.maximum(moments, _FLATTEST * largest)
    missing = largest * (1 + _ROOM) - (repaired.sum() - repaired.max())
    if missing > 0:
        smaller = np.arange(3) != np.argmax(repaired)
        repaired[smaller] += missing / 2
    return repaired


def _set_inertia(body: mujoco.MjsBody, moments: Floats, axes: Floats | None) -> None:
    if axes is None:
        body.fullinertia = [np.nan, 0, 0, 0, 0, 0]
        body.inertia = moments
    else:
        matrix = axes * moments @ axes.T
        body.fullinertia = [matrix[i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]


def _has_inertia(spec: mujoco.MjSpec, body: mujoco.MjsBody) -> bool:
    """Whether the body, with what is welded to it, resists being moved and turned."""
    if body.explicitinertial:
        if body.mass >= _NOTHING and np.min(_principal(body)[0]) >= _NOTHING:
            return True
    elif any(weighs(spec, geom) for geom in body.geoms):
        return True
    return any(_has_inertia(spec, part) for part in body.bodies if not part.joints)


def weighs(spec: mujoco.MjSpec, geom: mujoco.MjsGeom) -> bool:
    """Whether its body has mass from this geom that matters: the mass of what cannot move does not."""
    if not _moves(geom.parent):
        return False
    rule, groups = spec.compiler.inertiafromgeom, spec.compiler.inertiagrouprange
    if rule == mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE or not groups[0] <= geom.group <= groups[1]:
        return False
    if rule == mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_AUTO and geom.parent.explicitinertial:
        return False
    return bool(geom.density != 0 if np.isnan(geom.mass) else geom.mass != 0)


def _moves(body: mujoco.MjsBody | None) -> bool:
    return body is not None and (len(body.joints) > 0 or _moves(body.parent))


def _numbers(values: Floats) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
