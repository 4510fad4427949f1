"""Contact of two shapes alone: touches against closed forms and MuJoCo's distances, adjoints against differences."""

from __future__ import annotations

import numpy as np
import pytest
from adjoints import LOAD_PARAMETERS, MOVE_BODIES, NUM_WORLDS, check_adjoint, lively_parameters
from numpy.testing import assert_allclose
from probe import PLACES
from shape_pairs import FIXED, PAIRS, one_body, overlapping, two_bodies

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
    subtract_pair_bars(adjoint, model, lane);
    FOR_LANES(pair, num_pairs) write(out_same, pair, world.pair_force[pair]);
    barrier();
    pair_contacts(world, model, lane);
    subtract_pair_forces(world, model, lane);
    Real sum = zero();
    for (int body = 0; body < num_bodies; ++body) sum -= dot(adjoint.body_lambda[body], world.body_force[body]);
    out_value(0, sum);
    FOR_LANES(pair, num_pairs) write(out_force, pair, world.pair_force[pair]);
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
    assert_allclose(found["same"], found["force"], rtol=1e-12)
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
