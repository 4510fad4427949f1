"""`trot check ROBOT`: what a robot is, why it is refused, and whether its motion and its gradients are right.

Each finding is a line. What is refused is told all at once, with the lines of the file and the options that help.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trot.sim.accelerations import NUM_STATES, compare_accelerations
from trot.sim.check_robot import MOST_SUBSTEPS, CheckSettings, check_gradients
from trot.sim.drop_test import drop_test
from trot.sim.errors import ModelError, NonFiniteError
from trot.sim.gradient_check import Row, report, require_sensible
from trot.sim.load import load_model
from trot.sim.model import WORLD, JointType, Model
from trot.sim.notes import listed
from trot.sim.pose import Pose
from trot.sim.refused import explain_refusal
from trot.sim.substep_advice import tell_light_joints, tell_stiff_friction, tell_stiff_terms
from trot.sim.substeps import suggest_substeps
from trot.sim.weld import fold_welds

LARGEST_ACCELERATION_ERROR = 1e-8
"""Relative. Rounding leaves 1e-11 at most."""

CALM = 0.1
"""Of the controls' ranges, which is tried where all of it blows a robot up."""


def run_check(settings: CheckSettings) -> bool:
    """Print what there is to know of the robot; True when nothing is wrong with it."""
    _require_sensible(settings)
    try:
        model = _load(settings)
    except ModelError as error:
        raise ModelError(explain_refusal(settings.model, str(error))) from None
    print(f"{settings.model}: {_size(model)}")
    for note in (*model.notes, *_missing(model, settings)):
        print(f"note: {note}")
    _require_mass(model)
    right = _tell_accelerations(model) if settings.drop else True
    counts, suggested = _tell_substeps(model, settings)
    if settings.drop:
        count, steady = _tell_drops(model, settings.control_dt, counts, suggested)
        right = right and steady
    else:
        count = counts[0]
    exact = report(_gradients(model, replace(settings, substeps=count), enough=count >= suggested), settings.tolerance)
    if not exact and count < suggested:
        print(f"With {count} substeps instead of {suggested} gradients may grow until nothing can be told of them.")
    return exact and right


def _gradients(model: Model, settings: CheckSettings, enough: bool) -> list[Row]:
    """Of a random motion with controls of all their range, or of a part of it where that is more than it bears.

    enough: whether there are as many substeps as suggested; else these are at fault.
    """
    try:
        return check_gradients(model, settings)
    except NonFiniteError as error:
        if not enough or settings.control_share <= CALM or model.num_controls == 0:
            raise
        print(
            f"advice: random controls of all their range blow it up within {settings.seconds:g} s, first at "
            f"'{error.dof}': motors so strong drive parts so light to rates that no substep bears. Gradients are "
            f"checked with {100 * CALM:g} % of the range (--control-share {CALM:g}); let a task's actions be no larger."
        )
    return check_gradients(model, replace(settings, control_share=CALM))


def _require_sensible(settings: CheckSettings) -> None:
    require_sensible(settings.tolerance, settings.seed, worlds=settings.worlds, steps=settings.steps)
    if not 0 <= settings.seconds < math.inf:
        raise ValueError(f"seconds must be a finite time of at least 0, not {settings.seconds}")
    if not 0 < settings.control_share <= 1:
        raise ValueError(f"control_share must be above 0 and at most 1, not {settings.control_share}")
    if not 0 < settings.control_dt < math.inf:
        raise ValueError(f"control_dt must be a finite time above 0, not {settings.control_dt}")


def _load(settings: CheckSettings) -> Model:
    return load_model(
        settings.model,
        floating_base=settings.floating_base,
        ground=settings.ground,
        actuators=settings.actuators,
        kp=settings.kp,
        kd=settings.kd,
        self_collision=settings.self_collision,
        keyframe=settings.keyframe,
        repair_inertia=settings.repair_inertia,
        package_path=settings.package_path,
        leave_out=settings.leave_out,
        mesh_points=settings.mesh_points,
        muscles=settings.muscles,
        contact=settings.contact,
        armature=settings.armature,
    )


def _size(model: Model) -> str:
    muscles = model.num_muscles + model.num_hills
    return (
        f"{model.num_bodies} bodies, {model.body_mass.sum():.4g} kg, {model.num_dofs} dofs, {model.num_controls} "
        f"controls, {model.num_points} contact points, {model.num_pairs} pairs, {muscles} muscles"
    )


def _missing(model: Model, settings: CheckSettings) -> Iterator[str]:
    """What most robots have and this one has not, which may be as it should."""
    rooted, joints_of = np.unique(model.joint_body[model.body_parent[model.joint_body] == WORLD], return_counts=True)
    # A body with three joints to the world moves in a plane.
    is_fixed = JointType.FREE not in model.joint_type and joints_of.max() < 3
    # An arm in MJCF is fixed on purpose; a trunk with several limbs may have been meant to walk.
    trunks = model.source.body_rootid[fold_welds(model.source).moving[rooted]]
    if is_fixed and (len(set(trunks)) < len(trunks) or settings.model.suffix.lower() == ".urdf"):
        yield "the first link is fixed to the world; --floating-base frees it."
    if model.ground_height is None and model.num_pairs == 0:
        yield "nothing touches anything: there is no ground. --ground adds the plane z = 0."
    elif model.num_points == 0 and model.num_pairs == 0:
        yield "nothing touches the ground: no geom's masks let it."
    if model.num_controls == 0:
        yield "nothing drives it: there are no actuators. --actuators motor gives every hinge and slide one."


def _require_mass(model: Model) -> None:
    if singular := Pose(model).massless_motion():
        names = [model.dof_name[dof] for dof in singular]
        raise ModelError(
            f"{listed('joint', names)} can move without moving any mass at the default pose, so that accelerations are "
            "not determined: the mass matrix is singular. Give one of them armature (--armature 0.01 gives it to all "
            "that have none), or take one out."
        )


def _tell_accelerations(model: Model) -> bool:
    worst = compare_accelerations(model)
    without = f"{NUM_STATES} random states without contacts, limits and dry friction"
    if worst.relative <= LARGEST_ACCELERATION_ERROR:
        print(f"accelerations: MuJoCo's to {worst.relative:.0e} in {without}; worst at {worst.dof}")
        return True
    print(
        f"accelerations DIFFER from MuJoCo's by {worst.relative:.0e} in {without}: worst at {worst.dof}, "
        f"{worst.ours:.9g} instead of {worst.theirs:.9g}. This robot moves wrongly in trot; please report it."
    )
    return False


def _tell_substeps(model: Model, settings: CheckSettings) -> tuple[list[int], int]:
    """How many to try: those asked for, or those suggested, and if they do not do, twice as many, and so on.

    And how many are suggested.
    """
    suggested = suggest_substeps(model, settings.control_dt)
    print(f"substeps: {suggested.sentence()}")
    fewest = suggested.without_friction
    if fewest < suggested.count:
        print(f"substeps: below {fewest} it may blow up or gain energy; between {fewest} and that, gradients grow")
    for advice in (
        tell_stiff_friction(model, suggested), tell_light_joints(model, suggested), tell_stiff_terms(suggested),
    ):  # fmt: skip
        if advice is not None:
            print(f"advice: {advice}")
    if settings.substeps is not None:
        return [settings.substeps], suggested.count
    if suggested.count > MOST_SUBSTEPS:
        print(f"substeps: {MOST_SUBSTEPS} are used here")
    counts = [min(suggested.count, MOST_SUBSTEPS)]
    while 2 * counts[-1] <= MOST_SUBSTEPS:
        counts.append(2 * counts[-1])
    return counts, suggested.count


def _tell_drops(model: Model, control_dt: float, counts: list[int], suggested: int) -> tuple[int, bool]:
    """Drop it with more and more substeps until it stays calm; with how many, and whether it does."""
    for count in counts:
        try:
            drop = drop_test(model, control_dt, count)
        except NonFiniteError:
            too_few = f"; it takes {suggested}, for what is said above: change that first" if count < suggested else ""
            print(f"drop test: BLOWS UP with {count} substeps{too_few}")
            if count == counts[-1]:
                raise
            continue
        print(f"drop test: {drop.sentence()}")
        if drop.passes:
            break
    advice = drop.advice()
    if advice is not None:
        print(f"advice: {advice}")
    elif count > counts[0]:
        print(f"advice: take {count} substeps.")
    return count, drop.passes
