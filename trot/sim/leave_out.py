"""What a user accepts to lose of a robot, taken out of MuJoCo's specification before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import mujoco
import numpy as np

from trot.sim.notes import listed


def leave_out(spec: mujoco.MjSpec, names: Sequence[str]) -> Iterator[str]:
    """Take them out; one sentence per thing that was there."""
    for name in names:
        yield from _WAYS[name](spec)


def _fluid(spec: mujoco.MjSpec) -> Iterator[str]:
    for attribute in ("density", "viscosity"):
        value = getattr(spec.option, attribute)
        if value != 0:
            setattr(spec.option, attribute, 0)
            yield f"option {attribute}={value:g} (a fluid) is left out."


def _equality(spec: mujoco.MjSpec) -> Iterator[str]:
    """All but those of joints: who leaves bonds out may still want couplings."""
    for equality in [equality for equality in spec.equalities if equality.type != mujoco.mjtEq.mjEQ_JOINT]:
        if equality.active:
            kind = equality.type.name.removeprefix("mjEQ_").lower()
            yield f"equality constraint '{equality.name}' ({kind} of '{equality.name1}') is left out."
        spec.delete(equality)


def _gravcomp(spec: mujoco.MjSpec) -> Iterator[str]:
    found = [body for body in spec.bodies if body.gravcomp != 0]
    if found:
        yield f"gravcomp of {listed('body', [body.name for body in found])} is left out."
    for body in found:
        body.gravcomp = 0


def _tendons(spec: mujoco.MjSpec) -> Iterator[str]:
    """Forces of a tendon by itself that are not simulated: what actuators do along it stays."""
    for tendon in spec.tendons:
        fixed = any(part.type == mujoco.mjtWrap.mjWRAP_JOINT for part in tendon.path)
        found = [*_higher_order(tendon), *([] if fixed else _of_spatial(tendon))]
        if found:
            yield f"{' and '.join(found)} of tendon '{tendon.name}' {'is' if len(found) == 1 else 'are'} left out."


def _higher_order(tendon: mujoco.MjsTendon) -> Iterator[str]:
    """What no tendon has."""
    for name in ("armature", "springyield"):
        if getattr(tendon, name, 0) != 0:
            setattr(tendon, name, 0)
            yield name
    for name in ("stiffness", "damping"):
        first, *others = np.atleast_1d(getattr(tendon, name))
        if np.any(np.array(others) != 0):
            setattr(tendon, name, [first, *[0] * len(others)])
            yield f"{name} of higher order"


def _of_spatial(tendon: mujoco.MjsTendon) -> Iterator[str]:
    """What only a fixed tendon has."""
    if tendon.frictionloss != 0:
        tendon.frictionloss = 0
        yield "frictionloss"
    for name in ("stiffness", "damping"):
        values = np.atleast_1d(getattr(tendon, name))
        if np.any(values != 0):
            setattr(tendon, name, [0] * len(values))
            yield name
    limited = tendon.limited == mujoco.mjtLimited.mjLIMITED_TRUE
    if limited or (tendon.limited == mujoco.mjtLimited.mjLIMITED_AUTO and tendon.range[0] != tendon.range[1]):
        yield "range"
    tendon.limited = mujoco.mjtLimited.mjLIMITED_FALSE


def _plugins(spec: mujoco.MjSpec) -> Iterator[str]:
    for kind, elements in (("actuator", spec.actuators), ("sensor", spec.sensors)):
        for element in list(elements):
            if element.plugin.active:
                yield f"{kind} '{element.name}' is a plugin and left out."
                spec.delete(element)
    for body in spec.bodies:
        if body.plugin.active:
            body.plugin.active = False
            yield f"the plugin of body '{body.name}' is left out."
    # A shape of a plugin (SDF) stays, and is refused: nothing can take its place.
    if not any(part.plugin.active for part in (*spec.geoms, *spec.meshes)):
        for plugin in list(spec.plugins):
            spec.delete(plugin)


def _nothing(spec: mujoco.MjSpec) -> Iterator[str]:
    """Meshes are left out one by one, where their files are looked for."""
    return iter(())


_WAYS: dict[str, Callable[[mujoco.MjSpec], Iterator[str]]] = {
    "equality": _equality,
    "fluid": _fluid,
    "gravcomp": _gravcomp,
    "meshes": _nothing,
    "plugins": _plugins,
    "tendons": _tendons,
}
