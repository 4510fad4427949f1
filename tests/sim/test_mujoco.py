"""Kinematics, mass matrix, bias, gravcomp, springs, motors, muscles and a whole substep against MuJoCo.

Errors are relative to the largest magnitude of a quantity over all worlds. MuJoCo is no oracle for penalty contact,
for limits and equalities as springs, for smooth dry friction and for ball springs (test_stages_*.py have closed forms):
those are taken off the robots here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from campaign import in_a_campaign
from hypothesis import example, given, settings
from hypothesis import strategies as st
from manifold import integrate, lively_states
from probe import PLACES, run_stages
from random_robots import random_robot

from trot.sim.load import load_model
from trot.sim.model import JointType, Model
from trot.sim.state import State
from trot.sim.step import step

HERE = Path(__file__).parent
ROBOTS = {
    path.stem: path
    for folder in (HERE.parent / "robots", HERE.parents[1] / "trot" / "envs" / "assets")
    for path in sorted(folder.glob("*.xml"))
}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}
NUM_WORLDS = 20  # whole blocks of 8 or 16, and an incomplete one

STAGES = """
    kinematics(world, model, lane);
    FOR_LANES(body, num_bodies)
        for (int i = 0; i < 3; ++i) {
            out_position(3 * body + i, numbers(&world.origin)[i] + numbers(&world.body_position[body])[i]);
            for (int j = 0; j < 3; ++j)
                out_rotation(9 * body + 3 * i + j, numbers(&world.body_rotation[body].row[i])[j]);
        }

    // What the bodies need while the muscles are slack.
    FOR_LANES(k, num_controls) world.control[k] = zero();
    barrier();
    velocities(world, model, lane);
    accelerations<false>(world, model, lane);
    body_forces(world, model, lane);
    leaves_to_root<6>(model, lane, numbers(world.body_force));
    FOR_LANES(dof, num_dofs)
        out_bias(dof, dot(world.joint_axis[dof], world.body_force[model.dof_body[dof]]));

    barrier();
    FOR_LANES(k, num_controls) world.control[k] = clamped(model, k, in_control(k));
    FOR_LANES(body, num_bodies) world.body_force[body] = zero_force();
    barrier();
    joint_forces(world, model, lane);
    FOR_LANES(dof, num_dofs)
        out_joint_force(dof, world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE]);

    muscles(world, model, lane);
    for (int bundle = 0; lane == 0 && bundle < num_bundles; ++bundle) {
        const int a = model.bundle_body_a[bundle], b = model.bundle_body_b[bundle];
        if (a >= 0) world.body_force[a] += world.bundle_force[bundle];
        if (b >= 0) world.body_force[b] -= world.bundle_force[bundle];
    }
    barrier();
    leaves_to_root<6>(model, lane, numbers(world.body_force));
    FOR_LANES(dof, num_dofs)
        out_muscle_force(dof, dot(world.joint_axis[dof], world.body_force[model.dof_body[dof]]));

    // Where a lane holds a whole row, that row; its diagonal stands apart.
    mass_matrix(world, model, lane);
    FOR_LANES(k, num_dofs * num_dofs) out_mass_matrix(k, zero());
    barrier();
    FOR_LANES(i, num_dofs) {
        const LaneRow row = lane_row(world, model, i);
        for (int depth = 0; depth <= model.dof_depth[i]; ++depth) {
            const int j = model.chain[model.dof_chain_start[i] + depth];
            const int c = column_of(depth);
            Real entry = world.mass_matrix[i * row_stride + c];
            if (rows_in_lanes) entry = depth == model.dof_depth[i] ? row.diagonal : row.quad[c / 4].number[c % 4];
            out_mass_matrix(i * num_dofs + j, entry);
            out_mass_matrix(j * num_dofs + i, entry);
        }
    }
"""


WITH_ACTS = "FOR_LANES(k, num_acts) world.act[k] = in_activation(k); barrier();" + STAGES


def load_comparable(source: str | Path) -> Model:
    """A robot with only what MuJoCo has too: no contact, limits, springs of balls, equalities, dry friction."""
    model = load_model(source)
    springs = np.where(model.joint_type == JointType.BALL, 0, model.joint_stiffness)
    is_tendon = np.array([name.startswith("tendon") for name in model.tie_name], bool)
    none = np.zeros(model.num_joints)
    return replace(
        model,
        ground_height=None,
        pair_stiffness=np.zeros(model.num_pairs),
        pair_damping=np.zeros(model.num_pairs),
        joint_stiffness=springs,
        joint_limit_stiffness=none,
        joint_limit_damping=none,
        dof_friction=np.zeros(model.num_dofs),
        tie_stiffness=model.tie_stiffness * is_tendon,
        tie_damping=model.tie_damping * is_tendon,
        tie_limits=np.tile([-np.inf, np.inf], (model.num_ties, 1)),
        tie_friction=np.zeros(model.num_ties),
        bond_stiffness=np.zeros(model.num_bonds),
        bond_damping=np.zeros(model.num_bonds),
        bond_turn_stiffness=np.zeros(model.num_bonds),
        bond_turn_damping=np.zeros(model.num_bonds),
    )


def lively_inputs(model: Model, seed: int) -> dict[str, np.ndarray]:
    """States and controls, some of these beyond their range."""
    rng = np.random.default_rng(seed)
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    lower, upper = model.sample_range()
    control = rng.uniform(lower - 0.2, upper + 0.2, (NUM_WORLDS, model.num_controls))
    inputs = {"joint_q": joint_q, "joint_qd": joint_qd, "control": control}
    return {**inputs, "activation": rng.normal(size=(NUM_WORLDS, model.num_acts))} if model.num_acts else inputs


def by_mujoco(
    model: Model, joint_q: np.ndarray, joint_qd: np.ndarray, control: np.ndarray, activation: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """What STAGES computes, by MuJoCo, one world after the other."""
    source = model.source
    data = mujoco.MjData(source)
    bodies = [source.body(name).id for name in model.body_name]
    in_ball = np.repeat(model.joint_type == JointType.BALL, np.diff([*model.joint_dof_start, model.num_dofs]))
    is_muscle = np.isin(np.arange(source.nu), model.muscle_actuator)
    moment = np.zeros((source.nu, source.nv))
    mass_matrix = np.zeros((source.nv, source.nv))
    worlds = []
    acts = np.zeros((len(joint_q), 0)) if activation is None else activation
    for q, qd, ctrl, act in zip(joint_q, joint_qd, control, acts, strict=True):
        data.qpos[:], data.qvel[:], data.ctrl[:], data.act[:] = q, qd, ctrl, act
        mujoco.mj_forward(source, data)
        mujoco.mj_fullM(source, data, mass_matrix)
        mujoco.mju_sparse2dense(
            moment, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind
        )
        muscle_force = (data.actuator_force * is_muscle) @ moment
        motors_and_servos = data.qfrc_actuator - muscle_force
        world = {
            "position": data.xpos[bodies],
            "rotation": data.xmat[bodies],
            "bias": data.qfrc_bias - data.qfrc_gravcomp,
            "joint_force": motors_and_servos + data.qfrc_damper + data.qfrc_spring * ~in_ball,
            "muscle_force": muscle_force,
            "mass_matrix": mass_matrix,
        }
        worlds.append({name: value.flatten() for name, value in world.items()})
    return {name: np.array([world[name] for world in worlds]) for name in worlds[0]}


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> None:
    error = abs(found - expected).max() / max(abs(expected).max(), 1e-300)
    assert error <= tolerance, f"{what} differs by {error:.1e} of its largest magnitude"


def check_stages(model: Model, inputs: dict[str, np.ndarray], dtype: torch.dtype, place: str) -> None:
    expected = by_mujoco(model, **inputs)
    if not model.num_controls:
        inputs = {**inputs, "control": np.zeros((NUM_WORLDS, 1))}
    widths = {name: value.shape[1] for name, value in expected.items()}
    found = run_stages(model, WITH_ACTS if model.num_acts else STAGES, inputs, widths, place, dtype)
    for name, value in expected.items():
        assert_close(found[name], value, TOLERANCE[dtype], name)


def check_substep(model: Model, inputs: dict[str, np.ndarray], dtype: torch.dtype) -> None:
    """Semi-implicit Euler with MuJoCo's M qdd = force - bias."""
    dt = 2e-3
    terms = by_mujoco(model, **inputs)
    mass_matrix = terms["mass_matrix"].reshape(-1, model.num_dofs, model.num_dofs)
    force = terms["joint_force"] + terms["muscle_force"] - terms["bias"]
    joint_qd = inputs["joint_qd"] + dt * np.linalg.solve(mass_matrix, force[..., None])[..., 0]
    joint_q = inputs["joint_q"].copy()
    for q, qd in zip(joint_q, joint_qd, strict=True):
        mujoco.mj_integratePos(model.source, q, qd, dt)

    q, qd, control = (torch.tensor(inputs[name], dtype=dtype) for name in ("joint_q", "joint_qd", "control"))
    activation = torch.tensor(inputs["activation"], dtype=dtype) if model.num_acts else None
    after = step(model, State(q, qd, activation=activation), control, dt)
    assert_close(after.joint_qd.double().numpy(), joint_qd, TOLERANCE[dtype], "joint_qd")
    assert_close(after.joint_q.double().numpy(), joint_q, TOLERANCE[dtype], "joint_q")


IN_SINGLE_TOO = ("every_joint", "every_law", "humanoid")
"""Always; the other robots in a campaign, and all of them in double precision."""
IN_BOTH = pytest.mark.parametrize(
    ("robot", "dtype"),
    [
        *[(name, torch.float64) for name in ROBOTS],
        *[(name, torch.float32) for name in IN_SINGLE_TOO],
        *[in_a_campaign(name, torch.float32) for name in ROBOTS if name not in IN_SINGLE_TOO],
    ],
    ids=str,
)


@pytest.mark.parametrize("place", PLACES)
@IN_BOTH
def test_stages_agree_with_mujoco(robot: str, dtype: torch.dtype, place: str) -> None:
    model = load_comparable(ROBOTS[robot])
    check_stages(model, lively_inputs(model, seed=1), dtype, place)


@IN_BOTH
def test_a_substep_agrees_with_mujoco(robot: str, dtype: torch.dtype) -> None:
    model = load_comparable(ROBOTS[robot])
    check_substep(model, lively_inputs(model, seed=2), dtype)


RANDOM_TREES = given(
    seed=st.integers(0, 2**32 - 1), num_bodies=st.integers(1, 8), num_muscles=st.integers(0, 3), laws=st.booleans()
)


@pytest.mark.slow
@settings(max_examples=2, derandomize=True, deadline=None, database=None)
@RANDOM_TREES
# A share of weight below 0, and none above.
@example(seed=0, num_bodies=2, num_muscles=0, laws=True)
def test_random_trees_agree_with_mujoco(seed: int, num_bodies: int, num_muscles: int, laws: bool) -> None:
    check_a_random_tree(seed, num_bodies, num_muscles, laws)


@pytest.mark.campaign
@settings(max_examples=40, derandomize=True, deadline=None, database=None)
@RANDOM_TREES
def test_many_random_trees_agree_with_mujoco(seed: int, num_bodies: int, num_muscles: int, laws: bool) -> None:
    check_a_random_tree(seed, num_bodies, num_muscles, laws)


def check_a_random_tree(seed: int, num_bodies: int, num_muscles: int, laws: bool) -> None:
    rng = np.random.default_rng(seed)
    model = load_comparable(random_robot(rng, num_bodies, num_muscles=num_muscles, laws=laws))
    inputs = lively_inputs(model, seed)
    check_stages(model, inputs, torch.float64, "cpu")
    check_substep(model, inputs, torch.float64)


@pytest.mark.parametrize("place", PLACES)
def test_a_robot_far_from_the_origin_loses_no_float32_digits(place: str) -> None:
    """Oracle: the same robot at the origin. 500 m away a float32 resolves 3e-5 m; no force may show it."""
    model = load_comparable(ROBOTS["ant"])
    near = lively_inputs(model, seed=3)
    near["joint_q"][:, :2] = 0
    far = {**near, "joint_q": near["joint_q"] + np.eye(model.num_q)[0] * 500}
    names = ("bias", "joint_force", "mass_matrix")
    widths = {name: value.shape[1] for name, value in by_mujoco(model, **near).items()}
    at_origin, away = (run_stages(model, STAGES, inputs, widths, place, torch.float32) for inputs in (near, far))
    for name in names:
        np.testing.assert_array_equal(away[name], at_origin[name], err_msg=name)


def test_the_tests_move_along_the_manifold_as_mujoco_does() -> None:
    model = load_model(ROBOTS["every_joint"])
    rng = np.random.default_rng(4)
    joint_q, tangent = lively_states(model, NUM_WORLDS, rng)
    expected = joint_q.copy()
    for q, change in zip(expected, tangent, strict=True):
        mujoco.mj_integratePos(model.source, q, change, 1.0)
    np.testing.assert_allclose(integrate(model, joint_q, tangent), expected, atol=1e-14)
