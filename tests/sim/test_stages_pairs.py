"""Contact of two shapes alone: touches against closed forms and MuJoCo's distances, adjoints against differences."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from adjoints import LOAD_PARAMETERS, MOVE_BODIES, NUM_WORLDS, check_adjoint, lively_parameters
from manifold import lively_states
from numpy.testing import assert_allclose
from probe import PLACES, run_stages
from random_robots import random_robot
from shape_pairs import CAPSULE, FIXED, PAIRS, one_body, overlapping, parallel, two_bodies

from trot.sim.load import load_model
from trot.sim.model import Model

pytestmark = pytest.mark.parametrize("place", PLACES)

POWER = f"""
    {LOAD_PARAMETERS}
    kinematics(world, model, lane);
    {MOVE_BODIES}
    FOR_LANES(body, num_bodies) {{
        world.body_velocity[body] = motion_from(in_velocity, body);
        adjoint.body_lambda[body] = motion_from(in_w, body);
        adjoint.velocity_bar[body] = adjoint.pose_bar[body] = world.body_force[body] = zero_force();
    }}
    barrier();
    pair_contacts_adjoint(world, adjoint, model, lane);
    subtract_pair_bars(world, adjoint, model, lane);
    FOR_LANES(pair, num_pairs) write(out_same, pair, world.pair_touches[pair] ? world.pair_force[pair] : zero_force());
    barrier();
    pair_contacts(world, model, lane);
    subtract_pair_forces(world, model, lane);
    Real sum = zero();
    for (int body = 0; body < num_bodies; ++body) sum -= dot(adjoint.body_lambda[body], world.body_force[body]);
    out_value(0, sum);
    FOR_LANES(pair, num_pairs) write(out_force, pair, world.pair_touches[pair] ? world.pair_force[pair] : zero_force());
    FOR_LANES(body, num_bodies) {{
        write(out_body_force, body, -world.body_force[body]);
        write(out_velocity_bar, body, -adjoint.velocity_bar[body]);
        write(out_pose_bar, body, -adjoint.pose_bar[body]);
    }}
    FOR_LANES(k, num_parameters) out_parameter_bar(k, adjoint.parameter_bar[k]);
"""


def check_power(model: Model, joint_q: np.ndarray, rng: np.random.Generator, place: str) -> dict[str, np.ndarray]:
    """By velocity and pose of each body and by the pair's constants, of the sum of dot(w, force)."""
    worlds, width = len(joint_q), 6 * model.num_bodies
    inputs = {
        "joint_q": joint_q,
        "w": rng.normal(size=(worlds, width)),
        "velocity": rng.normal(size=(worlds, width)) * rng.uniform(size=(worlds, 1)) ** 4,  # some stick
        "pose": np.zeros((worlds, width)),
        "parameter": np.tile(lively_parameters(model, rng), (worlds // NUM_WORLDS, 1)),
    }
    widths = {"force": 6 * model.num_pairs, "same": 6 * model.num_pairs, "body_force": width}
    steps = {"velocity": 1e-6, "pose": 1e-8, "parameter": 1e-4}
    found = check_adjoint(
        model, POWER, inputs, steps, widths, place=place, per_world_parameters=True, excluded_share=0.01
    )
    # Sums of large numbers of both signs, which a GPU rounds otherwise.
    assert_allclose(found["same"], found["force"], rtol=1e-12, atol=1e-14 * np.abs(found["force"]).max())
    return found


@pytest.mark.parametrize("kind", PAIRS)
def test_two_bodies(rng: np.random.Generator, place: str, kind: str) -> None:
    model = two_bodies(*PAIRS[kind])
    found = check_power(model, overlapping(model, 10 * NUM_WORLDS, rng), rng, place)
    touches = (found["force"] != 0).any(axis=1)
    assert 0.1 < touches.mean() < 0.95
    # As wrenches about one origin the two forces are equal and opposite.
    first, second = found["body_force"].reshape(-1, 2, 6).transpose(1, 0, 2)
    assert np.array_equal(first, -second) or abs(first + second).max() < 1e-12 * abs(first).max()
    by_kind = found["parameter_bar"][:, -4 * model.num_pairs :].reshape(len(touches), 4, model.num_pairs)
    assert (by_kind != 0).any(axis=0).all()


@pytest.mark.parametrize("kind", FIXED)
def test_one_body_and_the_world(rng: np.random.Generator, place: str, kind: str) -> None:
    model = one_body(*FIXED[kind])
    found = check_power(model, overlapping(model, 10 * NUM_WORLDS, rng, 0.5), rng, place)
    assert 0.1 < (found["force"] != 0).any(axis=1).mean() < 0.95


@pytest.mark.parametrize("seed", range(3))
def test_random_robots_among_obstacles(place: str, seed: int) -> None:
    """Trees of every joint type whose shapes all may touch each other, a fixed box, a capsule and a slope."""
    rng = np.random.default_rng(seed)
    fixed = """
        <geom name="table" type="box" size="0.3 0.2 0.1" euler="20 30 40"/>
        <geom name="pole" type="capsule" size="0.1" fromto="0 0 -1 0.3 0.2 1"/>
        <geom name="slope" type="plane" size="0 0 1" pos="0 0 -0.5" euler="15 10 0"/></worldbody>"""
    text = random_robot(rng, 5, num_muscles=0).replace('contype="0"', 'contype="1"').replace("</worldbody>", fixed)
    model = load_model(text, self_collision=True)
    joint_q, _ = lively_states(model, NUM_WORLDS, rng)
    found = check_power(model, joint_q, rng, place)
    assert (found["force"].reshape(NUM_WORLDS, model.num_pairs, 6) != 0).any(axis=2).mean() > 0.02


AT_REST = """
    kinematics(world, model, lane);
    FOR_LANES(body, num_bodies) world.body_velocity[body] = zero_motion();
    barrier();
    pair_contacts(world, model, lane);
    for (int k = 0; k < 3; ++k) out_force(k, world.pair_touches[0] ? numbers(&world.pair_force[0].linear)[k] : zero());
"""


@pytest.mark.parametrize("kind", [kind for kind in PAIRS if kind != "box, box"])
def test_depth_and_normal_are_mujocos(rng: np.random.Generator, place: str, kind: str) -> None:
    """At rest the force is k d. Capsules touch a little off their closest points: up to 20 um here."""
    model = two_bodies(*PAIRS[kind], springs=('user="2e4 0 0"', 'user="2e4 0 0"'))
    joint_q = overlapping(model, 400, rng)
    force = run_stages(model, AT_REST, {"joint_q": joint_q}, {"force": 3}, place)["force"]
    data, ends = mujoco.MjData(model.source), np.zeros(6)
    distance, normal = np.zeros(400), np.zeros((400, 3))
    for world, q in enumerate(joint_q):
        data.qpos[:] = q
        mujoco.mj_kinematics(model.source, data)
        distance[world] = mujoco.mj_geomDistance(model.source, data, 0, 1, 1.0, ends)
        normal[world] = (ends[:3] - ends[3:]) * np.sign(distance[world])
    assert (force[distance > 1e-4] == 0).all()
    depth = np.linalg.norm(force, axis=1) / 1e4
    # The axis of a capsule is outside of the box: inside, MuJoCo has another law.
    touches = (distance < -1e-3) & (depth < 0.05)
    assert touches.sum() > 40
    exact = "capsule" not in kind
    assert_allclose(depth[touches], -distance[touches], atol=1e-9 if exact else 2e-5)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-30
    along = (force * normal).sum(axis=1) / np.linalg.norm(force, axis=1).clip(1e-30)
    sign = np.sign(along[touches][0])
    assert_allclose(sign * along[touches], 1, atol=1e-9 if exact else 2e-3)


@pytest.mark.parametrize("angle", [0.0, 1e-4, 0.03])
def test_parallel_capsules(rng: np.random.Generator, place: str, angle: float) -> None:
    """Side by side in any attitude, shifted along."""
    aligned = 'user="2e4 1e3 500"'
    model = two_bodies(CAPSULE, CAPSULE, springs=(aligned, aligned))
    joint_q = parallel(model, 2 * NUM_WORLDS, rng, angle)
    found = check_power(model, joint_q, rng, place)
    assert (found["force"] != 0).any(axis=1).all()
