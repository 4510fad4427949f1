"""The muscles' pulls alone: central differences for adjoints."""

from __future__ import annotations

import numpy as np
import pytest
from adjoints import MOVE_BODIES, NUM_WORLDS, check_adjoint
from manifold import lively_states
from probe import PLACES

from trot.sim.model import Model

pytestmark = pytest.mark.parametrize("place", PLACES)


def test_muscles_adjoint(every_joint: Model, rng: np.random.Generator, place: str) -> None:
    """By pose of each body and by activation, of the power of the pulls when bodies move with w."""
    model = every_joint
    width = 6 * model.num_bodies
    code = f"""
        kinematics(world, model, lane);
        {MOVE_BODIES}
        FOR_LANES(k, num_controls)
            if (model.actuator_muscle[k] >= 0) world.control[k] = in_activation(model.actuator_muscle[k]);
        FOR_LANES(body, num_bodies) {{
            adjoint.body_lambda[body] = motion_from(in_w, body);
            adjoint.pose_bar[body] = zero_force();
        }}
        barrier();
        muscles_adjoint(world, adjoint, model, lane);
        muscles(world, model, lane);
        if (lane == 0) {{
            Real sum = zero();
            for (int bundle = 0; bundle < num_bundles; ++bundle) {{
                const int a = model.bundle_body_a[bundle], b = model.bundle_body_b[bundle];
                sum += dot(lambda_of(adjoint, a), world.bundle_force[bundle]);
                sum -= dot(lambda_of(adjoint, b), world.bundle_force[bundle]);
                if (a >= 0) adjoint.pose_bar[a] += adjoint.bundle_pose_bar[2 * bundle];
                if (b >= 0) adjoint.pose_bar[b] += adjoint.bundle_pose_bar[2 * bundle + 1];
            }}
            out_value(0, sum);
        }}
        barrier();
        FOR_LANES(body, num_bodies) write(out_pose_bar, body, adjoint.pose_bar[body]);
        FOR_LANES(muscle, num_muscles) out_activation_bar(muscle, activation_bar(adjoint, model, muscle));
    """
    inputs = {
        "joint_q": lively_states(model, NUM_WORLDS, rng)[0],
        "w": rng.normal(size=(NUM_WORLDS, width)),
        "pose": np.zeros((NUM_WORLDS, width)),
        "activation": rng.uniform(0.1, 1, (NUM_WORLDS, model.num_muscles)),
    }
    check_adjoint(model, code, inputs, {"pose": 1e-5, "activation": 1e-3}, place=place)
