"""Muscles with curves, stage by stage: MuJoCo's numbers forwards, central differences for adjoints."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from adjoints import MOVE_BODIES, check_adjoint
from manifold import lively_states
from numpy.testing import assert_allclose
from probe import PLACES, run_stages

from trot.sim.load import load_model
from trot.sim.model import STRAIGHT, Model

NUM_WORLDS = 60
TOLERANCE = 1e-10

pytestmark = pytest.mark.parametrize("place", PLACES)


def lively_inputs(model: Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    lower, upper = model.sample_range()
    return {
        "joint_q": joint_q,
        "joint_qd": joint_qd,
        "control": rng.uniform(lower, upper, (NUM_WORLDS, model.num_controls)),
        "act": rng.uniform(0.1, 0.85, (NUM_WORLDS, model.num_acts)),
    }


LOAD = """
    FOR_LANES(k, num_acts) world.act[k] = in_act(k);
    barrier();
    kinematics(world, model, lane);
    velocities(world, model, lane);
"""

MUSCLES = f"""
    {LOAD}
    hill_muscles(world, model, lane);
    FOR_LANES(body, num_bodies) world.body_force[body] = zero_force();
    barrier();
    subtract_hill_forces(world, model, lane);
    leaves_to_root<6>(model, lane, numbers(world.body_force));
    FOR_LANES(dof, num_dofs)
        out_joint_force(dof, -dot(world.joint_axis[dof], world.body_force[model.dof_body[dof]]));
    FOR_LANES(hill, num_hills) {{
        out_length(hill, sum_of_pieces(model, hill, world.piece_length));
        out_rate(hill, sum_of_pieces(model, hill, world.piece_rate));
        out_push(hill, world.hill_push[hill]);
    }}
    FOR_LANES(k, num_acts)
        out_act_rate(k, act_rate(model, k, world.act[k], world.control[model.act_actuator[k]]).value);
"""


def by_mujoco(model: Model, inputs: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What MUSCLES computes, and (worlds, tendons) how many points each tendon runs through."""
    source, hills = model.source, model.hill_actuator
    data = mujoco.MjData(source)
    moment = np.zeros((source.nu, source.nv))
    tendons = source.actuator_trnid[hills, 0]
    worlds, points = [], []
    for q, qd, control, act in zip(*inputs.values(), strict=True):
        data.qpos[:], data.qvel[:], data.ctrl[:], data.act[:] = q, qd, control, act
        mujoco.mj_forward(source, data)
        mujoco.mju_sparse2dense(
            moment, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind
        )
        worlds.append({
            "joint_force": data.actuator_force[hills] @ moment[hills],
            "length": data.ten_length[tendons],
            "rate": data.ten_velocity[tendons],
            "push": data.actuator_force[hills] * source.actuator_gear[hills, 0],
            "act_rate": data.act_dot.copy(),
        })  # fmt: skip
        points.append(data.ten_wrapnum.copy())
    return {name: np.array([world[name] for world in worlds]) for name in worlds[0]}, np.array(points)


def test_muscles_are_mujocos(every_muscle: Model, rng: np.random.Generator, place: str) -> None:
    """Length, speed, force, moments and activation, wrapped and not; a fixed part adds to the length outside."""
    model = every_muscle
    inputs = lively_inputs(model, rng)
    expected, points = by_mujoco(model, inputs)
    wrapping = [model.source.tendon(name).id for name in ("sphere", "sphere_side", "cylinder", "cylinder_side")]
    for tendon in (*wrapping, model.source.tendon("fixed_drum").id, model.source.tendon("pulley").id):
        assert len(np.unique(points[:, tendon])) > 1, "some wrap and some do not"
    found = run_stages(model, MUSCLES, inputs, {name: rows.shape[1] for name, rows in expected.items()}, place)
    # Between two sites of the trunk and, at the end, between none: the same in every world.
    found["length"] += np.where(np.array(model.actuator_name)[model.hill_actuator] == "straight", TRUNK, 0.0)
    for name, rows in expected.items():
        assert_allclose(found[name], rows, rtol=0, atol=TOLERANCE * abs(rows).max(), err_msg=name)


TRUNK = float(np.linalg.norm([0.12 - 0.11, 0.03 + 0.02, 0.1 + 0.1]))


def test_every_part_of_the_curves_is_met(every_muscle: Model, rng: np.random.Generator, place: str) -> None:
    """So that the comparison above says something about it."""
    model = every_muscle
    found, _ = by_mujoco(model, lively_inputs(model, rng))
    gear, best = model.hill_gear, model.hill_best_length
    source = model.source
    first = source.actuator_lengthrange[model.hill_actuator, 0]
    x = source.actuator_gainprm[model.hill_actuator, 0] + (found["length"] * gear - first) / best
    v = found["rate"] * gear / (best * model.hill_curve[:, 2])
    least, most = model.hill_curve[:, 0], model.hill_curve[:, 1]
    ends = (least, (least + 1) / 2, np.ones_like(most), (most + 1) / 2, most)
    for low, high in zip((-np.inf, *ends), (*ends, np.inf), strict=True):
        assert ((x > low) & (x < high)).sum() > 5
    for low, high in ((-np.inf, -1), (-1, 0), (0, 0.2), (0.4, np.inf)):
        assert ((v > low) & (v < high)).sum() > 5
    assert (found["push"] == -100).any() and place


def test_muscles_adjoint(every_muscle: Model, rng: np.random.Generator, place: str) -> None:
    """By pose and velocity of each body, activation and control, of the power when bodies move with w."""
    # A held force has kinks of its own.
    model = replace(every_muscle, hill_force_range=np.full_like(every_muscle.hill_force_range, np.inf) * [-1, 1])
    width = 6 * model.num_bodies
    code = f"""
        {LOAD}
        {MOVE_BODIES}
        FOR_LANES(body, num_bodies) {{
            adjoint.body_lambda[body] = motion_from(in_w, body);
            world.body_velocity[body] = motion_from(in_velocity, body);
            adjoint.pose_bar[body] = adjoint.velocity_bar[body] = world.body_force[body] = zero_force();
        }}
        FOR_LANES(k, num_acts) adjoint.act_bar[k] = adjoint.act_control_bar[k] = zero();
        FOR_LANES(hill, num_hills) adjoint.hill_control_bar[hill] = zero();
        barrier();
        hill_muscles_adjoint(world, adjoint, model, lane);
        subtract_hill_bars(world, adjoint, model, lane);
        hill_muscles(world, model, lane);
        subtract_hill_forces(world, model, lane);
        if (lane == 0) {{
            Real sum = zero();
            for (int body = 0; body < num_bodies; ++body)
                sum -= dot(adjoint.body_lambda[body], world.body_force[body]);
            out_value(0, sum);
        }}
        FOR_LANES(body, num_bodies) {{
            write(out_pose_bar, body, -adjoint.pose_bar[body]);
            write(out_velocity_bar, body, -adjoint.velocity_bar[body]);
        }}
        FOR_LANES(k, num_acts) out_act_bar(k, adjoint.act_bar[k]);
        FOR_LANES(k, num_controls) out_control_bar(k, hill_control_adjoint(adjoint, model, k, world.control[k]));
    """
    inputs = lively_inputs(model, rng)
    inputs |= {
        "w": rng.normal(size=(NUM_WORLDS, width)),
        "velocity": rng.normal(size=(NUM_WORLDS, width)),
        "pose": np.zeros((NUM_WORLDS, width)),
    }
    check_adjoint(
        model,
        code,
        inputs,
        {"pose": 1e-5, "velocity": 1e-4, "act": 1e-3, "control": 1e-3},
        place=place,
        # Where a curve changes from one parabola to the next, or a tendon begins to wrap.
        excluded_share=0.03,
    )


def test_activation_adjoint(every_muscle: Model, rng: np.random.Generator, place: str) -> None:
    model = every_muscle
    code = """
        FOR_LANES(k, num_acts) {
            world.act[k] = in_act(k);
            adjoint.act_bar[k] = in_w(k);
            adjoint.act_control_bar[k] = zero();
        }
        FOR_LANES(hill, num_hills) adjoint.hill_control_bar[hill] = zero();
        barrier();
        advance_acts_adjoint(world, adjoint, model, lane, Scalar(0.004));
        advance_acts(world, model, lane, Scalar(0.004));
        if (lane == 0) {
            Real sum = zero();
            for (int k = 0; k < num_acts; ++k) sum += world.act[k] * in_w(k);
            out_value(0, sum);
        }
        FOR_LANES(k, num_acts) out_act_bar(k, adjoint.act_bar[k]);
        FOR_LANES(k, num_controls) out_control_bar(k, hill_control_adjoint(adjoint, model, k, world.control[k]));
    """
    inputs = {name: value for name, value in lively_inputs(model, rng).items() if name in ("act", "control")}
    # Also where an activation was put outside of 0 to 1.
    inputs["act"][::5] += 1.0
    inputs["act"][1::5] -= 1.0
    inputs["w"] = rng.normal(size=(NUM_WORLDS, model.num_acts))
    check_adjoint(model, code, inputs, {"act": 1e-4, "control": 1e-4}, place=place, excluded_share=0.02)


ONE_ROPE = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <geom name="wheel" type="{shape}" size="0.5 2" contype="0" conaffinity="0"/>
    <site name="fixed" pos="-1.3 0 {height}"/>
    <body name="load" pos="1.3 0 0">
      <joint type="slide" axis="0 1 0"/><joint type="slide" axis="1 0 0"/>
      <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
      <site name="load"/>
    </body>
  </worldbody>
  <tendon>
    <spatial name="rope"><site site="fixed"/><geom geom="wheel"/><site site="load"/></spatial>
  </tendon>
  <actuator><muscle tendon="rope" force="10" lengthrange="1 4"/></actuator>
</mujoco>"""


@pytest.mark.parametrize(("shape", "height"), [("sphere", 0.0), ("cylinder", 0.0), ("cylinder", 0.9)])
def test_length_of_a_rope_over_a_wheel(shape: str, height: float, place: str) -> None:
    """Both ends 1.3 from the middle, a radius of 0.5: straight 1.2 twice, and between them the angle that is left.

    At the last angle nothing is left, and the rope is a chord.

    On a cylinder the climb is the other side of a right triangle.
    """
    model = load_model(ONE_ROPE.format(shape=shape, height=height))
    angle = np.array([2.9, 2.4, 2.1])
    place_at = 1.3 * np.stack([-np.sin(np.pi - angle), np.cos(np.pi - angle) - 1], axis=1)
    code = "kinematics(world, model, lane); place_pieces(world, model, lane); out_length(0, world.piece_length[0]);"
    found = run_stages(model, code, {"joint_q": place_at}, {"length": 1}, place)["length"][:, 0]
    flat = 2 * 1.2 + 0.5 * (angle - 2 * np.arccos(0.5 / 1.3))
    flat[2] = 2 * 1.3 * np.sin(angle[2] / 2)
    assert_allclose(found, np.hypot(flat, height), rtol=1e-14)
    assert (model.piece_kind != STRAIGHT).all()
