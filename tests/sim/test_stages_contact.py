"""The contact law and the ground's forces alone: closed forms for values, central differences for adjoints."""

from __future__ import annotations

import numpy as np
import pytest
from adjoints import LOAD_PARAMETERS, MOVE_BODIES, NUM_WORLDS, check_adjoint, lively_parameters
from manifold import lively_states, point_heights
from numpy.testing import assert_allclose
from probe import PLACES

from trot.sim.model import Model

pytestmark = pytest.mark.parametrize("place", PLACES)


def contacts(rng: np.random.Generator, kind: str) -> dict[str, np.ndarray]:
    """Points below the ground that all stick, slide, or leave so fast that the normal force is cut to zero."""
    inputs = {
        "depth": rng.uniform(1e-3, 0.05, (NUM_WORLDS, 1)),
        "stiffness": rng.uniform(5e3, 3e4, (NUM_WORLDS, 1)),
        "damping": rng.uniform(2e2, 3e3, (NUM_WORLDS, 1)),
        "friction_stiffness": rng.uniform(3e2, 2e3, (NUM_WORLDS, 1)),
        "friction": rng.uniform(0.2, 1.2, (NUM_WORLDS, 1)),
        "f_bar": rng.normal(size=(NUM_WORLDS, 3)),
    }
    leaving = inputs["stiffness"] / inputs["damping"]  # the separation speed at which the normal force vanishes
    rise = leaving * (
        rng.uniform(1.1, 3, (NUM_WORLDS, 1)) if kind == "leaves" else rng.uniform(-2, 0.9, (NUM_WORLDS, 1))
    )
    normal = inputs["depth"] * (inputs["stiffness"] - inputs["damping"] * rise)
    slipping = inputs["friction"] * normal / inputs["friction_stiffness"]  # the speed at which it starts to slide
    part = {"sticks": rng.uniform(0, 0.9, (NUM_WORLDS, 1)), "slides": rng.uniform(1.1, 9, (NUM_WORLDS, 1)), "leaves": 1}
    heading = rng.uniform(-np.pi, np.pi, (NUM_WORLDS, 1))
    along = abs(slipping) * part[kind] * np.concatenate([np.cos(heading), np.sin(heading)], axis=1)
    return {**inputs, "u": np.concatenate([along, rise], axis=1)}


CONTACT = """
    ContactParameters p;
    p.stiffness = in_stiffness(0); p.damping = in_damping(0);
    p.friction_stiffness = in_friction_stiffness(0); p.friction = in_friction(0);
    const Vec3 u = vec_from(in_u, 0), f_bar = vec_from(in_f_bar, 0);
    const Vec3 force = contact_force(p, in_depth(0), u);
    const ContactAdjoint bar = contact_force_adjoint(p, in_depth(0), u, f_bar);
    write(out_force, 0, force);
    out_value(0, dot(force, f_bar));
    out_depth_bar(0, bar.depth);
    write(out_u_bar, 0, bar.u);
    out_stiffness_bar(0, bar.parameters.stiffness);
    out_damping_bar(0, bar.parameters.damping);
    out_friction_stiffness_bar(0, bar.parameters.friction_stiffness);
    out_friction_bar(0, bar.parameters.friction);
"""


@pytest.mark.parametrize("kind", ["sticks", "slides", "leaves"])
def test_contact_law_and_its_adjoint(every_joint: Model, rng: np.random.Generator, place: str, kind: str) -> None:
    inputs = contacts(rng, kind)
    steps = {"depth": 1e-6, "u": 1e-5, "stiffness": 0.1, "damping": 0.01, "friction_stiffness": 0.01, "friction": 1e-5}
    force = check_adjoint(every_joint, CONTACT, inputs, steps, {"force": 3}, place=place)["force"]

    # N = depth (stiffness - damping u_n); sticking T = -friction_stiffness u_t; sliding T = -mu N u_t / |u_t|.
    along = inputs["u"][:, :2]
    normal = inputs["depth"] * (inputs["stiffness"] - inputs["damping"] * inputs["u"][:, 2:])
    expected = {
        "sticks": np.concatenate([-inputs["friction_stiffness"] * along, normal], axis=1),
        "slides": np.concatenate(
            [-inputs["friction"] * normal * along / np.linalg.norm(along, axis=1, keepdims=True), normal], axis=1
        ),
        "leaves": np.zeros((NUM_WORLDS, 3)),
    }
    assert_allclose(force, expected[kind], rtol=1e-12)


def test_contact_law_of_a_point_at_rest(every_joint: Model, rng: np.random.Generator, place: str) -> None:
    """Sticking is smooth at rest: central differences hold there too, and nothing divides by zero."""
    inputs = contacts(rng, "sticks")
    inputs["u"] = np.zeros((NUM_WORLDS, 3))
    check_adjoint(every_joint, CONTACT, inputs, {"depth": 1e-6, "u": 1e-7, "friction_stiffness": 0.01}, {
        "force": 3, "stiffness_bar": 1, "damping_bar": 1, "friction_bar": 1,
    }, place=place)  # fmt: skip


def test_ground_force_adjoint(every_joint: Model, rng: np.random.Generator, place: str) -> None:
    """By velocity and pose of each body and by the contact's constants, of the sum of dot(w, ground_force)."""
    model = every_joint
    width = 6 * model.num_bodies
    code = f"""
        {LOAD_PARAMETERS}
        kinematics(world, model, lane);
        {MOVE_BODIES}
        FOR_LANES(body, num_bodies) {{
            world.body_velocity[body] = motion_from(in_velocity, body);
            adjoint.body_lambda[body] = motion_from(in_w, body);
            Force velocity_bar = zero_force(), pose_bar = zero_force();
            const Force force = ground_force(world, model, body);
            const Force same = ground_force_adjoint(world, adjoint, model, body, velocity_bar, pose_bar);
            world.body_force[body] = force;
            write(out_velocity_bar, body, velocity_bar);
            write(out_pose_bar, body, pose_bar);
            write(out_force, body, force);
            write(out_same, body, same);
        }}
        barrier();
        Real sum = zero();
        for (int body = 0; body < num_bodies; ++body) sum += dot(adjoint.body_lambda[body], world.body_force[body]);
        out_value(0, sum);
        FOR_LANES(k, num_parameters) out_parameter_bar(k, adjoint.parameter_bar[k]);
    """
    joint_q, _ = lively_states(model, NUM_WORLDS, rng)
    inputs = {
        "joint_q": joint_q,
        "w": rng.normal(size=(NUM_WORLDS, width)),
        "velocity": rng.normal(size=(NUM_WORLDS, width)) * rng.uniform(size=(NUM_WORLDS, 1)) ** 4,  # some stick
        "pose": np.zeros((NUM_WORLDS, width)),
        "parameter": lively_parameters(model, rng),
    }
    steps = {"velocity": 1e-6, "pose": 1e-8, "parameter": 1e-4}
    widths = {"force": width, "same": width}
    found = check_adjoint(
        model, code, inputs, steps, widths, place=place, per_world_parameters=True, excluded_share=0.01
    )
    assert_allclose(found["same"], found["force"], rtol=1e-12)
    by_kind = found["parameter_bar"][:, model.num_bodies :].reshape(NUM_WORLDS, 4, model.num_shapes)
    assert (by_kind != 0).any(axis=(0, 2)).all()

    # A body feels the ground where one of its points is below it and the force is not cut to zero.
    below = point_heights(model, joint_q) < 0
    force = found["force"].reshape(NUM_WORLDS, model.num_bodies, 6)
    for body in range(model.num_bodies):
        touches = below[:, model.shape_body[model.point_shape] == body].any(axis=1)
        assert (force[~touches, body] == 0).all()
    assert (force != 0).any() and 0 < below.any(axis=1).sum() < NUM_WORLDS
