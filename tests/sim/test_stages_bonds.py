"""Bonds between bodies alone: MuJoCo's residuals and Jacobians for their values, central differences for adjoints."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from adjoints import MOVE_BODIES, NUM_WORLDS, check_adjoint
from bonded_robots import BONDS, bonded
from manifold import lively_states
from numpy.testing import assert_allclose
from probe import PLACES, run_stages

from trot.sim.load import load_model
from trot.sim.model import Model

pytestmark = pytest.mark.parametrize("place", PLACES)

POWER = f"""
    kinematics(world, model, lane);
    {MOVE_BODIES}
    FOR_LANES(body, num_bodies) {{
        world.body_velocity[body] = motion_from(in_velocity, body);
        adjoint.body_lambda[body] = motion_from(in_w, body);
        adjoint.velocity_bar[body] = adjoint.pose_bar[body] = world.body_force[body] = zero_force();
    }}
    barrier();
    bonds_adjoint(world, adjoint, model, lane);
    subtract_bond_bars(adjoint, model, lane);
    FOR_LANES(bond, num_bonds) write(out_same, bond, world.bond_force[bond]);
    barrier();
    bonds(world, model, lane);
    subtract_bond_forces(world, model, lane);
    Real sum = zero();
    for (int body = 0; body < num_bodies; ++body) sum -= dot(adjoint.body_lambda[body], world.body_force[body]);
    out_value(0, sum);
    FOR_LANES(bond, num_bonds) write(out_force, bond, world.bond_force[bond]);
    FOR_LANES(body, num_bodies) {{
        write(out_body_force, body, -world.body_force[body]);
        write(out_velocity_bar, body, -adjoint.velocity_bar[body]);
        write(out_pose_bar, body, -adjoint.pose_bar[body]);
    }}
"""


def check_power(model: Model, joint_q: np.ndarray, rng: np.random.Generator, place: str) -> dict[str, np.ndarray]:
    """By velocity and pose of each body, of the sum of dot(w, force)."""
    width = 6 * model.num_bodies
    inputs = {
        "joint_q": joint_q,
        "w": rng.normal(size=(len(joint_q), width)),
        "velocity": rng.normal(size=(len(joint_q), width)),
        "pose": np.zeros((len(joint_q), width)),
    }
    widths = {"force": 6 * model.num_bonds, "same": 6 * model.num_bonds, "body_force": width}
    # The chord has a kink where it begins to fall off near half a turn.
    found = check_adjoint(
        model, POWER, inputs, {"velocity": 1e-5, "pose": 1e-6}, widths, place=place, excluded_share=0.01
    )
    assert_allclose(found["same"], found["force"], rtol=1e-12, atol=1e-12)
    return found


@pytest.mark.parametrize("bond", BONDS)
def test_adjoint_of_each_kind(rng: np.random.Generator, place: str, bond: str) -> None:
    model = load_model(bonded(BONDS[bond]))
    joint_q, _ = lively_states(model, NUM_WORLDS, rng)
    found = check_power(model, joint_q, rng, place)
    first, second = found["body_force"].reshape(-1, 2, 6).transpose(1, 0, 2)
    if (model.bond_body >= 0).all():
        assert_allclose(first, -second, rtol=1e-12, atol=1e-12)
    else:
        assert (first == 0).all() and (second != 0).all()


AT_STATE = """
    kinematics(world, model, lane);
    velocities(world, model, lane);
    FOR_LANES(body, num_bodies) world.body_force[body] = zero_force();
    barrier();
    bonds(world, model, lane);
    subtract_bond_forces(world, model, lane);
    body_forces_to_root(world, model, lane);
    FOR_LANES(dof, num_dofs) out_force(dof, -dot(world.joint_axis[dof], world.body_force[model.dof_body[dof]]));
"""


@pytest.mark.parametrize("bond", BONDS)
def test_generalised_force_from_mujocos_jacobian(rng: np.random.Generator, place: str, bond: str) -> None:
    """-J^T (stiffness r + damping J qd) with MuJoCo's residual r and Jacobian J of the anchors.

    MuJoCo's is the velocity of one anchor as seen from the other, ours that of the middle: alike where the anchors meet
    or nothing turns. So bodies rest where anchors are well apart here, and move where they meet but for a hair.
    """
    model = load_model(bonded(BONDS[bond]))
    source = model.source
    source.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(source)
    for far, speed in ((0.3, 0.0), (1e-9, 1.0)):
        joint_q = np.tile(_meeting(model), (NUM_WORLDS, 1))
        for row in joint_q:
            mujoco.mj_integratePos(source, row, far * rng.normal(size=model.num_dofs), 1)
        joint_qd = speed * rng.normal(size=(NUM_WORLDS, model.num_dofs))
        inputs = {"joint_q": joint_q, "joint_qd": joint_qd}
        found = run_stages(model, AT_STATE, inputs, {"force": model.num_dofs}, place)
        expected = []
        for q, qd in zip(joint_q, joint_qd, strict=True):
            data.qpos[:], data.qvel[:] = q, qd
            mujoco.mj_forward(source, data)
            jacobian, residual = data.efc_J.reshape(-1, source.nv)[: data.ne], data.efc_pos[: data.ne]
            pull = model.bond_stiffness[0] * residual[:3] + model.bond_damping[0] * (jacobian[:3] @ qd)
            expected.append(-jacobian[:3].T @ pull + _turning(model, data, qd))
        assert data.ne == (6 if bond.startswith("weld") else 3)
        scale = abs(np.array(expected)).max()
        assert_allclose(found["force"], expected, atol=1e-7 * scale if speed else 1e-10 * scale)


def _frames(model: Model, data: mujoco.MjData) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rotation matrix and rotational Jacobian of the frame at each end, and where it is."""
    source, found = model.source, []
    moving = [body for body in range(1, source.nbody) if source.body_jntnum[body]]
    for body, point, quat in zip(model.bond_body[0], model.bond_point[0], model.bond_quat[0], strict=True):
        own, own_turn = np.zeros(3), np.eye(3)
        jacobian, matrix = np.zeros((3, source.nv)), np.zeros(9)
        if body >= 0:
            own, own_turn = data.xpos[moving[body]], data.xmat[moving[body]].reshape(3, 3)
            mujoco.mj_jacBody(source, data, None, jacobian, moving[body])
        mujoco.mju_quat2Mat(matrix, quat)
        found.append((own_turn @ matrix.reshape(3, 3), jacobian, own + own_turn @ point))
    return found


def _turning(model: Model, data: mujoco.MjData, qd: np.ndarray) -> np.ndarray:
    """Generalised force of the torque -(stiffness chord + damping rate), the chord from MuJoCo's quaternion."""
    (first, first_jacobian, _), (second, second_jacobian, _) = _frames(model, data)
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, (first @ second.T).ravel())
    chord = 2 * quat[1:] * np.sign(quat[0])
    between = first_jacobian - second_jacobian
    torque = -(model.bond_turn_stiffness[0] * chord + model.bond_turn_damping[0] * (between @ qd))
    return between.T @ torque


def _meeting(model: Model) -> np.ndarray:
    """joint_q at which the anchors meet: the second body is moved there."""
    data = mujoco.MjData(model.source)
    mujoco.mj_forward(model.source, data)
    (_, _, first), (_, _, second) = _frames(model, data)
    joint_q = model.q_reference.copy()
    sign = 1 if model.bond_body[0, 1] == 1 else -1
    joint_q[7:10] += sign * (first - second)
    return joint_q


def test_residuals_are_mujocos(rng: np.random.Generator, place: str) -> None:
    """What a weld aligns is what MuJoCo does: its residual is half the chord, in the axes of the second frame."""
    for bond in ("weld", "weld to a mocap body", "weld of sites"):
        model = load_model(bonded(BONDS[bond].replace('torquescale="0.6"', "")))
        data = mujoco.MjData(model.source)
        data.qpos[:] = lively_states(model, 1, rng)[0][0]
        mujoco.mj_forward(model.source, data)
        (first, _, at_first), (second, _, at_second) = _frames(model, data)
        quat = np.zeros(4)
        mujoco.mju_mat2Quat(quat, (first @ second.T).ravel())
        residual = data.efc_pos[:6]
        assert_allclose(residual[:3], at_first - at_second, atol=1e-12)
        half = second.T @ quat[1:]
        assert_allclose(abs(residual[3:]), abs(half), atol=1e-12)
