"""The muscles' pulls alone: central differences for adjoints."""

from __future__ import annotations

import numpy as np
from adjoints import MOVE_BODIES, NUM_WORLDS, check_adjoint
from manifold import lively_states

from trot.sim.model import Model


def test_muscles_adjoint(every_joint: Model, rng: np.random.Generator) -> None:
    """By pose of each body and by activation, of the power of the pulls when bodies move with w."""
    model = every_joint
    width = 6 * model.num_bodies
    code = f"""
        kinematics(world, model, lane);
        {MOVE_BODIES}
        for (int muscle = 0; muscle < num_muscles; ++muscle)
            world.control[model.muscle_actuator[muscle]] = in_activation(muscle);
        for (int body = 0; body < num_bodies; ++body) adjoint.body_lambda[body] = motion_from(in_w, body);
        muscles_adjoint(world, adjoint, model, lane);
        muscles(world, model, lane);
        Real sum = zero();
        for (int body = 0; body < num_bodies; ++body) adjoint.pose_bar[body] = zero_force();
        for (int segment = 0; segment < num_segments; ++segment) {{
            const int a = model.segment_body_a[segment], b = model.segment_body_b[segment];
            sum += dot(lambda_of(adjoint, a), world.segment_force[segment]);
            sum -= dot(lambda_of(adjoint, b), world.segment_force[segment]);
            if (a >= 0) adjoint.pose_bar[a] += adjoint.segment_pose_bar[2 * segment];
            if (b >= 0) adjoint.pose_bar[b] += adjoint.segment_pose_bar[2 * segment + 1];
        }}
        out_value(0, sum);
        for (int body = 0; body < num_bodies; ++body) write(out_pose_bar, body, adjoint.pose_bar[body]);
        for (int muscle = 0; muscle < num_muscles; ++muscle) out_activation_bar(muscle, adjoint.activation_bar[muscle]);
    """
    inputs = {
        "joint_q": lively_states(model, NUM_WORLDS, rng)[0],
        "w": rng.normal(size=(NUM_WORLDS, width)),
        "pose": np.zeros((NUM_WORLDS, width)),
        "activation": rng.uniform(0.1, 1, (NUM_WORLDS, model.num_muscles)),
    }
    check_adjoint(model, code, inputs, {"pose": 1e-5, "activation": 1e-3})
