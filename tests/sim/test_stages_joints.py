"""Springs, limits, damping and motors of joints alone: closed forms for values, central differences for adjoints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from adjoints import NUM_WORLDS, check_adjoint, lively_inputs
from manifold import lively_states, quat_exp, quat_product
from numpy.testing import assert_allclose
from probe import PLACES

from trot.sim.model import JointType, Model

pytestmark = pytest.mark.parametrize("place", PLACES)


def test_spring_and_limit_of_a_hinge_or_slide(every_joint: Model, rng: np.random.Generator, place: str) -> None:
    model = every_joint
    code = """
        Real sum = zero();
        for (int dof = 0; dof < num_dofs; ++dof) {
            const bool simple = model.dof_is_simple[dof];
            const Real force = simple ? spring_and_limit_force(model, dof, in_q(dof)) : zero();
            out_force(dof, force);
            out_q_bar(dof, simple ? spring_and_limit_adjoint(model, dof, in_q(dof), in_lambda(dof)) : zero());
            sum += in_lambda(dof) * force;
        }
        out_value(0, sum);
    """
    joint_q, lam = lively_states(model, NUM_WORLDS, rng)
    force = check_adjoint(model, code, {"q": coordinate_of_dofs(model, joint_q), "lambda": lam}, {"q": 1e-6}, {
        "force": model.num_dofs,
    }, place=place)["force"]  # fmt: skip

    # stiffness (rest - q) + limit_stiffness (nearest allowed q - q)
    for joint in np.flatnonzero(model.joint_type >= JointType.SLIDE):
        q = joint_q[:, model.joint_q_start[joint]]
        allowed = np.clip(q, model.joint_lower[joint], model.joint_upper[joint])
        expected = model.joint_stiffness[joint] * (model.q_spring[model.joint_q_start[joint]] - q)
        expected += model.joint_limit_stiffness[joint] * (allowed - q)
        assert_allclose(force[:, model.joint_dof_start[joint]], expected, rtol=1e-12)
        if np.isfinite(model.joint_upper[joint]):
            assert 0 < (allowed != q).sum() < NUM_WORLDS


def coordinate_of_dofs(model: Model, joint_q: np.ndarray) -> np.ndarray:
    """The coordinate of every hinge and slide in its dof's place, zeros elsewhere."""
    simple = model.joint_type >= JointType.SLIDE
    result = np.zeros((len(joint_q), model.num_dofs))
    result[:, model.joint_dof_start[simple]] = joint_q[:, model.joint_q_start[simple]]
    return result


BALL = """
    const int ball = BALL_INDEX;
    Real quat[4];
    for (int k = 0; k < 4; ++k) quat[k] = in_quat(k);
    store_quat(quat, load_quat(quat) * turn_by(vec_from(in_turn, 0)));
    const Vec3 lambda = vec_from(in_lambda, 0), torque = ball_force(model, quat, ball);
    write(out_torque, 0, torque);
    out_value(0, dot(lambda, torque));
    write(out_turn_bar, 0, ball_force_adjoint(model, quat, ball, lambda));
"""
TURN_BY = """
    auto turn_by = [&](Vec3 turn) {  // a small turn, to first order and normalised
        Quat q;
        q.w = one();
        q.v = turn * real(Scalar(0.5));
        return normalised(q);
    };
"""


@pytest.mark.parametrize("sign", [1, -1], ids=["q", "minus_q"])
@pytest.mark.parametrize("angle", [0.2, 0.55, 0.65, 2.0, 3.0])
def test_spring_and_limit_of_a_ball_joint(
    every_joint: Model, rng: np.random.Generator, place: str, angle: float, sign: int
) -> None:
    """With chord(angle) = 2 sin(angle / 2): -(stiffness chord + limit_stiffness max(0, chord - chord(0.6))) axis."""
    model, where = resting_askew(every_joint)
    axis = rng.normal(size=(NUM_WORLDS, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    quat = sign * quat_product(model.q_spring[where : where + 4], quat_exp(angle * axis))
    inputs = {"quat": quat, "turn": np.zeros((NUM_WORLDS, 3)), "lambda": rng.normal(size=(NUM_WORLDS, 3))}
    code = TURN_BY + BALL.replace("BALL_INDEX", "0")
    torque = check_adjoint(model, code, inputs, {"turn": 1e-6}, {"torque": 3}, place=place)["torque"]

    neck = model.joint_name.index("neck")
    chord, largest = 2 * np.sin(angle / 2), 2 * np.sin(model.joint_upper[neck] / 2)
    strength = model.joint_stiffness[neck] * chord + model.joint_limit_stiffness[neck] * max(0, chord - largest)
    assert_allclose(torque, -strength * axis, rtol=1e-11, atol=1e-12 * strength)


def test_spring_of_a_ball_joint_at_rest(every_joint: Model, rng: np.random.Generator, place: str) -> None:
    """At rest there is no torque, and its derivative is that of a spring on the rotation vector: -stiffness lambda."""
    model, where = resting_askew(every_joint)
    quat = np.tile(model.q_spring[where : where + 4], (NUM_WORLDS, 1))
    inputs = {"quat": quat, "turn": np.zeros((NUM_WORLDS, 3)), "lambda": rng.normal(size=(NUM_WORLDS, 3))}
    code = TURN_BY + BALL.replace("BALL_INDEX", "0")
    found = check_adjoint(model, code, inputs, {"turn": 1e-6}, {"torque": 3}, place=place)
    assert_allclose(found["torque"], 0, atol=1e-12)
    assert_allclose(found["turn_bar"], -model.joint_stiffness[model.joint_name.index("neck")] * inputs["lambda"])


def resting_askew(model: Model) -> tuple[Model, int]:
    """The robot with a neck whose spring rests in no special place, and where its quaternion stands."""
    where = int(model.joint_q_start[model.joint_name.index("neck")])
    rest = model.q_spring.copy()
    rest[where : where + 4] = quat_exp(np.array([0.3, -0.8, 0.5]))
    return replace(model, q_spring=rest), where


@pytest.mark.parametrize("robot", ["every_joint", "every_law"])
def test_joint_forces_adjoint(request: pytest.FixtureRequest, robot: str, rng: np.random.Generator, place: str) -> None:
    """By joint_q, joint_qd and control, of dot(lambda, joint force): all laws of joints together."""
    model: Model = request.getfixturevalue(robot)
    code = """
        FOR_LANES(k, num_controls) world.control[k] = clamped(model, k, in_control(k));
        barrier();
        kinematics(world, model, lane);
        FOR_LANES(body, num_bodies) world.body_force[body] = zero_force();
        FOR_LANES(dof, num_dofs) adjoint.lambda[dof] = in_lambda(dof);
        barrier();
        joint_forces(world, model, lane);
        Real sum = zero();
        for (int dof = 0; dof < num_dofs; ++dof)
            sum += in_lambda(dof) * world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE];
        out_value(0, sum);
        joint_forces_adjoint(world, adjoint, model, lane);
        FOR_LANES(dof, num_dofs) {
            out_joint_q_bar(dof, adjoint.joint_q_bar[dof]);
            out_joint_qd_bar(dof, adjoint.joint_qd_bar[dof]);
        }
        FOR_LANES(k, num_controls) out_control_bar(k, control_adjoint(adjoint, model, k, in_control(k)));
    """
    inputs = lively_inputs(model, rng)
    inputs["control"] *= 1.3  # some beyond their range, where they have no effect
    inputs["lambda"] = rng.normal(size=(NUM_WORLDS, model.num_dofs))
    steps = {"joint_q": 1e-6, "joint_qd": 1e-3 if robot == "every_joint" else 1e-5, "control": 1e-4}
    check_adjoint(model, code, inputs, steps, place=place, excluded_share=0.01)
