"""What to change in a robot that takes many substeps, in sentences with the numbers that would do."""

from __future__ import annotations

import numpy as np

from trot.sim.model import JointType, Model
from trot.sim.notes import listed, verb
from trot.sim.stiff_terms import CONTACT, DRY_FRICTION, FRICTION
from trot.sim.substeps import Push, StiffTerm, Substeps

COMFORTABLE = 32
"""Substeps that are not many."""
MANY = 3
"""Times that many are."""
TOLD = 4
"""Of the terms that are too stiff, so many are told with their numbers."""


def tell_stiff_friction(model: Model, found: Substeps) -> str | None:
    """What to do where friction of light parts alone asks for many substeps; None where it does not."""
    few = max(COMFORTABLE, found.without_friction)
    if not found.terms[:1] or not found.terms[0].name.startswith(FRICTION) or found.count <= MANY * few:
        return None
    stiffness, damping, friction = (float(values.max()) for values in (
        model.shape_stiffness, model.shape_damping, model.shape_friction_stiffness,
    ))  # fmt: skip
    # Two digits do.
    softer = float(f"{friction * few / found.count:.2g}")
    on_a_foot = float(model.body_mass.sum() * np.linalg.norm(model.gravity) * model.shape_friction.max()) / 4
    return (
        f"friction is stiff for parts so light. Give a friction stiffness of {softer:g} N s/m instead of "
        f"{friction:g}, by --contact {stiffness:g} {damping:g} {softer:g} or in the geoms' user attribute, and about "
        f"{few} substeps do. A foot that bears a quarter of the weight then creeps at up to "
        f"{on_a_foot / softer:.2g} m/s before it slides, instead of {on_a_foot / friction:.2g} m/s."
    )


def tell_light_joints(model: Model, found: Substeps) -> str | None:
    """What to do where limits, servos or contacts ask for many substeps of joints that have no rotor inertia."""
    without = [model.dof_name[dof] for dof in np.flatnonzero(model.dof_armature == 0) if dof not in _free_dofs(model)]
    if found.without_friction <= COMFORTABLE or not without:
        return None
    return (
        f"{listed('joint', without)} {verb(without, 'has', 'have')} no armature, the inertia of a motor's rotor times "
        "its gear ratio squared, which makes light parts less stiff: try --armature 0.005 (kg m^2)."
    )


def tell_stiff_terms(found: Substeps) -> str | None:
    """What to change where the robot's own springs or dampers, rather than a touch, ask for many substeps."""
    many = MANY * COMFORTABLE
    if found.count <= many or found.terms[0].name.startswith((FRICTION, CONTACT)):
        return None
    stiff = [
        (term, term.push)
        for term in found.terms
        if not term.name.startswith((FRICTION, CONTACT))
        and term.push is not None
        and term.push.margin * found.control_dt / term.longest > many
    ]
    if not stiff:
        return None
    told = [_numbers(term, push, found.control_dt) for term, push in stiff[:TOLD]]
    if len(stiff) > TOLD:
        told.append(f"And {len(stiff) - TOLD} more.")
    if any(term.name.startswith("damping of") for term, _ in stiff):
        told.append("MuJoCo damps joints implicitly, which bears what no explicit substep does.")
    if any(term.name.startswith(DRY_FRICTION) for term, _ in stiff):
        told.append("Dry friction is less steep with a larger third user number of its joint, which a URDF has not.")
    return f"for {COMFORTABLE} substeps lower what is stiff, or give its joint armature: {' '.join(told)}"


def _numbers(term: StiffTerm, push: Push, control_dt: float) -> str:
    """What it has, and what COMFORTABLE substeps of its own bear."""
    span = push.margin * control_dt / COMFORTABLE
    has = {"stiffness": push.stiffness, "damping": 0.0 if push.met else push.damping}
    most = {"stiffness": 4 * push.inertia / span**2, "damping": 2 * push.inertia / span}
    too_much = [what for what in has if has[what] > most[what]] or [what for what in has if has[what] > 0]
    pulls = " and ".join(f"{what} {has[what]:.3g} (at most {most[what]:.2g})" for what in too_much)
    needed = (2 * span * has["damping"] + span**2 * has["stiffness"]) / 4
    armature = max(needed - push.inertia, 0.0) * push.gear**2
    return f"{term.name} has {pulls}, or armature of about {armature:.2g} for '{push.dof}'."


def _free_dofs(model: Model) -> set[int]:
    starts = model.joint_dof_start[model.joint_type == JointType.FREE]
    return {int(start) + k for start in starts for k in range(6)}
