"""Checks adjoints of the kernels' stages against central differences, in float64; inputs and code for such probes."""

from __future__ import annotations

from functools import partial

import numpy as np
from manifold import central_difference, integrate, lively_states
from probe import run_stages

from trot.sim.model import Model
from trot.sim.parameters import columns, own_parameters

NUM_WORLDS = 20  # whole blocks of 8 or 16, and an incomplete one

# Readers and writers of vectors, in front of every probe that check_adjoint runs.
VECTORS = """
    auto vec_from = [&](auto read, int first) { return vec3(read(first), read(first + 1), read(first + 2)); };
    auto motion_from = [&](auto read, int k) { return motion(vec_from(read, 6 * k), vec_from(read, 6 * k + 3)); };
    auto write = [&](auto out, int k, auto vector) {
        constexpr int width = sizeof(vector) / sizeof(Real);
        for (int i = 0; i < width; ++i) out(width * k + i, numbers(&vector)[i]);
    };
    FOR_LANES(k, parameter_slots) adjoint.parameter_bar[k] = zero();
    FOR_LANES(k, num_segments) adjoint.tension_bar[k] = zero();
    FOR_LANES(k, num_servos) adjoint.servo_control_bar[k] = zero();
    FOR_LANES(dof, num_dofs)
        adjoint.joint_q_bar[dof] = adjoint.joint_qd_bar[dof] = adjoint.joint_force_bar[dof] = zero();
    barrier();
"""

# Carries every body by a small Motion, to first order: central differences do not see the second.
MOVE_BODIES = """
    FOR_LANES(body, num_bodies) {
        const Motion move = motion_from(in_pose, body);
        Mat3& rot = world.body_rotation[body];
        const Vec3 x = cross(move.angular, column(rot, 0)), y = cross(move.angular, column(rot, 1)),
                   z = cross(move.angular, column(rot, 2));
        for (int i = 0; i < 3; ++i) rot.row[i] += vec3(numbers(&x)[i], numbers(&y)[i], numbers(&z)[i]);
        world.body_position[body] += velocity_at(move, world.body_position[body]);
        place_inertia(world, model, body);
    }
    barrier();
"""

# Reads the constants of each world, as lively_parameters draws them.
LOAD_PARAMETERS = "FOR_LANES(k, num_parameters) world.parameter[k] = in_parameter(k); barrier();"


def check_adjoint(
    model: Model,
    code: str,
    inputs: dict[str, np.ndarray],
    steps: dict[str, float],
    outputs: dict[str, int] | None = None,
    *,
    place: str,
    per_world_parameters: bool = False,
    excluded_share: float = 0.0,
) -> dict[str, np.ndarray]:
    """Compare NAME_bar with central differences of `value`, to 1e-6 of a world's largest, for each NAME in steps.

    steps are the steps of the differences. joint_q is moved along its manifold. A derivative whose difference reaches
    over a kink is left out, and the share of those must stay within excluded_share. Returns all that the code wrote.
    """
    width = {name: model.num_dofs if name == "joint_q" else inputs[name].shape[1] for name in steps}
    widths = {"value": 1, **{f"{name}_bar": width[name] for name in steps}, **(outputs or {})}

    def run(changed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = max(len(value) for value in changed.values())
        repeated = {name: np.tile(value, (rows // len(value), 1)) for name, value in {**inputs, **changed}.items()}
        return run_stages(model, VECTORS + code, repeated, widths, place, per_world_parameters=per_world_parameters)

    found = run(inputs)
    for name, step in steps.items():
        move = partial(integrate, model) if name == "joint_q" else np.add
        expected, doubt = central_difference(
            lambda x, name=name: run({name: x})["value"][:, 0],
            inputs[name],
            step,
            move=move,
            directions=np.broadcast_to(np.eye(width[name])[:, None], (width[name], len(inputs[name]), width[name])),
        )
        assert np.isfinite(expected).all()
        allowed = 1e-6 * abs(expected).max(axis=1, keepdims=True) + 1e-12
        clear = doubt <= allowed
        assert 1 - clear.mean() <= excluded_share, f"{1 - clear.mean():.1%} of the differences by {name} meet a kink"
        error = abs(found[f"{name}_bar"] - expected)
        assert (error <= allowed)[clear].all(), f"{name}_bar is wrong by {(error / allowed)[clear].max() * 1e-6:.1e}"
    return found


def lively_inputs(model: Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    control = rng.uniform(model.control_lower, model.control_upper, (NUM_WORLDS, model.num_controls))
    return {"joint_q": joint_q, "joint_qd": joint_qd, "control": control}


def lively_parameters(model: Model, rng: np.random.Generator) -> np.ndarray:
    """As kernels/parameters.h reads them: packed, of masses the factors."""
    own = np.zeros(max(where.stop for where in columns(model).values()))
    for name, where in columns(model).items():
        own[where] = 1 if name == "body_mass" else own_parameters(model)[name]
    return own * rng.uniform(0.8, 1.2, (NUM_WORLDS, len(own)))
