// Forces that act in the joints: motors, servos, springs, damping, limits as penalty springs, dry friction and ties.
//   hinge, slide   actuators - stiffness (q - rest) - damping qd + limit_stiffness * (how far beyond a limit, backwards)
//   ball           actuators - stiffness s - damping qd - limit_stiffness * (part of s beyond the largest chord)
// where s = 2 sin(angle / 2) axis is the chord of the rotation from rest, in the body's axes: for small angles the
// rotation vector itself, and without its kink at half a turn. What a robot has none of is not compiled.
#pragma once
#include "mass_matrix.h"
#include "muscle.h"
#include "servo.h"
#include "tie.h"

// The numbers of a dof's drives or strands, added up.
INLINE Real gathered(const Real* numbers, const int* items, const int* starts, int dof) {
    Real sum = zero();
    for (int k = starts[dof]; k < starts[dof + 1]; ++k) sum += numbers[items[k]];
    return sum;
}

INLINE Real motor_force(const World& world, const Model& model, int dof) {
    Real sum = zero();
    for (int k = model.dof_motor_start[dof]; k < model.dof_motor_start[dof + 1]; ++k) {
        const int motor = model.dof_motor[k];
        sum += world.control[model.motor_actuator[motor]] * model.motor_gear[motor];
    }
    return sum;
}

// Motors and servos together, before the range that the joint allows them.
INLINE Real actuator_force(const World& world, const Model& model, int dof) {
    Real sum = motor_force(world, model, dof);
    if (num_servos > 0) sum += gathered(world.drive_force, model.dof_drive, model.dof_drive_start, dof);
    return sum;
}

INLINE Real spring_and_limit_force(const Model& model, int dof, Real q) {
    const Real below = larger(model.dof_lower[dof] - q, zero()), above = larger(q - model.dof_upper[dof], zero());
    return (model.dof_rest[dof] - q) * model.dof_stiffness[dof] + (below - above) * model.dof_limit_stiffness[dof];
}
// How the force changes with q, times lambda.
INLINE Real spring_and_limit_adjoint(const Model& model, int dof, Real q, Real lambda) {
    const Mask beyond = (q < real(model.dof_lower[dof])) | (q > real(model.dof_upper[dof]));
    return -lambda * (model.dof_stiffness[dof] + select(beyond, real(model.dof_limit_stiffness[dof]), zero()));
}

struct BallSpring { Real w; Vec3 v; Real sign; Vec3 chord; Real length; };

INLINE BallSpring ball_spring(const Model& model, const Real* quat, int ball) {
    const Scalar* rest = model.ball_rest + 4 * ball;
    Quat back;
    back.w = real(rest[0]);
    back.v = vec3(real(-rest[1]), real(-rest[2]), real(-rest[3]));
    const Quat turned = back * load_quat(quat);
    BallSpring s;
    s.w = turned.w;
    s.v = turned.v;
    s.sign = select(turned.w < zero(), -one(), one());  // q and -q are one rotation
    s.chord = turned.v * (s.sign * Scalar(2));
    s.length = square_root(dot(s.chord, s.chord) + Scalar(1e-30));
    return s;
}
INLINE Vec3 ball_force(const Model& model, const Real* quat, int ball) {
    const BallSpring s = ball_spring(model, quat, ball);
    const Real beyond = larger(one() - model.ball_largest_chord[ball] / s.length, zero());
    return s.chord * -(model.ball_stiffness[ball] + beyond * model.ball_limit_stiffness[ball]);
}
// Derivative of dot(lambda, ball_force) with respect to turning the body by a small rotation in its own axes.
INLINE Vec3 ball_force_adjoint(const Model& model, const Real* quat, int ball, Vec3 lambda) {
    const BallSpring s = ball_spring(model, quat, ball);
    const Real ratio = model.ball_largest_chord[ball] / s.length;
    const Real beyond = larger(one() - ratio, zero());
    const Real steepens = select(ratio < one(), ratio / (s.length * s.length), zero());
    const Real firmness = model.ball_stiffness[ball] + beyond * model.ball_limit_stiffness[ball];
    const Vec3 chord_bar =
        -(lambda * firmness + s.chord * (dot(s.chord, lambda) * steepens * model.ball_limit_stiffness[ball]));
    return (chord_bar * s.w - cross(s.v, chord_bar)) * s.sign;
}

// A limit's damping comes on top of its spring: what limit_law() makes of both, less the spring alone.
INLINE AxisForce limit_damping(const World& world, const Model& model, int dof) {
    const Scalar lower = model.dof_lower[dof], upper = model.dof_upper[dof], stiffness = model.dof_limit_stiffness[dof];
    const Real q = world.joint_q[model.dof_q[dof]], qd = world.joint_qd[dof];
    const AxisForce both = limit_law(lower, upper, stiffness, model.dof_limit_damping[dof], q, qd);
    const AxisForce spring = limit_law(lower, upper, stiffness, Scalar(0), q, qd);
    AxisForce result;
    result.force = both.force - spring.force;
    result.by_x = both.by_x - spring.by_x;
    result.by_v = both.by_v;
    return result;
}

// Right-hand side of the equation of motion: joint forces minus what the bodies need at joint_qdd = 0.
STAGE void joint_forces(World& world, const Model& model, int lane) {
    if (num_servos > 0) servo_forces(world, model, lane);
    if (num_ties > 0) tie_forces(world, model, lane);
    FOR_LANES(dof, num_dofs) {
        Real actuators = actuator_force(world, model, dof);
        if (num_force_ranges > 0)
            actuators = within(actuators, model.dof_force_lower[dof], model.dof_force_upper[dof]);
        Real joint_force = actuators - world.joint_qd[dof] * model.dof_damping[dof];
        if (model.dof_is_simple[dof])
            joint_force += spring_and_limit_force(model, dof, world.joint_q[model.dof_q[dof]]);
        if (num_damped_limits > 0 && model.dof_is_simple[dof]) joint_force += limit_damping(world, model, dof).force;
        if (num_frictions > 0)
            joint_force +=
                dry_friction(model.dof_friction[dof], model.dof_friction_speed[dof], world.joint_qd[dof]).force;
        if (num_ties > 0) joint_force += gathered(world.strand_force, model.dof_strand, model.dof_strand_start, dof);
        const Real bias = dot(world.joint_axis[dof], world.body_force[model.dof_body[dof]]);
        world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE] = joint_force - bias;
    }
    barrier();
    FOR_LANES(ball, num_ball_springs) {
        const Vec3 moment = ball_force(model, world.joint_q + model.ball_q[ball], ball);
        for (int k = 0; k < 3; ++k)
            world.mass_matrix[(model.ball_dof[ball] + k) * row_stride + RIGHT_HAND_SIDE] += numbers(&moment)[k];
    }
    if (num_ball_springs > 0) barrier();
}

// What the laws that few robots have pass back to one dof.
INLINE void joint_force_extras_adjoint(const World& world, Adjoint& adjoint, const Model& model, int dof) {
    Real q_bar = zero(), qd_bar = zero();
    if (num_servos > 0) {
        q_bar += gathered(adjoint.drive_q_bar, model.dof_drive, model.dof_drive_start, dof);
        qd_bar += gathered(adjoint.drive_qd_bar, model.dof_drive, model.dof_drive_start, dof);
    }
    if (num_ties > 0) {
        q_bar += gathered(adjoint.strand_q_bar, model.dof_strand, model.dof_strand_start, dof);
        qd_bar += gathered(adjoint.strand_qd_bar, model.dof_strand, model.dof_strand_start, dof);
    }
    if (num_damped_limits > 0 && model.dof_is_simple[dof]) {
        const AxisForce limit = limit_damping(world, model, dof);
        q_bar += limit.by_x * adjoint.lambda[dof];
        qd_bar += limit.by_v * adjoint.lambda[dof];
    }
    if (num_frictions > 0) {
        const Real qd = world.joint_qd[dof];
        qd_bar += dry_friction(model.dof_friction[dof], model.dof_friction_speed[dof], qd).by_v * adjoint.lambda[dof];
    }
    adjoint.joint_q_bar[dof] += q_bar;
    adjoint.joint_qd_bar[dof] += qd_bar;
}

// Where the joint's range holds its actuators, nothing passes through to them.
STAGE void actuator_lambdas(World& world, Adjoint& adjoint, const Model& model, int lane) {
    if (num_servos > 0) servo_forces(world, model, lane);
    FOR_LANES(dof, num_dofs) {
        const Real force = actuator_force(world, model, dof);
        const Mask held = (force < real(model.dof_force_lower[dof])) | (force > real(model.dof_force_upper[dof]));
        adjoint.actuator_lambda[dof] = select(held, zero(), adjoint.lambda[dof]);
    }
    barrier();
}

// Adds what the joint forces pass back to joint_q, joint_qd and actuators; lambda is the derivative by a joint force.
STAGE void joint_forces_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane) {
    const Real* const actuator_lambda = num_force_ranges > 0 ? adjoint.actuator_lambda : adjoint.lambda;
    if (num_force_ranges > 0) actuator_lambdas(world, adjoint, model, lane);
    if (num_servos > 0) servo_forces_adjoint(world, adjoint, model, lane, actuator_lambda);
    if (num_ties > 0) tie_forces_adjoint(world, adjoint, model, lane);
    FOR_LANES(dof, num_dofs) {
        const Real lambda = adjoint.lambda[dof];
        adjoint.joint_force_bar[dof] += actuator_lambda[dof];
        adjoint.joint_qd_bar[dof] -= lambda * model.dof_damping[dof];
        if (model.dof_is_simple[dof])
            adjoint.joint_q_bar[dof] += spring_and_limit_adjoint(model, dof, world.joint_q[model.dof_q[dof]], lambda);
        if (num_servos > 0 || num_ties > 0 || num_damped_limits > 0 || num_frictions > 0)
            joint_force_extras_adjoint(world, adjoint, model, dof);
    }
    barrier();
    FOR_LANES(ball, num_ball_springs) {
        const int dof = model.ball_dof[ball];
        const Vec3 lambda = vec3(adjoint.lambda[dof], adjoint.lambda[dof + 1], adjoint.lambda[dof + 2]);
        const Vec3 turn_bar = ball_force_adjoint(model, world.joint_q + model.ball_q[ball], ball, lambda);
        for (int k = 0; k < 3; ++k) adjoint.joint_q_bar[dof + k] += numbers(&turn_bar)[k];
    }
    if (num_ball_springs > 0) barrier();
}

// Controls are held for the whole control step, clamped to their range.
INLINE Real clamped(const Model& model, int actuator, Real control) {
    return within(control, model.control_lower[actuator], model.control_upper[actuator]);
}
INLINE Real control_adjoint(const Adjoint& adjoint, const Model& model, int actuator, Real control) {
    Real sum = zero();
    for (int motor = model.actuator_motor_start[actuator]; motor < model.actuator_motor_start[actuator + 1]; ++motor)
        sum += adjoint.joint_force_bar[model.motor_dof[motor]] * model.motor_gear[motor];
    const int muscle = model.actuator_muscle[actuator];
    if (muscle >= 0) sum += activation_bar(adjoint, model, muscle);
    const int servo = num_servos > 0 ? model.actuator_servo[actuator] : -1;
    if (servo >= 0) {
        const int act = servo_act(model, servo);
        sum += act < 0 ? adjoint.servo_control_bar[servo] : adjoint.act_control_bar[act];
    }
    const Mask held = (control < real(model.control_lower[actuator])) | (control > real(model.control_upper[actuator]));
    return select(held, zero(), sum);
}
