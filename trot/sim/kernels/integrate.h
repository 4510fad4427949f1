// Semi-implicit Euler: the velocity first, then the position with the new velocity; rotations are turned exactly,
// q <- q exp(omega substep_dt / 2), and kept unit.
#pragma once
#include "mass_matrix.h"

STAGE void integrate(World& world, const Model& model, int lane, Scalar substep_dt) {
    FOR_LANES(dof, num_dofs) {
        const Real qd = world.joint_qd[dof] + world.joint_qdd[dof] * substep_dt;
        world.joint_qd[dof] = qd;
        if (model.dof_q[dof] >= 0) world.joint_q[model.dof_q[dof]] += qd * substep_dt;
    }
    barrier();
    FOR_LANES(quat, num_quats) {
        const int dof = model.quat_dof[quat];
        Real* q = world.joint_q + model.quat_q[quat];
        const Vec3 omega = vec3(world.joint_qd[dof], world.joint_qd[dof + 1], world.joint_qd[dof + 2]);
        const Vec3 half = omega * real(substep_dt * Scalar(0.5));
        const Real angle = square_root(dot(half, half) + Scalar(1e-30));
        Quat turn;
        Real sine;
        sine_cosine(angle, sine, turn.w);
        turn.v = half * (sine / angle);
        store_quat(q, normalised(load_quat(q) * turn));
    }
    if (num_quats > 0) barrier();
}

// For a turn by the vector t, in the body's axes: a rotation d before it is R(t)^T d after it, and a change dt of the
// vector is J(t) dt after it, with the right Jacobian J of the rotation group. Their transposes act on d_bar.
INLINE void turn_adjoint(Vec3 t, Vec3 after_bar, Vec3& before_bar, Vec3& t_bar) {
    const Real square = dot(t, t);
    const Real half = square_root(square * Scalar(0.25) + Scalar(1e-30));
    Real sine, cosine;
    sine_cosine(half, sine, cosine);
    const Real sinc = sine / half;                          // of the half angle
    const Real sin_over = sinc * cosine;                    // sin(angle) / angle
    const Real versine_over = sinc * sinc * Scalar(0.5);    // (1 - cos(angle)) / angle^2
    // (angle - sin(angle)) / angle^3: the difference loses its digits for small angles, the series has them.
    const Real direct = (one() - sin_over) / larger(square, real(Scalar(1)));
    Real series = real(Scalar(-1.0 / 1307674368000.0));
    series = series * square + Scalar(1.0 / 6227020800.0);
    series = series * square - Scalar(1.0 / 39916800.0);
    series = series * square + Scalar(1.0 / 362880.0);
    series = series * square - Scalar(1.0 / 5040.0);
    series = series * square + Scalar(1.0 / 120.0);
    series = series * square - Scalar(1.0 / 6.0);
    const Real remainder_over = select(square < real(Scalar(1)), -series, direct);
    const Vec3 once = cross(t, after_bar), twice = cross(t, once);
    before_bar = after_bar + once * sin_over + twice * versine_over;
    t_bar = after_bar + once * versine_over + twice * remainder_over;
}

// From the derivatives after the substep to those before it; joint_qdd_bar goes into the right-hand side.
// World holds the state before the substep and its joint_qdd.
STAGE void integrate_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane, Scalar substep_dt) {
    FOR_LANES(quat, num_quats) {
        const int dof = model.quat_dof[quat];
        Vec3 turn, after_bar, before_bar, turn_bar;
        for (int k = 0; k < 3; ++k) {
            numbers(&turn)[k] = (world.joint_qd[dof + k] + world.joint_qdd[dof + k] * substep_dt) * substep_dt;
            numbers(&after_bar)[k] = adjoint.joint_q_bar[dof + k];
        }
        turn_adjoint(turn, after_bar, before_bar, turn_bar);
        for (int k = 0; k < 3; ++k) {
            adjoint.joint_q_bar[dof + k] = numbers(&before_bar)[k];
            adjoint.joint_qd_bar[dof + k] += numbers(&turn_bar)[k] * substep_dt;
        }
    }
    if (num_quats > 0) barrier();
    FOR_LANES(dof, num_dofs) {
        Real qd_bar = adjoint.joint_qd_bar[dof];
        if (model.dof_q[dof] >= 0) qd_bar += adjoint.joint_q_bar[dof] * substep_dt;
        adjoint.joint_qd_bar[dof] = qd_bar;
        world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE] = qd_bar * substep_dt;
    }
    barrier();
}
