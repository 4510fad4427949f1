"""Inertia, inverse dynamics, mass matrix and integration alone: MuJoCo for values, central differences for adjoints."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from adjoints import LOAD_PARAMETERS, MOVE_BODIES, NUM_WORLDS, VECTORS, check_adjoint, lively_inputs, lively_parameters
from manifold import integrate, lively_states, to_tangent
from numpy.testing import assert_allclose
from probe import PLACES, run_stages

from trot.sim.launch import CUDA_LANES
from trot.sim.load import load_model
from trot.sim.model import Model

pytestmark = pytest.mark.parametrize("place", PLACES)


def test_inertial_adjoint(every_joint: Model, rng: np.random.Generator, place: str) -> None:
    """By acceleration, velocity and pose of each body, of the sum of dot(w, I a + v x* I v)."""
    width = 6 * every_joint.num_bodies
    code = f"""
        kinematics(world, model, lane);
        {MOVE_BODIES}
        FOR_LANES(body, num_bodies) {{
            const Motion w = motion_from(in_w, body);
            const Inertia& inertia = world.body_inertia[body];
            const Motion v = world.body_velocity[body] = motion_from(in_velocity, body);
            const Motion a = world.body_acceleration[body] = motion_from(in_acceleration, body);
            Force force, acceleration_bar, velocity_bar, pose_bar;
            inertial_adjoint(world, w, body, force, acceleration_bar, velocity_bar, pose_bar);
            world.body_force[body] = inertia * a + cross(v, inertia * v);
            write(out_acceleration_bar, body, acceleration_bar);
            write(out_velocity_bar, body, velocity_bar);
            write(out_pose_bar, body, pose_bar);
            out_difference(body, dot(w, force - inertia * a - cross(v, inertia * v)));
        }}
        barrier();
        Real sum = zero();
        for (int body = 0; body < num_bodies; ++body) sum += dot(motion_from(in_w, body), world.body_force[body]);
        out_value(0, sum);
    """
    inputs = {name: rng.normal(size=(NUM_WORLDS, width)) for name in ("w", "velocity", "acceleration")}
    inputs |= {"joint_q": lively_states(every_joint, NUM_WORLDS, rng)[0], "pose": np.zeros((NUM_WORLDS, width))}
    steps = {"acceleration": 1e-3, "velocity": 1e-3, "pose": 1e-4}
    found = check_adjoint(every_joint, code, inputs, steps, {"difference": every_joint.num_bodies}, place=place)
    assert_allclose(found["difference"], 0, atol=1e-12)


INVERSE_DYNAMICS = f"""
    {LOAD_PARAMETERS}
    kinematics(world, model, lane);
    velocities(world, model, lane);
    accelerations<true>(world, model, lane);
    FOR_LANES(dof, num_dofs) adjoint.lambda[dof] = in_lambda(dof);
    barrier();
    lambda_motions(world, adjoint, model, lane);
    body_forces_adjoint(world, adjoint, model, lane);
    sweep_to_root(world, adjoint, model, lane);
    Real sum = zero();
    for (int dof = 0; dof < num_dofs; ++dof) {{
        const Real needed = dot(world.joint_axis[dof], world.body_force[model.dof_body[dof]]);
        sum -= in_lambda(dof) * needed;
        out_joint_force(dof, needed);
        out_joint_q_bar(dof, adjoint.joint_q_bar[dof]);
        out_joint_qd_bar(dof, adjoint.joint_qd_bar[dof]);
    }}
    out_value(0, sum);
    FOR_LANES(k, num_parameters) out_parameter_bar(k, adjoint.parameter_bar[k]);
    FOR_LANES(k, num_controls) {{
        const int muscle = model.actuator_muscle[k];
        out_control_bar(k, muscle < 0 ? zero() : activation_bar(adjoint, model, muscle));
    }}
"""


def test_sweep_of_inverse_dynamics(every_joint: Model, rng: np.random.Generator, place: str) -> None:
    """By joint_q, joint_qd, muscles and constants, of -dot(lambda, ID(q, qd, qdd)), contact and muscles inside ID."""
    model = every_joint
    inputs = lively_inputs(model, rng)
    inputs["joint_qdd"], inputs["lambda"] = rng.normal(0, 10, (2, NUM_WORLDS, model.num_dofs))
    inputs["parameter"] = lively_parameters(model, rng)
    steps = {"joint_q": 1e-7, "joint_qd": 1e-6, "control": 1e-3, "parameter": 1e-4}
    widths = {"joint_force": model.num_dofs}
    check_adjoint(
        model, INVERSE_DYNAMICS, inputs, steps, widths, place=place, per_world_parameters=True, excluded_share=0.01
    )


def test_inverse_dynamics_agrees_with_the_mass_matrix(every_joint: Model, rng: np.random.Generator, place: str) -> None:
    """Oracle: MuJoCo's M qdd + bias, in the air and with slack muscles; ID knows nothing of the armature."""
    model = replace(every_joint, ground_height=None)
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    joint_qdd, lam = rng.normal(size=(2, NUM_WORLDS, model.num_dofs))
    inputs = {
        "joint_q": joint_q, "joint_qd": joint_qd, "joint_qdd": joint_qdd, "lambda": lam,
        "control": np.zeros((NUM_WORLDS, model.num_controls)),
        "parameter": np.ones_like(lively_parameters(model, rng)),
    }  # fmt: skip
    dofs, parameters = model.num_dofs, inputs["parameter"].shape[1]
    widths = {
        "joint_force": dofs, "value": 1, "joint_q_bar": dofs, "joint_qd_bar": dofs, "parameter_bar": parameters,
        "control_bar": model.num_controls,
    }  # fmt: skip
    found = run_stages(model, VECTORS + INVERSE_DYNAMICS, inputs, widths, place, per_world_parameters=True)
    matrix, bias = by_mujoco(model, joint_q, joint_qd)
    expected = np.einsum("wij,wj->wi", matrix, joint_qdd) - model.dof_armature * joint_qdd + bias
    assert_allclose(found["joint_force"], expected, atol=1e-10 * abs(expected).max())


def by_mujoco(model: Model, joint_q: np.ndarray, joint_qd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mass matrix and bias force."""
    data, matrices, biases = mujoco.MjData(model.source), [], []
    for q, qd in zip(joint_q, joint_qd, strict=True):
        data.qpos[:], data.qvel[:] = q, qd
        mujoco.mj_forward(model.source, data)
        matrix = np.zeros((model.num_dofs, model.num_dofs))
        mujoco.mj_fullM(model.source, data, matrix)
        matrices.append(matrix)
        biases.append(data.qfrc_bias.copy())
    return np.array(matrices), np.array(biases)


def many_arms() -> str:
    """45 dofs, more than a world has lanes: a free trunk that carries three chains of thirteen hinges."""
    arms = ""
    for arm in range(3):
        arms += f'<body name="shoulder{arm}" pos="{0.1 * arm} 0.1 0">'
        for link in range(13):
            axis = ("1 0 0", "0 1 0", "0.6 0 0.8")[(arm + link) % 3]
            arms += f'<joint type="hinge" axis="{axis}" armature="0.02"/><geom type="sphere" size="0.05"/>'
            arms += f'<body pos="0.02 0 -0.15" name="arm{arm}_{link}">' if link < 12 else "</body>" * 13
    trunk = '<geom type="box" size="0.2 0.2 0.1"/>'
    return f'<mujoco><worldbody><body pos="0 0 3"><freejoint/>{trunk}{arms}</body></worldbody></mujoco>'


@pytest.mark.parametrize("robot", ["every joint", "more dofs than lanes"])
def test_solving_with_the_mass_matrix(every_joint: Model, place: str, rng: np.random.Generator, robot: str) -> None:
    """Oracle: numpy's solve with MuJoCo's matrix; first while factorising, then with the factor that is there."""
    model = every_joint if robot == "every joint" else load_model(many_arms())
    assert (model.num_dofs > CUDA_LANES) == (robot != "every joint")
    code = """
        kinematics(world, model, lane);
        FOR_LANES(dof, num_dofs) world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE] = in_b(dof);
        barrier();
        build_and_factorise(world, model, lane);
        finish_solve(world, model, lane, world.joint_qdd);
        FOR_LANES(dof, num_dofs) {
            out_first(dof, world.joint_qdd[dof]);
            world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE] = in_c(dof);
        }
        barrier();
        begin_solve(world, model, lane);
        finish_solve(world, model, lane, adjoint.lambda);
        FOR_LANES(dof, num_dofs) out_second(dof, adjoint.lambda[dof]);
    """
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    b, c = rng.normal(size=(2, NUM_WORLDS, model.num_dofs))
    widths = {"first": model.num_dofs, "second": model.num_dofs}
    found = run_stages(model, code, {"joint_q": joint_q, "b": b, "c": c}, widths, place)
    matrix, _ = by_mujoco(model, joint_q, joint_qd)
    for name, right_hand_side in (("first", b), ("second", c)):
        expected = np.linalg.solve(matrix, right_hand_side[..., None])[..., 0]
        assert_allclose(found[name], expected, atol=1e-10 * abs(expected).max())


def test_integrate_adjoint(every_joint: Model, rng: np.random.Generator, place: str) -> None:
    """By joint_q, joint_qd and joint_qdd, of dot(w, next joint_q) + dot(w, next joint_qd)."""
    model = every_joint
    dt = 0.7  # long enough for turns of more than a radian
    code = f"""
        const Scalar dt = {dt};
        integrate(world, model, lane, dt);
        Real sum = zero();
        for (int k = 0; k < num_q; ++k) sum += in_w_q(k) * world.joint_q[k];
        for (int dof = 0; dof < num_dofs; ++dof) sum += in_w_qd(dof) * world.joint_qd[dof];
        out_value(0, sum);
        barrier();
        FOR_LANES(k, num_q) {{
            out_next_q(k, world.joint_q[k]);
            world.joint_q[k] = in_joint_q(k);
        }}
        FOR_LANES(dof, num_dofs) {{
            world.joint_qd[dof] = in_joint_qd(dof);
            adjoint.joint_q_bar[dof] = in_next_q_bar(dof);
            adjoint.joint_qd_bar[dof] = in_w_qd(dof);
        }}
        barrier();
        integrate_adjoint(world, adjoint, model, lane, dt);
        FOR_LANES(dof, num_dofs) {{
            out_joint_q_bar(dof, adjoint.joint_q_bar[dof]);
            out_joint_qd_bar(dof, adjoint.joint_qd_bar[dof]);
            out_joint_qdd_bar(dof, world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE]);
        }}
    """
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    inputs = {
        "joint_q": joint_q,
        "joint_qd": joint_qd,
        "joint_qdd": rng.normal(size=(NUM_WORLDS, model.num_dofs)),
        "w_q": rng.normal(size=(NUM_WORLDS, model.num_q)),
        "w_qd": rng.normal(size=(NUM_WORLDS, model.num_dofs)),
    }
    # Oracle of the step itself: semi-implicit Euler along the manifold.
    next_q = integrate(model, joint_q, dt * (joint_qd + dt * inputs["joint_qdd"]))
    inputs["next_q_bar"] = to_tangent(model, next_q, inputs["w_q"])
    steps = {"joint_q": 1e-4, "joint_qd": 1e-4, "joint_qdd": 1e-4}
    found = check_adjoint(model, code, inputs, steps, {"next_q": model.num_q}, place=place)
    assert_allclose(found["next_q"], next_q, atol=1e-13)
