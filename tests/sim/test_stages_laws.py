"""Servos, dry friction, damped limits, fixed tendons and equalities alone.

MuJoCo and closed forms for their values, central differences for their adjoints.
"""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from adjoints import NUM_WORLDS, check_adjoint, lively_inputs
from manifold import lively_states
from numpy.testing import assert_allclose
from probe import PLACES, run_stages

from trot.sim.load import load_model
from trot.sim.model import Model

pytestmark = pytest.mark.parametrize("place", PLACES)

AXIS = """
    const AxisForce f = LAW;
    out_force(0, f.force);
    out_value(0, f.force * in_lambda(0));
    out_x_bar(0, f.by_x * in_lambda(0));
    out_v_bar(0, f.by_v * in_lambda(0));
"""


def check_axis_law(model: Model, law: str, x: np.ndarray, v: np.ndarray, rng: np.random.Generator, place: str):
    inputs = {"x": x[:, None], "v": v[:, None], "lambda": rng.normal(size=(len(x), 1))}
    return check_adjoint(
        model, AXIS.replace("LAW", law), inputs, {"x": 1e-7, "v": 1e-6}, {"force": 1}, place=place, excluded_share=0.05
    )["force"][:, 0]


def test_dry_friction(every_law: Model, rng: np.random.Generator, place: str) -> None:
    """Odd, 11/16 of the whole at half the full speed, the whole from there on, and smooth in between."""
    v = np.concatenate([[0, 0.1, -0.1, 0.21, 7, -7], rng.uniform(-0.3, 0.3, NUM_WORLDS - 6)])
    law = "dry_friction(Scalar(3), Scalar(0.2), in_v(0))"
    force = check_axis_law(every_law, law, np.zeros(NUM_WORLDS), v, rng, place)
    assert_allclose(force[:6], [0, -3 * 11 / 16, 3 * 11 / 16, -3, -3, 3], rtol=1e-14)
    assert (force * v <= 0).all() and (abs(force) <= 3).all()


def test_damped_limit(every_law: Model, rng: np.random.Generator, place: str) -> None:
    """max(0, 50 d - 20 d u), beyond either limit, d being the depth and u the speed back."""
    x, v = rng.uniform(-1.5, 1.5, NUM_WORLDS), 3 * rng.normal(size=NUM_WORLDS)
    force = check_axis_law(
        every_law, "limit_law(Scalar(-0.5), Scalar(0.7), Scalar(50), Scalar(20), in_x(0), in_v(0))", x, v, rng, place
    )
    depth_below, depth_above = np.maximum(-0.5 - x, 0), np.maximum(x - 0.7, 0)
    expected = np.maximum(depth_below * (50 - 20 * v), 0) - np.maximum(depth_above * (50 + 20 * v), 0)
    assert_allclose(force, expected, rtol=1e-13, atol=1e-13)
    assert (force > 0).any() and (force < 0).any() and ((depth_below + depth_above > 0) & (force == 0)).any()


SERVOS = """
    FOR_LANES(k, num_controls) world.control[k] = clamped(model, k, in_control(k));
    FOR_LANES(dof, num_dofs) adjoint.lambda[dof] = in_lambda(dof);
    barrier();
    servo_forces(world, model, lane);
    FOR_LANES(servo, num_servos) out_force(servo, servo_force(world, model, servo).force);
    Real sum = zero();
    for (int k = 0; k < num_drives; ++k) sum += world.drive_force[k] * in_lambda(model.drive_dof[k]);
    out_value(0, sum);
    servo_forces_adjoint(world, adjoint, model, lane, adjoint.lambda);
    FOR_LANES(dof, num_dofs) {
        out_joint_q_bar(dof, gathered(adjoint.drive_q_bar, model.dof_drive, model.dof_drive_start, dof));
        out_joint_qd_bar(dof, gathered(adjoint.drive_qd_bar, model.dof_drive, model.dof_drive_start, dof));
    }
    FOR_LANES(k, num_controls) out_control_bar(k, control_adjoint(adjoint, model, k, in_control(k)));
"""


def test_servos(every_law: Model, rng: np.random.Generator, place: str) -> None:
    """Forces as MuJoCo's actuator_force; derivatives by joint_q, joint_qd and control, zero where a range holds."""
    model = every_law
    inputs = lively_inputs(model, rng)
    inputs["control"] *= 1.3
    inputs["lambda"] = rng.normal(size=(NUM_WORLDS, model.num_dofs))
    steps = {"joint_q": 1e-6, "joint_qd": 1e-5, "control": 1e-5}
    outputs = {"force": model.num_servos}
    found = check_adjoint(model, SERVOS, inputs, steps, outputs, place=place, excluded_share=0.02)
    data, forces = mujoco.MjData(model.source), []
    for q, qd, control in zip(inputs["joint_q"], inputs["joint_qd"], inputs["control"], strict=True):
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, qd, control
        mujoco.mj_forward(model.source, data)
        forces.append(data.actuator_force[model.servo_actuator].copy())
    assert_allclose(found["force"], forces, rtol=1e-10, atol=1e-10)
    held = (found["force"] == model.servo_lower) | (found["force"] == model.servo_upper)
    assert 0 < held.sum() < held[:, np.isfinite(model.servo_upper)].size
    assert (found["control_bar"][:, model.servo_actuator][held] == 0).all()


TIES = """
    FOR_LANES(dof, num_dofs) adjoint.lambda[dof] = in_lambda(dof);
    barrier();
    tie_forces(world, model, lane);
    Real sum = zero();
    for (int k = 0; k < num_strands; ++k) sum += world.strand_force[k] * in_lambda(model.strand_dof[k]);
    out_value(0, sum);
    tie_forces_adjoint(world, adjoint, model, lane);
    FOR_LANES(dof, num_dofs) {
        out_force(dof, gathered(world.strand_force, model.dof_strand, model.dof_strand_start, dof));
        out_joint_q_bar(dof, gathered(adjoint.strand_q_bar, model.dof_strand, model.dof_strand_start, dof));
        out_joint_qd_bar(dof, gathered(adjoint.strand_qd_bar, model.dof_strand, model.dof_strand_start, dof));
    }
"""


def test_ties_adjoint(every_law: Model, rng: np.random.Generator, place: str) -> None:
    joint_q, joint_qd = lively_states(every_law, NUM_WORLDS, rng, speed=0.4)
    inputs = {"joint_q": joint_q, "joint_qd": joint_qd, "lambda": rng.normal(size=joint_qd.shape)}
    steps, outputs = {"joint_q": 1e-6, "joint_qd": 1e-6}, {"force": every_law.num_dofs}
    check_adjoint(every_law, TIES, inputs, steps, outputs, place=place, excluded_share=0.02)


def tie_forces(model: Model, joint_q: np.ndarray, joint_qd: np.ndarray, place: str) -> np.ndarray:
    """On each dof."""
    code = TIES.replace("in_lambda(dof)", "zero()").replace("in_lambda(model.strand_dof[k])", "zero()")
    inputs = {"joint_q": joint_q, "joint_qd": joint_qd}
    widths = {"value": 1, "force": model.num_dofs, "joint_q_bar": model.num_dofs, "joint_qd_bar": model.num_dofs}
    return run_stages(model, code, inputs, widths, place)["force"]


def test_equalities_pull_along_mujocos_constraint(every_law: Model, rng: np.random.Generator, place: str) -> None:
    """-J^T (stiffness r + damping J qd), with MuJoCo's Jacobian J and residual r of each equality."""
    equalities = np.array([name.startswith("equality") for name in every_law.tie_name])
    zero = np.where(equalities, every_law.tie_stiffness, 0)
    model = replace(
        every_law, tie_stiffness=zero, tie_damping=every_law.tie_damping * equalities, tie_friction=0 * zero,
        tie_limits=np.tile([-np.inf, np.inf], (len(zero), 1)),
    )  # fmt: skip
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    source, expected = model.source, []
    source.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(source)
    for q, qd in zip(joint_q, joint_qd, strict=True):
        data.qpos[:], data.qvel[:] = q, qd
        mujoco.mj_forward(source, data)
        jacobian = data.efc_J.reshape(-1, model.num_dofs)[: data.ne]
        pull = model.tie_stiffness[equalities] * data.efc_pos[: data.ne]
        pull += model.tie_damping[equalities] * (jacobian @ qd)
        expected.append(-pull @ jacobian)
    assert len(data.efc_pos[: data.ne]) == 2
    assert_allclose(tie_forces(model, joint_q, joint_qd, place), expected, rtol=1e-9, atol=1e-10)


def test_friction_and_limits_of_a_tendon(every_law: Model, rng: np.random.Generator, place: str) -> None:
    """By hand from MuJoCo's length and Jacobian of the tendon."""
    model = replace(every_law, tie_stiffness=np.zeros(4), tie_damping=np.zeros(4))
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    source, data, expected = model.source, mujoco.MjData(every_law.source), []
    for q, qd in zip(joint_q, joint_qd, strict=True):
        data.qpos[:], data.qvel[:] = q, qd
        mujoco.mj_forward(source, data)
        sum_ = np.zeros(model.num_dofs)
        for tendon, (stiffness, damping, friction, full) in enumerate([(250, 30, 0.9, 0.2), (1000, 0, 0, 0.1)]):
            lower, upper = source.tendon_range[tendon]
            length, rate = data.ten_length[tendon], data.ten_velocity[tendon]
            force = max(0, max(0, lower - length) * (stiffness - damping * rate))
            force -= max(0, max(0, length - upper) * (stiffness + damping * rate))
            s = np.clip(rate / full, -1, 1)
            force -= friction * s * (3 - s**2) / 2
            arm = np.zeros(model.num_dofs)
            first = source.tendon_adr[tendon]
            for wrap in range(first, first + source.tendon_num[tendon]):
                arm[source.jnt_dofadr[source.wrap_objid[wrap]]] += source.wrap_prm[wrap]
            assert_allclose(arm @ qd, rate, atol=1e-12)
            sum_ += force * arm
        expected.append(sum_)
    assert_allclose(tie_forces(model, joint_q, joint_qd, place), expected, rtol=1e-9, atol=1e-9)


def test_sliding_friction_is_mujocos(place: str, rng: np.random.Generator) -> None:
    """Of hinges, slides, balls and tendons that all slide: MuJoCo's constraint gives the whole frictionloss.

    Nothing else accelerates this robot: every part is a sphere about all axes.
    """
    model = load_model("""
    <mujoco>
      <option tolerance="0" iterations="200" gravity="0 0 0"/>
      <default><joint armature="0.5"/></default>
      <worldbody>
        <body>
          <joint name="b" type="slide" frictionloss="2"/><joint name="a" axis="0 1 0" frictionloss="1.5"/>
          <geom size="0.1"/>
          <body><joint type="ball" frictionloss="0.7"/><geom size="0.1"/></body>
        </body>
      </worldbody>
      <tendon><fixed frictionloss="0.8"><joint joint="a" coef="2"/><joint joint="b" coef="0.5"/></fixed></tendon>
    </mujoco>""")
    joint_q = lively_states(model, NUM_WORLDS, rng)[0]
    shape = (NUM_WORLDS, model.num_dofs)
    joint_qd = rng.choice([-1, 1], shape) * rng.uniform(1, 2, shape)
    code = """
        FOR_LANES(body, num_bodies) world.body_force[body] = zero_force();
        barrier();
        joint_forces(world, model, lane);
        FOR_LANES(dof, num_dofs) out_force(dof, world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE]);
    """
    found = run_stages(model, code, {"joint_q": joint_q, "joint_qd": joint_qd}, {"force": model.num_dofs}, place)
    data, expected = mujoco.MjData(model.source), []
    for q, qd in zip(joint_q, joint_qd, strict=True):
        data.qpos[:], data.qvel[:] = q, qd
        mujoco.mj_forward(model.source, data)
        assert data.nf == data.nefc == 6
        expected.append(data.qfrc_constraint.copy())
    assert_allclose(found["force"], expected, rtol=1e-9)
