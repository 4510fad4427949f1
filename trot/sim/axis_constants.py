"""Constants of joints and fixed tendons that MJCF has no attribute for: of their limits and of dry friction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from trot.sim.model import Floats, JointType
from trot.sim.notes import Findings, listed
from trot.sim.unsupported import disabled, name_of

LIMIT_STIFFNESS = 1e3
"""N/m or N m/rad of a limit, where a joint or tendon has no user attribute."""
FRICTION_SPEED = 0.1
"""m/s or rad/s from which on dry friction has its full force, likewise."""

LEAST_STIFFNESS = 1.0
"""N/m or N m/rad. A user attribute of two or three numbers that begins with less than this is not trot's."""


OWN_SIZES = (-1, 3)
"""What <size nuser_jnt> or <size nuser_tendon> may be for user to be trot's: not given, or all that trot reads."""


@dataclass(frozen=True)
class UserNumbers:
    """The user attributes of all joints, or of all tendons."""

    given: dict[int, Floats]
    """By element, as the file gives them: the compiler pads them with zeros."""
    size: int = -1
    """How many <size> says that there are, -1 where it says nothing."""


@dataclass(frozen=True)
class AxisConstants:
    """What the user attribute of a joint or tendon may set, in this order."""

    limit_stiffness: float = LIMIT_STIFFNESS
    limit_damping: float = 0.0
    friction_speed: float = FRICTION_SPEED


def axis_constants(
    compiled: mujoco.MjModel, kind: str, elements: Iterable[int], user: UserNumbers, found: Findings
) -> list[AxisConstants]:
    """Of joints or tendons. All zeros count as not given."""
    constants, foreign = list[AxisConstants](), list[str]()
    for element in elements:
        name, numbers = name_of(compiled, kind, element), user.given.get(element, np.zeros(0))
        if np.any(numbers) and (user.size not in OWN_SIZES or not _is_ours(numbers)):
            foreign.append(name)
        elif np.any(numbers):
            found.problems += _wrong_with(f"{kind} '{name}'", numbers)
            constants.append(AxisConstants(*(float(number) for number in numbers)))
            continue
        constants.append(AxisConstants())
    if foreign and user.size not in OWN_SIZES:
        attribute = "nuser_jnt" if kind == "joint" else "nuser_tendon"
        found.notes.append(
            f"user of {listed(kind, foreign)} is not read: the file counts such numbers by <size "
            f'{attribute}="{user.size}">, as for another program. If they are trot\'s, remove {attribute} or make it '
            f"{OWN_SIZES[1]}."
        )
    elif foreign:
        found.notes.append(
            f"user of {listed(kind, foreign)} is not read: it is not a limit's stiffness, alone or of "
            f"{LEAST_STIFFNESS:g} or more with a damping and a speed of friction."
        )
    return constants


def _is_ours(numbers: Floats) -> bool:
    """Whether these are trot's constants; other programs use the attribute for their own ends."""
    return len(numbers) == 1 or (len(numbers) <= 3 and not 0 <= numbers[0] < LEAST_STIFFNESS)


def _wrong_with(owner: str, numbers: Floats) -> Iterator[str]:
    if not np.all(np.isfinite(numbers)) or np.min(numbers) < 0 or np.any(numbers[2:] == 0):
        yield (
            f"{owner} has user={numbers.tolist()}. Give up to three finite numbers >= 0: the limit's stiffness, its "
            "damping, and the speed, above 0, from which on dry friction has its full force."
        )


def find_damped_balls(compiled: mujoco.MjModel, constants: Sequence[AxisConstants]) -> Iterator[str]:
    """One sentence or two per ball joint that asks for a damped limit."""
    for joint, found in enumerate(constants):
        if found.limit_damping and compiled.jnt_type[joint] == JointType.BALL:
            name = name_of(compiled, "joint", joint)
            yield f"joint '{name}' is a ball, whose limit has no damping. Give 0 as the second user number."


def friction_is_on(compiled: mujoco.MjModel) -> bool:
    """Whether frictionloss counts at all."""
    return not disabled(compiled, mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)


def tell_friction(compiled: mujoco.MjModel, constants: Sequence[AxisConstants]) -> Iterator[str]:
    """One sentence per speed at which dry friction of joints is full."""
    rubs = compiled.dof_frictionloss[compiled.jnt_dofadr] * friction_is_on(compiled) > 0
    rubbing = [int(joint) for joint in np.flatnonzero(rubs)]
    for speed in sorted({constants[joint].friction_speed for joint in rubbing}):
        names = [name_of(compiled, "joint", joint) for joint in rubbing if constants[joint].friction_speed == speed]
        yield (
            f"frictionloss of {listed('joint', names)} is smooth: full from {speed:g} rad/s or m/s on, and a joint at "
            "rest creeps."
        )
