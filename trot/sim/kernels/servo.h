// Servos: actuators whose force depends on where they are and how fast they go,
//   force = clamp(gain u + bias, lower, upper),   gain = g0 + g1 length + g2 rate,   bias = b0 + b1 length + b2 rate
// u is the control, or an activation that follows it. length and rate are sums of gear times joint_q and joint_qd over the dofs that the servo drives, and
// each of those feels gear times the force. The servo works its force out once; dofs gather what drives them.
#pragma once
#include "world.h"

struct ServoForce { Real control, length, rate, gain, force; Mask held; };

INLINE int servo_act(const Model& model, int servo) { return num_servo_acts > 0 ? model.servo_act[servo] : -1; }

INLINE ServoForce servo_force(const World& world, const Model& model, int servo) {
    const Scalar *g = model.servo_gain + 3 * servo, *b = model.servo_bias + 3 * servo;
    ServoForce s;
    const int act = servo_act(model, servo);
    s.control = act < 0 ? world.control[model.servo_actuator[servo]] : world.act[act];
    s.length = zero();
    s.rate = zero();
    for (int k = model.servo_drive_start[servo]; k < model.servo_drive_start[servo + 1]; ++k) {
        if (model.drive_q[k] < 0) continue;  // part of a quaternion or of a free joint: no law depends on it
        s.length += world.joint_q[model.drive_q[k]] * model.drive_gear[k];
        s.rate += world.joint_qd[model.drive_dof[k]] * model.drive_gear[k];
    }
    s.gain = s.length * g[1] + s.rate * g[2] + g[0];
    const Real wanted = s.gain * s.control + s.length * b[1] + s.rate * b[2] + b[0];
    const Scalar lower = model.servo_lower[servo], upper = model.servo_upper[servo];
    s.held = (wanted < real(lower)) | (wanted > real(upper));
    s.force = within(wanted, lower, upper);
    return s;
}

STAGE void servo_forces(World& world, const Model& model, int lane) {
    FOR_LANES(servo, num_servos) {
        const Real force = servo_force(world, model, servo).force;
        for (int k = model.servo_drive_start[servo]; k < model.servo_drive_start[servo + 1]; ++k)
            world.drive_force[k] = force * model.drive_gear[k];
    }
    barrier();
}

// lambda, per dof, is the derivative by the force of its actuators. Leaves in drive_q_bar and drive_qd_bar what each
// drive passes back to its dof.
STAGE void servo_forces_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane, const Real* lambda) {
    FOR_LANES(servo, num_servos) {
        const Scalar *g = model.servo_gain + 3 * servo, *b = model.servo_bias + 3 * servo;
        const int first = model.servo_drive_start[servo], end = model.servo_drive_start[servo + 1];
        const ServoForce s = servo_force(world, model, servo);
        Real force_bar = zero();
        for (int k = first; k < end; ++k) force_bar += lambda[model.drive_dof[k]] * model.drive_gear[k];
        force_bar = select(s.held, zero(), force_bar);
        const int act = servo_act(model, servo);
        if (act < 0) adjoint.servo_control_bar[servo] += force_bar * s.gain;
        else adjoint.act_bar[act] += force_bar * s.gain;
        const Real length_bar = force_bar * (s.control * g[1] + b[1]);
        const Real rate_bar = force_bar * (s.control * g[2] + b[2]);
        for (int k = first; k < end; ++k) {
            adjoint.drive_q_bar[k] = length_bar * model.drive_gear[k];
            adjoint.drive_qd_bar[k] = rate_bar * model.drive_gear[k];
        }
    }
    barrier();
}
