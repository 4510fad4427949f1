// One control step: all its substeps in one go, forwards and backwards.
#pragma once
#include "clock.h"
#include "dynamics.h"
#include "integrate.h"
#include "inverse_dynamics.h"
#include "joint_force.h"
#include "kinematics.h"
#include "memory.h"
#include "quaternion_gradient.h"

INLINE void substep(World& world, const Model& model, int lane, Scalar dt, Real* record, Clock& clock) {
    kinematics(world, model, lane);                          lap(clock, KINEMATICS);
    velocities(world, model, lane);
    accelerations<false>(world, model, lane);                lap(clock, VELOCITIES);
    body_forces(world, model, lane);
    leaves_to_root<6>(model, lane, numbers(world.body_force));  lap(clock, BODY_FORCES);
    joint_forces(world, model, lane);                        lap(clock, JOINT_FORCES);
    build_and_factorise(world, model, lane);                 lap(clock, FACTORISE);
    finish_solve(world, model, lane, world.joint_qdd);       lap(clock, SOLVE);
    if (record) save_substep(world, model, lane, record);    lap(clock, SAVE);
    integrate(world, model, lane, dt);                       lap(clock, INTEGRATE);
}

// The implicit adjoint: from  M joint_qdd = joint_force - bias  follow  lambda = M^-1 joint_qdd_bar,
// joint_force_bar = lambda, and one reverse sweep of inverse dynamics with joint_qdd held fixed.
INLINE void substep_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane, Scalar dt, const Real* record,
                            Clock& clock) {
    restore_substep(world, model, lane, record);             lap(clock, RESTORE);
    integrate_adjoint(world, adjoint, model, lane, dt);      lap(clock, INTEGRATE_ADJOINT);
    kinematics(world, model, lane);                          lap(clock, KINEMATICS_AGAIN);
    if (store_factor) begin_solve(world, model, lane);
    else build_and_factorise(world, model, lane);            lap(clock, FACTOR_AGAIN);
    finish_solve(world, model, lane, adjoint.lambda);        lap(clock, SOLVE_LAMBDA);
    velocities(world, model, lane);
    accelerations<true>(world, model, lane);
    lambda_motions(world, adjoint, model, lane);             lap(clock, VELOCITIES_AGAIN);
    body_forces_adjoint(world, adjoint, model, lane);        lap(clock, BODY_FORCES_ADJOINT);
    sweep_to_root(world, adjoint, model, lane);              lap(clock, SWEEP);
    joint_forces_adjoint(world, adjoint, model, lane);       lap(clock, JOINT_FORCES_ADJOINT);
}

// The tensors of one call. Those of states and controls are (num_worlds, width).
struct Tensors {
    const Scalar* joint_q;    // before the step
    const Scalar* joint_qd;
    const Scalar* control;
    const Scalar* parameter;
    Scalar* next_q;           // after it
    Scalar* next_qd;
    Real* trajectory;         // (substeps, blocks, record_size) blocks of worlds; null when no gradient is wanted
    int num_worlds;
    int parameter_worlds;     // 1: every world shares one row of parameters
    int substeps;
    Scalar dt;
};

INLINE void load_inputs(World& world, const Model& model, int lane, const Tensors& t, int block) {
    FOR_LANES(actuator, num_controls)
        world.control[actuator] = clamped(model, actuator, load(t.control, t.num_worlds, num_controls, block, actuator));
    if (per_world_parameters) {
        const bool shared = t.parameter_worlds == 1;
        FOR_LANES(k, num_parameters)
            world.parameter[k] = shared ? real(t.parameter[k]) : load(t.parameter, t.num_worlds, num_parameters, block, k);
    }
}

INLINE void step_forward(World& world, const Model& model, int lane, const Tensors& t, int block, int num_blocks,
                         long long* cycles) {
    FOR_LANES(k, num_q) world.joint_q[k] = load(t.joint_q, t.num_worlds, num_q, block, k);
    FOR_LANES(dof, num_dofs) world.joint_qd[dof] = load(t.joint_qd, t.num_worlds, num_dofs, block, dof);
    load_inputs(world, model, lane, t, block);
    barrier();
    FOR_LANES(quat, num_quats) {
        Real* q = world.joint_q + model.quat_q[quat];
        store_quat(q, normalised(load_quat(q)));
    }
    barrier();
    Clock clock = start_clock(cycles, block == 0 && lane == 0);
    for (int i = 0; i < t.substeps; ++i) {
        Real* record = t.trajectory ? t.trajectory + ((long long)i * num_blocks + block) * record_size : nullptr;
        substep(world, model, lane, t.dt, record, clock);
    }
    FOR_LANES(k, num_q) store(t.next_q, t.num_worlds, num_q, block, k, world.joint_q[k]);
    FOR_LANES(dof, num_dofs) store(t.next_qd, t.num_worlds, num_dofs, block, dof, world.joint_qd[dof]);
}

// Derivatives after the step come in, those before it go out. Where `tangent`, those of joint_q are one number per
// dof, else one per coordinate. With more blocks than the trajectory has, block b runs along trajectory block
// b modulo trajectory_blocks: many directions through the same worlds, for Jacobians.
struct Cotangents {
    const Scalar* next_q_bar;
    const Scalar* next_qd_bar;
    Scalar* joint_q_bar;
    Scalar* joint_qd_bar;
    Scalar* control_bar;
    Scalar* parameter_bar;
    int num_worlds;
    int trajectory_blocks;
    int tangent;
};

INLINE void load_cotangents(Adjoint& adjoint, const Model& model, int lane, const Tensors& t, const Cotangents& c, int block,
                            int world_block) {
    const int q_width = c.tangent ? num_dofs : num_q;
    FOR_LANES(dof, num_dofs) {
        adjoint.joint_qd_bar[dof] = load(c.next_qd_bar, c.num_worlds, num_dofs, block, dof);
        adjoint.joint_force_bar[dof] = zero();
        const int column = c.tangent ? dof : model.dof_q[dof];
        if (column >= 0) adjoint.joint_q_bar[dof] = load(c.next_q_bar, c.num_worlds, q_width, block, column);
    }
    FOR_LANES(muscle, num_muscles) adjoint.activation_bar[muscle] = zero();
    FOR_LANES(k, parameter_slots) adjoint.parameter_bar[k] = zero();
    if (!c.tangent) {
        FOR_LANES(quat, num_quats) {
            Real q[4], q_bar[4];
            for (int k = 0; k < 4; ++k) {
                q[k] = load(t.next_q, t.num_worlds, num_q, world_block, model.quat_q[quat] + k);
                q_bar[k] = load(c.next_q_bar, c.num_worlds, num_q, block, model.quat_q[quat] + k);
            }
            const Vec3 r_bar = to_tangent(load_quat(q), load_quat(q_bar));
            for (int k = 0; k < 3; ++k) adjoint.joint_q_bar[model.quat_dof[quat] + k] = numbers(&r_bar)[k];
        }
    }
    barrier();
}

INLINE void store_cotangents(const Adjoint& adjoint, const Model& model, int lane, const Tensors& t, const Cotangents& c,
                             int block, int world_block) {
    const int q_width = c.tangent ? num_dofs : num_q;
    FOR_LANES(dof, num_dofs) {
        store(c.joint_qd_bar, c.num_worlds, num_dofs, block, dof, adjoint.joint_qd_bar[dof]);
        const int column = c.tangent ? dof : model.dof_q[dof];
        if (column >= 0) store(c.joint_q_bar, c.num_worlds, q_width, block, column, adjoint.joint_q_bar[dof]);
    }
    if (!c.tangent) {
        FOR_LANES(quat, num_quats) {
            Real q[4], q_bar[4];
            const int dof = model.quat_dof[quat];
            for (int k = 0; k < 4; ++k) q[k] = load(t.joint_q, t.num_worlds, num_q, world_block, model.quat_q[quat] + k);
            const Vec3 r_bar = vec3(adjoint.joint_q_bar[dof], adjoint.joint_q_bar[dof + 1], adjoint.joint_q_bar[dof + 2]);
            store_quat(q_bar, from_tangent(normalised(load_quat(q)), r_bar, norm(load_quat(q))));
            for (int k = 0; k < 4; ++k) store(c.joint_q_bar, c.num_worlds, num_q, block, model.quat_q[quat] + k, q_bar[k]);
        }
    }
    FOR_LANES(actuator, num_controls) {
        const Real control = load(t.control, t.num_worlds, num_controls, world_block, actuator);
        store(c.control_bar, c.num_worlds, num_controls, block, actuator, control_adjoint(adjoint, model, actuator, control));
    }
    if (per_world_parameters)
        FOR_LANES(k, num_parameters) store(c.parameter_bar, c.num_worlds, num_parameters, block, k, adjoint.parameter_bar[k]);
}

INLINE void step_backward(World& world, Adjoint& adjoint, const Model& model, int lane, const Tensors& t, const Cotangents& c,
                          int block, long long* cycles) {
    const int world_block = block % c.trajectory_blocks;
    load_inputs(world, model, lane, t, world_block);
    load_cotangents(adjoint, model, lane, t, c, block, world_block);
    Clock clock = start_clock(cycles, block == 0 && lane == 0);
    for (int i = t.substeps - 1; i >= 0; --i) {
        const Real* record = t.trajectory + ((long long)i * c.trajectory_blocks + world_block) * record_size;
        if (i > 0) prefetch_substep(record - (long long)c.trajectory_blocks * record_size, lane);
        substep_adjoint(world, adjoint, model, lane, t.dt, record, clock);
    }
    store_cotangents(adjoint, model, lane, t, c, block, world_block);
}
