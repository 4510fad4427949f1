"""Every law and stage of the kernels alone, in float64: closed forms for values, central differences for adjoints."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from manifold import central_difference, integrate, lively_states, point_heights, quat_exp, quat_product, to_tangent
from numpy.testing import assert_allclose
from probe import run_stages

from trot.sim.load import load_model
from trot.sim.model import JointType, Model

NUM_WORLDS = 20  # one whole block of 16 and an incomplete one

# Readers and writers of vectors, in front of every probe below.
VECTORS = """
    auto vec_from = [&](auto read, int first) { return vec3(read(first), read(first + 1), read(first + 2)); };
    auto motion_from = [&](auto read, int k) { return motion(vec_from(read, 6 * k), vec_from(read, 6 * k + 3)); };
    auto write = [&](auto out, int k, auto vector) {
        constexpr int width = sizeof(vector) / sizeof(Real);
        for (int i = 0; i < width; ++i) out(width * k + i, numbers(&vector)[i]);
    };
    for (int k = 0; k < parameter_slots; ++k) adjoint.parameter_bar[k] = zero();
    for (int k = 0; k < num_muscles; ++k) adjoint.activation_bar[k] = zero();
    for (int dof = 0; dof < num_dofs; ++dof)
        adjoint.joint_q_bar[dof] = adjoint.joint_qd_bar[dof] = adjoint.joint_force_bar[dof] = zero();
"""

# Carries every body by a small Motion, to first order: central differences do not see the second.
MOVE_BODIES = """
    for (int body = 0; body < num_bodies; ++body) {
        const Motion move = motion_from(in_pose, body);
        Mat3& rot = world.body_rotation[body];
        const Vec3 x = cross(move.angular, column(rot, 0)), y = cross(move.angular, column(rot, 1)),
                   z = cross(move.angular, column(rot, 2));
        for (int i = 0; i < 3; ++i) rot.row[i] += vec3(numbers(&x)[i], numbers(&y)[i], numbers(&z)[i]);
        world.body_position[body] += velocity_at(move, world.body_position[body]);
        place_inertia(world, model, body);
    }
"""


@pytest.fixture(scope="module")
def every_joint() -> Model:
    return load_model(Path(__file__).parent / "robots" / "every_joint.xml")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def check_adjoint(
    model: Model,
    code: str,
    inputs: dict[str, np.ndarray],
    steps: dict[str, float],
    outputs: dict[str, int] | None = None,
    *,
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
        return run_stages(model, VECTORS + code, repeated, widths, per_world_parameters=per_world_parameters)

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


# Laws of one contact, one joint, one rotation.


def contacts(rng: np.random.Generator, kind: str) -> dict[str, np.ndarray]:
    """Points below the ground that all stick, slide, or leave so fast that the normal force is cut to zero."""
    inputs = {
        "depth": rng.uniform(1e-3, 0.05, (NUM_WORLDS, 1)),
        "stiffness": rng.uniform(5e3, 3e4, (NUM_WORLDS, 1)),
        "damping": rng.uniform(2e2, 3e3, (NUM_WORLDS, 1)),
        "friction_stiffness": rng.uniform(3e2, 2e3, (NUM_WORLDS, 1)),
        "friction": rng.uniform(0.2, 1.2, (NUM_WORLDS, 1)),
        "f_bar": rng.normal(size=(NUM_WORLDS, 3)),
    }
    leaving = inputs["stiffness"] / inputs["damping"]  # the separation speed at which the normal force vanishes
    rise = leaving * (
        rng.uniform(1.1, 3, (NUM_WORLDS, 1)) if kind == "leaves" else rng.uniform(-2, 0.9, (NUM_WORLDS, 1))
    )
    normal = inputs["depth"] * (inputs["stiffness"] - inputs["damping"] * rise)
    slipping = inputs["friction"] * normal / inputs["friction_stiffness"]  # the speed at which it starts to slide
    part = {"sticks": rng.uniform(0, 0.9, (NUM_WORLDS, 1)), "slides": rng.uniform(1.1, 9, (NUM_WORLDS, 1)), "leaves": 1}
    heading = rng.uniform(-np.pi, np.pi, (NUM_WORLDS, 1))
    along = abs(slipping) * part[kind] * np.concatenate([np.cos(heading), np.sin(heading)], axis=1)
    return {**inputs, "u": np.concatenate([along, rise], axis=1)}


CONTACT = """
    ContactParameters p;
    p.stiffness = in_stiffness(0); p.damping = in_damping(0);
    p.friction_stiffness = in_friction_stiffness(0); p.friction = in_friction(0);
    const Vec3 u = vec_from(in_u, 0), f_bar = vec_from(in_f_bar, 0);
    const Vec3 force = contact_force(p, in_depth(0), u);
    const ContactAdjoint bar = contact_force_adjoint(p, in_depth(0), u, f_bar);
    write(out_force, 0, force);
    out_value(0, dot(force, f_bar));
    out_depth_bar(0, bar.depth);
    write(out_u_bar, 0, bar.u);
    out_stiffness_bar(0, bar.parameters.stiffness);
    out_damping_bar(0, bar.parameters.damping);
    out_friction_stiffness_bar(0, bar.parameters.friction_stiffness);
    out_friction_bar(0, bar.parameters.friction);
"""


@pytest.mark.parametrize("kind", ["sticks", "slides", "leaves"])
def test_contact_law_and_its_adjoint(every_joint: Model, rng: np.random.Generator, kind: str) -> None:
    inputs = contacts(rng, kind)
    steps = {"depth": 1e-6, "u": 1e-5, "stiffness": 0.1, "damping": 0.01, "friction_stiffness": 0.01, "friction": 1e-5}
    force = check_adjoint(every_joint, CONTACT, inputs, steps, {"force": 3})["force"]

    # N = depth (stiffness - damping u_n); sticking T = -friction_stiffness u_t; sliding T = -mu N u_t / |u_t|.
    along = inputs["u"][:, :2]
    normal = inputs["depth"] * (inputs["stiffness"] - inputs["damping"] * inputs["u"][:, 2:])
    expected = {
        "sticks": np.concatenate([-inputs["friction_stiffness"] * along, normal], axis=1),
        "slides": np.concatenate(
            [-inputs["friction"] * normal * along / np.linalg.norm(along, axis=1, keepdims=True), normal], axis=1
        ),
        "leaves": np.zeros((NUM_WORLDS, 3)),
    }
    assert_allclose(force, expected[kind], rtol=1e-12)


def test_contact_law_of_a_point_at_rest(every_joint: Model, rng: np.random.Generator) -> None:
    """Sticking is smooth at rest: central differences hold there too, and nothing divides by zero."""
    inputs = contacts(rng, "sticks")
    inputs["u"] = np.zeros((NUM_WORLDS, 3))
    check_adjoint(every_joint, CONTACT, inputs, {"depth": 1e-6, "u": 1e-7, "friction_stiffness": 0.01}, {
        "force": 3, "stiffness_bar": 1, "damping_bar": 1, "friction_bar": 1,
    })  # fmt: skip


def test_spring_and_limit_of_a_hinge_or_slide(every_joint: Model, rng: np.random.Generator) -> None:
    model = every_joint
    code = """
        Real sum = zero();
        for (int dof = 0; dof < num_dofs; ++dof) {
            const bool simple = model.dof_is_simple[dof];
            const Real force = simple ? spring_and_limit_force(model, dof, in_q(dof)) : zero();
            out_force(dof, force);
            out_q_bar(dof, simple ? spring_and_limit_adjoint(model, dof, in_q(dof), in_lambda(dof)) : zero());
            sum += in_lambda(dof) * force;
        }
        out_value(0, sum);
    """
    joint_q, lam = lively_states(model, NUM_WORLDS, rng)
    force = check_adjoint(model, code, {"q": coordinate_of_dofs(model, joint_q), "lambda": lam}, {"q": 1e-6}, {
        "force": model.num_dofs,
    })["force"]  # fmt: skip

    # stiffness (rest - q) + limit_stiffness (nearest allowed q - q)
    for joint in np.flatnonzero(model.joint_type >= JointType.SLIDE):
        q = joint_q[:, model.joint_q_start[joint]]
        allowed = np.clip(q, model.joint_lower[joint], model.joint_upper[joint])
        expected = model.joint_stiffness[joint] * (model.q_spring[model.joint_q_start[joint]] - q)
        expected += model.joint_limit_stiffness[joint] * (allowed - q)
        assert_allclose(force[:, model.joint_dof_start[joint]], expected, rtol=1e-12)
        if np.isfinite(model.joint_upper[joint]):
            assert 0 < (allowed != q).sum() < NUM_WORLDS


def coordinate_of_dofs(model: Model, joint_q: np.ndarray) -> np.ndarray:
    """The coordinate of every hinge and slide in its dof's place, zeros elsewhere."""
    simple = model.joint_type >= JointType.SLIDE
    result = np.zeros((len(joint_q), model.num_dofs))
    result[:, model.joint_dof_start[simple]] = joint_q[:, model.joint_q_start[simple]]
    return result


BALL = """
    const int ball = BALL_INDEX;
    Real quat[4];
    for (int k = 0; k < 4; ++k) quat[k] = in_quat(k);
    store_quat(quat, load_quat(quat) * turn_by(vec_from(in_turn, 0)));
    const Vec3 lambda = vec_from(in_lambda, 0), torque = ball_force(model, quat, ball);
    write(out_torque, 0, torque);
    out_value(0, dot(lambda, torque));
    write(out_turn_bar, 0, ball_force_adjoint(model, quat, ball, lambda));
"""
TURN_BY = """
    auto turn_by = [&](Vec3 turn) {  // a small turn, to first order and normalised
        Quat q;
        q.w = one();
        q.v = turn * real(Scalar(0.5));
        return normalised(q);
    };
"""


@pytest.mark.parametrize("sign", [1, -1], ids=["q", "minus_q"])
@pytest.mark.parametrize("angle", [0.2, 0.55, 0.65, 2.0, 3.0])
def test_spring_and_limit_of_a_ball_joint(
    every_joint: Model, rng: np.random.Generator, angle: float, sign: int
) -> None:
    """With chord(angle) = 2 sin(angle / 2): -(stiffness chord + limit_stiffness max(0, chord - chord(0.6))) axis."""
    model, where = resting_askew(every_joint)
    axis = rng.normal(size=(NUM_WORLDS, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    quat = sign * quat_product(model.q_spring[where : where + 4], quat_exp(angle * axis))
    inputs = {"quat": quat, "turn": np.zeros((NUM_WORLDS, 3)), "lambda": rng.normal(size=(NUM_WORLDS, 3))}
    code = TURN_BY + BALL.replace("BALL_INDEX", "0")
    torque = check_adjoint(model, code, inputs, {"turn": 1e-6}, {"torque": 3})["torque"]

    neck = model.joint_name.index("neck")
    chord, largest = 2 * np.sin(angle / 2), 2 * np.sin(model.joint_upper[neck] / 2)
    strength = model.joint_stiffness[neck] * chord + model.joint_limit_stiffness[neck] * max(0, chord - largest)
    assert_allclose(torque, -strength * axis, rtol=1e-11, atol=1e-12 * strength)


def test_spring_of_a_ball_joint_at_rest(every_joint: Model, rng: np.random.Generator) -> None:
    """At rest there is no torque, and its derivative is that of a spring on the rotation vector: -stiffness lambda."""
    model, where = resting_askew(every_joint)
    quat = np.tile(model.q_spring[where : where + 4], (NUM_WORLDS, 1))
    inputs = {"quat": quat, "turn": np.zeros((NUM_WORLDS, 3)), "lambda": rng.normal(size=(NUM_WORLDS, 3))}
    found = check_adjoint(model, TURN_BY + BALL.replace("BALL_INDEX", "0"), inputs, {"turn": 1e-6}, {"torque": 3})
    assert_allclose(found["torque"], 0, atol=1e-12)
    assert_allclose(found["turn_bar"], -model.joint_stiffness[model.joint_name.index("neck")] * inputs["lambda"])


def resting_askew(model: Model) -> tuple[Model, int]:
    """The robot with a neck whose spring rests in no special place, and where its quaternion stands."""
    where = int(model.joint_q_start[model.joint_name.index("neck")])
    rest = model.q_spring.copy()
    rest[where : where + 4] = quat_exp(np.array([0.3, -0.8, 0.5]))
    return replace(model, q_spring=rest), where


TURN = """
    Vec3 before_bar, turn_bar;
    turn_adjoint(vec_from(in_turn, 0), vec_from(in_after_bar, 0), before_bar, turn_bar);
    write(out_before_bar, 0, before_bar);
    write(out_turn_bar, 0, turn_bar);
"""


@pytest.mark.parametrize("angle", [0.0, 1e-9, 1e-4, 0.1, 0.99, 1.01, 2.5])
def test_adjoint_of_a_turn(every_joint: Model, rng: np.random.Generator, angle: float) -> None:
    """Oracle: differences of the product q exp(before) exp(turn) of quaternions, seen as a small rotation after it."""
    axis, after_bar = rng.normal(size=(2, NUM_WORLDS, 3))
    turn = angle * axis / np.linalg.norm(axis, axis=1, keepdims=True)

    def small_rotation(before: np.ndarray, turn_after: np.ndarray) -> np.ndarray:
        copies = len(turn_after) // NUM_WORLDS
        back = quat_exp(-np.tile(turn, (copies, 1)))
        after = quat_product(back, quat_product(quat_exp(before), quat_exp(turn_after)))
        return (2 * after[:, 1:] * np.tile(after_bar, (copies, 1))).sum(axis=1)

    def tiled(x: np.ndarray) -> np.ndarray:
        return np.tile(turn, (len(x) // NUM_WORLDS, 1))

    found = run_stages(
        every_joint, VECTORS + TURN, {"turn": turn, "after_bar": after_bar}, {"before_bar": 3, "turn_bar": 3}
    )
    by_before = central_difference(lambda x: small_rotation(x, tiled(x)), np.zeros((NUM_WORLDS, 3)), 1e-4).value
    by_turn = central_difference(lambda x: small_rotation(np.zeros_like(x), x), turn, 1e-4).value
    assert_allclose(found["before_bar"], by_before, atol=1e-10)
    assert_allclose(found["turn_bar"], by_turn, atol=1e-10)


@pytest.mark.parametrize(
    ("dtype", "largest", "accuracy"),
    [
        # A few units in the last place of pi, since the angle is brought there first and its half is doubled back.
        (torch.float64, 1.0, 4e-16),
        (torch.float64, 30.0, 2e-15),
        (torch.float32, 1.0, 2e-7),
        (torch.float32, 1e4, 6e-7),
        # Many turns: a float64 loses as much as the angle's own last place, a float32 a little after 1600 turns.
        (torch.float64, 1e4, 1e-12),
        (torch.float32, 1e5, 2e-6),
    ],
    ids=str,
)
def test_sine_and_cosine(every_joint: Model, dtype: torch.dtype, largest: float, accuracy: float) -> None:
    """Oracle: numpy at the very angle that the kernel gets."""
    angle = torch.linspace(-largest, largest, 2001, dtype=dtype).double().numpy()[:, None]
    code = "Real s, c; sine_cosine(in_angle(0), s, c); out_sine(0, s); out_cosine(0, c);"
    found = run_stages(every_joint, code, {"angle": angle}, {"sine": 1, "cosine": 1}, dtype)
    assert_allclose(found["sine"], np.sin(angle), atol=accuracy, rtol=0)
    assert_allclose(found["cosine"], np.cos(angle), atol=accuracy, rtol=0)


def test_gradient_of_a_quaternion_in_four_numbers_and_in_three(every_joint: Model, rng: np.random.Generator) -> None:
    """f(q) = w . q / |q|: through the tangent and back comes the gradient by q's four numbers, |q| not 1."""
    code = """
        Real quat[4];
        for (int k = 0; k < 4; ++k) quat[k] = in_quat(k);
        const Quat q = load_quat(quat), unit = normalised(q);
        Quat w;
        w.w = in_w(0);
        w.v = vec_from(in_w, 1);
        const Vec3 tangent = to_tangent(unit, w);
        const Quat back = from_tangent(unit, tangent, norm(q));
        out_value(0, w.w * unit.w + dot(w.v, unit.v));
        write(out_tangent, 0, tangent);
        write(out_quat_bar, 0, back);
        write(out_again, 0, to_tangent(unit, from_tangent(unit, tangent, one())));
    """
    inputs = {"quat": rng.normal(size=(NUM_WORLDS, 4)), "w": rng.normal(size=(NUM_WORLDS, 4))}
    found = check_adjoint(every_joint, code, inputs, {"quat": 1e-5}, {"tangent": 3, "again": 3})
    assert_allclose((found["quat_bar"] * inputs["quat"]).sum(axis=1), 0, atol=1e-12)
    assert_allclose(found["again"], found["tangent"], atol=1e-14)
    unit = inputs["quat"] / np.linalg.norm(inputs["quat"], axis=1, keepdims=True)
    by_turn = central_difference(
        lambda q: (q * np.tile(inputs["w"], (len(q) // NUM_WORLDS, 1))).sum(axis=1),
        unit,
        1e-4,
        move=lambda q, turn: quat_product(q, quat_exp(turn)),
        directions=np.broadcast_to(np.eye(3)[:, None], (3, NUM_WORLDS, 3)),
    )
    assert_allclose(found["tangent"], by_turn.value, atol=1e-10)


# Stages of one substep.


def lively_inputs(model: Model, rng: np.random.Generator) -> dict[str, np.ndarray]:
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    control = rng.uniform(model.control_lower, model.control_upper, (NUM_WORLDS, model.num_controls))
    return {"joint_q": joint_q, "joint_qd": joint_qd, "control": control}


def lively_parameters(model: Model, rng: np.random.Generator) -> np.ndarray:
    """As kernels/parameters.h reads them: mass factors, then stiffness, damping, friction stiffness and friction."""
    shapes = (model.shape_stiffness, model.shape_damping, model.shape_friction_stiffness, model.shape_friction)
    own = np.concatenate([np.ones(model.num_bodies), *shapes])
    return own * rng.uniform(0.8, 1.2, (NUM_WORLDS, len(own)))


LOAD_PARAMETERS = "for (int k = 0; k < num_parameters; ++k) world.parameter[k] = in_parameter(k);"


def test_inertial_adjoint(every_joint: Model, rng: np.random.Generator) -> None:
    """By acceleration, velocity and pose of each body, of the sum of dot(w, I a + v x* I v)."""
    width = 6 * every_joint.num_bodies
    code = f"""
        kinematics(world, model, lane);
        {MOVE_BODIES}
        Real sum = zero();
        for (int body = 0; body < num_bodies; ++body) {{
            const Motion w = motion_from(in_w, body);
            const Inertia& inertia = world.body_inertia[body];
            const Motion v = world.body_velocity[body] = motion_from(in_velocity, body);
            const Motion a = world.body_acceleration[body] = motion_from(in_acceleration, body);
            Force force, acceleration_bar, velocity_bar, pose_bar;
            inertial_adjoint(world, w, body, force, acceleration_bar, velocity_bar, pose_bar);
            sum += dot(w, inertia * a + cross(v, inertia * v));
            write(out_acceleration_bar, body, acceleration_bar);
            write(out_velocity_bar, body, velocity_bar);
            write(out_pose_bar, body, pose_bar);
            out_difference(body, dot(w, force - inertia * a - cross(v, inertia * v)));
        }}
        out_value(0, sum);
    """
    inputs = {name: rng.normal(size=(NUM_WORLDS, width)) for name in ("w", "velocity", "acceleration")}
    inputs |= {"joint_q": lively_states(every_joint, NUM_WORLDS, rng)[0], "pose": np.zeros((NUM_WORLDS, width))}
    steps = {"acceleration": 1e-3, "velocity": 1e-3, "pose": 1e-4}
    found = check_adjoint(every_joint, code, inputs, steps, {"difference": every_joint.num_bodies})
    assert_allclose(found["difference"], 0, atol=1e-12)


def test_ground_force_adjoint(every_joint: Model, rng: np.random.Generator) -> None:
    """By velocity and pose of each body and by the contact's constants, of the sum of dot(w, ground_force)."""
    model = every_joint
    width = 6 * model.num_bodies
    code = f"""
        {LOAD_PARAMETERS}
        kinematics(world, model, lane);
        {MOVE_BODIES}
        Real sum = zero();
        for (int body = 0; body < num_bodies; ++body) {{
            world.body_velocity[body] = motion_from(in_velocity, body);
            adjoint.body_lambda[body] = motion_from(in_w, body);
            Force velocity_bar = zero_force(), pose_bar = zero_force();
            const Force force = ground_force(world, model, body);
            const Force same = ground_force_adjoint(world, adjoint, model, body, velocity_bar, pose_bar);
            sum += dot(adjoint.body_lambda[body], force);
            write(out_velocity_bar, body, velocity_bar);
            write(out_pose_bar, body, pose_bar);
            write(out_force, body, force);
            write(out_same, body, same);
        }}
        out_value(0, sum);
        for (int k = 0; k < num_parameters; ++k) out_parameter_bar(k, adjoint.parameter_bar[k]);
    """
    joint_q, _ = lively_states(model, NUM_WORLDS, rng)
    inputs = {
        "joint_q": joint_q,
        "w": rng.normal(size=(NUM_WORLDS, width)),
        "velocity": rng.normal(size=(NUM_WORLDS, width)) * rng.uniform(size=(NUM_WORLDS, 1)) ** 4,  # some stick
        "pose": np.zeros((NUM_WORLDS, width)),
        "parameter": lively_parameters(model, rng),
    }
    steps = {"velocity": 1e-6, "pose": 1e-8, "parameter": 1e-4}
    widths = {"force": width, "same": width}
    found = check_adjoint(model, code, inputs, steps, widths, per_world_parameters=True, excluded_share=0.01)
    assert_allclose(found["same"], found["force"], rtol=1e-12)
    by_kind = found["parameter_bar"][:, model.num_bodies :].reshape(NUM_WORLDS, 4, model.num_shapes)
    assert (by_kind != 0).any(axis=(0, 2)).all()

    # A body feels the ground where one of its points is below it and the force is not cut to zero.
    below = point_heights(model, joint_q) < 0
    force = found["force"].reshape(NUM_WORLDS, model.num_bodies, 6)
    for body in range(model.num_bodies):
        touches = below[:, model.shape_body[model.point_shape] == body].any(axis=1)
        assert (force[~touches, body] == 0).all()
    assert (force != 0).any() and 0 < below.any(axis=1).sum() < NUM_WORLDS


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


def test_joint_forces_adjoint(every_joint: Model, rng: np.random.Generator) -> None:
    """By joint_q, joint_qd and control, of dot(lambda, joint force): motors, damping, springs and limits together."""
    code = """
        FOR_LANES(k, num_controls) world.control[k] = clamped(model, k, in_control(k));
        kinematics(world, model, lane);
        for (int body = 0; body < num_bodies; ++body) world.body_force[body] = zero_force();
        joint_forces(world, model, lane);
        Real sum = zero();
        for (int dof = 0; dof < num_dofs; ++dof) {
            adjoint.lambda[dof] = in_lambda(dof);
            sum += in_lambda(dof) * world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE];
        }
        out_value(0, sum);
        joint_forces_adjoint(world, adjoint, model, lane);
        for (int dof = 0; dof < num_dofs; ++dof) {
            out_joint_q_bar(dof, adjoint.joint_q_bar[dof]);
            out_joint_qd_bar(dof, adjoint.joint_qd_bar[dof]);
        }
        for (int k = 0; k < num_controls; ++k) out_control_bar(k, control_adjoint(adjoint, model, k, in_control(k)));
    """
    model = every_joint
    inputs = lively_inputs(model, rng)
    inputs["control"] *= 1.3  # some beyond their range, where they have no effect
    inputs["lambda"] = rng.normal(size=(NUM_WORLDS, model.num_dofs))
    check_adjoint(model, code, inputs, {"joint_q": 1e-6, "joint_qd": 1e-3, "control": 1e-4}, excluded_share=0.01)


def test_integrate_adjoint(every_joint: Model, rng: np.random.Generator) -> None:
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
        for (int k = 0; k < num_q; ++k) {{
            out_next_q(k, world.joint_q[k]);
            world.joint_q[k] = in_joint_q(k);
        }}
        for (int dof = 0; dof < num_dofs; ++dof) {{
            world.joint_qd[dof] = in_joint_qd(dof);
            adjoint.joint_q_bar[dof] = in_next_q_bar(dof);
            adjoint.joint_qd_bar[dof] = in_w_qd(dof);
        }}
        integrate_adjoint(world, adjoint, model, lane, dt);
        for (int dof = 0; dof < num_dofs; ++dof) {{
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
    found = check_adjoint(model, code, inputs, steps, {"next_q": model.num_q})
    assert_allclose(found["next_q"], next_q, atol=1e-13)


INVERSE_DYNAMICS = f"""
    {LOAD_PARAMETERS}
    kinematics(world, model, lane);
    velocities(world, model, lane);
    accelerations<true>(world, model, lane);
    for (int dof = 0; dof < num_dofs; ++dof) adjoint.lambda[dof] = in_lambda(dof);
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
    for (int k = 0; k < num_parameters; ++k) out_parameter_bar(k, adjoint.parameter_bar[k]);
    for (int k = 0; k < num_controls; ++k) {{
        const int muscle = model.actuator_muscle[k];
        out_control_bar(k, muscle < 0 ? zero() : adjoint.activation_bar[muscle]);
    }}
"""


def test_sweep_of_inverse_dynamics(every_joint: Model, rng: np.random.Generator) -> None:
    """By joint_q, joint_qd, muscles and constants, of -dot(lambda, ID(q, qd, qdd)), contact and muscles inside ID."""
    model = every_joint
    inputs = lively_inputs(model, rng)
    inputs["joint_qdd"], inputs["lambda"] = rng.normal(0, 10, (2, NUM_WORLDS, model.num_dofs))
    inputs["parameter"] = lively_parameters(model, rng)
    steps = {"joint_q": 1e-7, "joint_qd": 1e-6, "control": 1e-3, "parameter": 1e-4}
    widths = {"joint_force": model.num_dofs}
    check_adjoint(model, INVERSE_DYNAMICS, inputs, steps, widths, per_world_parameters=True, excluded_share=0.01)


def test_inverse_dynamics_agrees_with_the_mass_matrix(every_joint: Model, rng: np.random.Generator) -> None:
    """Oracle: MuJoCo's M qdd + bias, in the air and with slack muscles; ID knows nothing of the armature."""
    model = replace(every_joint, ground_height=None)
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    joint_qdd, lam = rng.normal(size=(2, NUM_WORLDS, model.num_dofs))
    shapes = np.ones((NUM_WORLDS, 4 * model.num_shapes))
    inputs = {
        "joint_q": joint_q, "joint_qd": joint_qd, "joint_qdd": joint_qdd, "lambda": lam,
        "control": np.zeros((NUM_WORLDS, model.num_controls)),
        "parameter": np.concatenate([np.ones((NUM_WORLDS, model.num_bodies)), shapes], axis=1),
    }  # fmt: skip
    dofs, parameters = model.num_dofs, inputs["parameter"].shape[1]
    widths = {
        "joint_force": dofs, "value": 1, "joint_q_bar": dofs, "joint_qd_bar": dofs, "parameter_bar": parameters,
        "control_bar": model.num_controls,
    }  # fmt: skip
    found = run_stages(model, VECTORS + INVERSE_DYNAMICS, inputs, widths, per_world_parameters=True)
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


def test_solving_with_the_mass_matrix(every_joint: Model, rng: np.random.Generator) -> None:
    """Oracle: numpy's solve with MuJoCo's matrix; first while factorising, then with the factor that is there."""
    model = every_joint
    code = """
        kinematics(world, model, lane);
        mass_matrix(world, model, lane);
        Real x[num_dofs];
        for (int dof = 0; dof < num_dofs; ++dof) world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE] = in_b(dof);
        factorise(world, model, lane);
        solve_to_leaves(world, model, lane, x);
        for (int dof = 0; dof < num_dofs; ++dof) out_first(dof, x[dof]);
        for (int dof = 0; dof < num_dofs; ++dof) world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE] = in_c(dof);
        solve_to_root(world, model, lane);
        solve_to_leaves(world, model, lane, x);
        for (int dof = 0; dof < num_dofs; ++dof) out_second(dof, x[dof]);
    """
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    b, c = rng.normal(size=(2, NUM_WORLDS, model.num_dofs))
    widths = {"first": model.num_dofs, "second": model.num_dofs}
    found = run_stages(model, code, {"joint_q": joint_q, "b": b, "c": c}, widths)
    matrix, _ = by_mujoco(model, joint_q, joint_qd)
    for name, right_hand_side in (("first", b), ("second", c)):
        expected = np.linalg.solve(matrix, right_hand_side[..., None])[..., 0]
        assert_allclose(found[name], expected, atol=1e-10 * abs(expected).max())
