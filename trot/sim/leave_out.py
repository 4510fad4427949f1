"""What a user accepts to lose of a robot, taken out of MuJoCo's specification before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import mujoco

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
    for equality in list(spec.equalities):
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
    """Forces of a tendon by itself: what actuators do along it stays."""
    for tendon in spec.tendons:
        found = [name for name in ("armature", "frictionloss") if getattr(tendon, name) != 0]
        found += [name for name in ("stiffness", "damping") if any(value != 0 for value in getattr(tendon, name))]
        tendon.armature = tendon.frictionloss = 0
        tendon.stiffness, tendon.damping = [0] * len(tendon.stiffness), [0] * len(tendon.damping)
        limited = tendon.limited == mujoco.mjtLimited.mjLIMITED_TRUE
        if limited or (tendon.limited == mujoco.mjtLimited.mjLIMITED_AUTO and tendon.range[0] != tendon.range[1]):
            found.append("range")
        tendon.limited = mujoco.mjtLimited.mjLIMITED_FALSE
        if found:
            yield f"{' and '.join(found)} of tendon '{tendon.name}' {'is' if len(found) == 1 else 'are'} left out."


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
