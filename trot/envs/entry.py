"""What one number of an observation is, for whoever must measure it on a robot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trot.sim.model import JointType, Model

Entries = dict[str, list["Entry"]]
"""Part of an observation to what its entries are, in their order."""


@dataclass(frozen=True)
class Entry:
    """One number of an observation: scale × (quantity - offset)."""

    name: str
    """Of the quantity."""
    unit: str
    """Of the quantity, SI; 1 for what has none."""
    frame: str
    """Whose axes it is told in: world, a body's name, or joint, for what lies along or about a joint's own axis.
    Actions and clocks, which have none, say so."""
    scale: float = 1.0
    offset: float = 0.0


def axes(name: str, unit: str, frame: str, scale: float = 1.0) -> list[Entry]:
    """A vector's three entries."""
    return [Entry(f"{name} {axis}", unit, frame, scale) for axis in "xyz"]


def quaternion(name: str, frame: str) -> list[Entry]:
    """Of a rotation from a body's axes to those of the frame."""
    return [Entry(f"{name} quaternion {part}", "1", frame) for part in "wxyz"]


def coordinates(model: Model) -> list[Entry]:
    """Of joint_q, one for each column."""
    found: list[Entry] = []
    for joint, kind in enumerate(model.joint_type):
        name = model.joint_name[joint]
        match JointType(kind):
            case JointType.FREE:
                found += [*axes(f"{name} position", "m", "world"), *quaternion(name, "world")]
            case JointType.BALL:
                found += quaternion(name, "joint")
            case JointType.SLIDE:
                found.append(Entry(f"{name} displacement", "m", "joint"))
            case JointType.HINGE:
                found.append(Entry(f"{name} angle", "rad", "joint"))
    return found


def rates(model: Model) -> list[Entry]:
    """Of joint_qd, one for each column."""
    found: list[Entry] = []
    for joint, kind in enumerate(model.joint_type):
        name, body = model.joint_name[joint], model.body_name[model.joint_body[joint]]
        match JointType(kind):
            case JointType.FREE:
                found += [*axes(f"{name} velocity", "m/s", "world"), *axes(f"{name} angular velocity", "rad/s", body)]
            case JointType.BALL:
                found += axes(f"{name} angular velocity", "rad/s", body)
            case JointType.SLIDE:
                found.append(Entry(f"{name} rate", "m/s", "joint"))
            case JointType.HINGE:
                found.append(Entry(f"{name} rate", "rad/s", "joint"))
    return found


def past_actions(names: Sequence[str]) -> list[Entry]:
    """The action before, as the policy gave it."""
    return [Entry(f"{name} action before", "1", "action") for name in names]


def scaled(entries: Sequence[Entry], scale: float) -> list[Entry]:
    """The same quantities times a factor."""
    return [replace(entry, scale=scale) for entry in entries]


def relative(entries: Sequence[Entry], offsets: Sequence[float]) -> list[Entry]:
    """The same quantities, each less an offset."""
    return [replace(entry, offset=offset) for entry, offset in zip(entries, offsets, strict=True)]
