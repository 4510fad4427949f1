"""What MuJoCo simulates and trot does not, outside of contacts and actuators: named, with what to do instead.

A file that asks for such a thing is refused, because a robot that loads but moves differently is worse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np

_KINDS = {
    "body": mujoco.mjtObj.mjOBJ_BODY,
    "joint": mujoco.mjtObj.mjOBJ_JOINT,
    "geom": mujoco.mjtObj.mjOBJ_GEOM,
    "site": mujoco.mjtObj.mjOBJ_SITE,
    "tendon": mujoco.mjtObj.mjOBJ_TENDON,
    "equality": mujoco.mjtObj.mjOBJ_EQUALITY,
    "actuator": mujoco.mjtObj.mjOBJ_ACTUATOR,
}


def name_of(compiled: mujoco.MjModel, kind: str, index: int) -> str:
    """The element's name in the file; where it has none, its kind and MuJoCo's index, as in 'geom5'."""
    return mujoco.mj_id2name(compiled, _KINDS[kind], index) or f"{kind}{index}"


def describe_geom(compiled: mujoco.MjModel, geom: int) -> str:
    """Its name; where it has none, its number and the name of its body, as in 'geom5 of foot'."""
    name = name_of(compiled, "geom", geom)
    unnamed = not mujoco.mj_id2name(compiled, mujoco.mjtObj.mjOBJ_GEOM, geom)
    return f"{name} of {name_of(compiled, 'body', compiled.geom_bodyid[geom])}" if unnamed else name


def control_entry(compiled: mujoco.MjModel, kind: str, actuator: int) -> int:
    """Where an actuator's first control or output stands; before MuJoCo 4 each had one."""
    starts = getattr(compiled, f"actuator_{kind}adr", None)
    return actuator if starts is None else int(starts[actuator])


def disabled(compiled: mujoco.MjModel, flag: mujoco.mjtDisableBit) -> bool:
    """Whether the file switches this off under <option><flag/>."""
    return bool(compiled.opt.disableflags & flag)


def is_fixed_tendon(compiled: mujoco.MjModel, tendon: int) -> bool:
    """Whether its length is a sum of joint coordinates, and not that of a path in space."""
    return bool(compiled.wrap_type[compiled.tendon_adr[tendon]] == mujoco.mjtWrap.mjWRAP_JOINT)


def find_unsupported(compiled: mujoco.MjModel) -> Iterator[str]:
    """One sentence or two per thing that the file asks for in vain."""
    yield from _in_options(compiled)
    yield from _in_bodies(compiled)
    yield from _in_joints(compiled)
    yield from _in_tendons(compiled)
    yield from _in_constraints(compiled)


def _in_options(compiled: mujoco.MjModel) -> Iterator[str]:
    for attribute in ("density", "viscosity"):
        if getattr(compiled.opt, attribute) != 0:
            yield f'option {attribute} asks for a fluid, which is not simulated. Set {attribute}="0"{_or("fluid")}.'
    if disabled(compiled, mujoco.mjtDisableBit.mjDSBL_ACTUATION):
        yield "flag actuation is disabled, so no control would act. Remove the flag and give zero controls instead."
    if compiled.opt.enableflags & mujoco.mjtEnableBit.mjENBL_OVERRIDE:
        yield "flag override replaces every contact parameter. Remove the flag and set the parameters on the geoms."
    if compiled.nplugin > 0:
        yield f"the file uses plugins, which are not simulated. Remove them{_or('plugins')}."
    if compiled.nflex > 0:
        yield "the file has a flex (deformable body), which is not simulated. Remove it or use rigid bodies."


def _in_bodies(compiled: mujoco.MjModel) -> Iterator[str]:
    """Where actuators bear the weight, MuJoCo bounds the two together."""
    lifts = compiled.ngravcomp > 0
    for joint in map(int, np.flatnonzero(compiled.jnt_actgravcomp & compiled.jnt_actfrclimited)):
        if lifts:
            yield (
                f"joint '{name_of(compiled, 'joint', joint)}' has actuatorgravcomp and actuatorfrcrange, which bounds "
                f"the two together in MuJoCo, and not here. Remove one of them{_or('gravcomp')}."
            )


def _in_joints(compiled: mujoco.MjModel) -> Iterator[str]:
    springs = not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_SPRING)
    for joint in range(compiled.njnt):
        name = name_of(compiled, "joint", joint)
        dof = compiled.jnt_dofadr[joint]
        if _nonzero(compiled, "dof_dampingpoly", dof):
            yield f"joint '{name}' has damping of higher order in speed. Give a single damping coefficient."
        if _nonzero(compiled, "jnt_stiffnesspoly", joint):
            yield f"joint '{name}' has stiffness of higher order in displacement. Give a single stiffness."
        if _nonzero(compiled, "jnt_springyield", joint):
            yield f"joint '{name}' has springyield (a plastic spring), which is not simulated. Remove it."
        free = compiled.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE
        if free and springs and compiled.jnt_stiffness[joint] != 0:
            yield f"free joint '{name}' has stiffness, which is not simulated. Remove it."


def _in_tendons(compiled: mujoco.MjModel) -> Iterator[str]:
    """Forces of a tendon by itself; what an actuator makes of its path is looked at with the actuators."""
    of_none = ("stiffnesspoly", "springyield", "dampingpoly", "armature")
    of_fixed = ("stiffness", "damping", "frictionloss")
    for tendon in range(compiled.ntendon):
        name, fixed = name_of(compiled, "tendon", tendon), is_fixed_tendon(compiled, tendon)
        attributes = of_none if fixed else (*of_fixed, *of_none)
        found = [attribute for attribute in attributes if _nonzero(compiled, f"tendon_{attribute}", tendon)]
        found += ["limited"] if compiled.tendon_limited[tendon] and not fixed else []
        if found:
            kind = "a fixed tendon has none" if fixed else "a spatial tendon only transmits a muscle's pull"
            yield f"tendon '{name}' has {' and '.join(found)}; {kind}. Remove it{_or('tendons')}."


def _in_constraints(compiled: mujoco.MjModel) -> Iterator[str]:
    equalities = not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_EQUALITY | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    for equality in range(compiled.neq):
        kind = mujoco.mjtEq(compiled.eq_type[equality]).name.removeprefix("mjEQ_").lower()
        if equalities and compiled.eq_active0[equality] and kind not in ("joint", "tendon", "connect", "weld"):
            name = name_of(compiled, "equality", equality)
            yield (
                f"equality constraint '{name}' ({kind}) is not simulated. "
                f'Remove it, set active="false"{_or("equality")}.'
            )


def _or(name: str) -> str:
    """Another way out: to do without it."""
    return f", or load with leave_out=('{name}',)"


def _nonzero(compiled: mujoco.MjModel, field: str, index: int) -> bool:
    """Whether this entry asks for something; earlier versions of MuJoCo lack some of the fields."""
    values: Any = getattr(compiled, field, None)
    return values is not None and bool(np.any(values[index] != 0))
