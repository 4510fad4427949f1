// One control step: all its substeps in one go, forwards and backwards.
#pragma once
#include "activation.h"
#include "clock.h"
#include "dynamics.h"
#include "integrate.h"
#include "inverse_dynamics.h"
#include "joint_force.h"
#include "kinematics.h"
#include "tensors.h"

INLINE void substep(World& world, const Model& model, int lane, Scalar substep_dt, Real* record, Clock& clock) {
    kinematics(world, model, lane);                          lap(clock, KINEMATICS);
    velocities(world, model, lane);
    accelerations<false>(world, model, lane);                lap(clock, VELOCITIES);
    body_forces(world, model, lane);
    body_forces_to_root(world, model, lane);                 lap(clock, BODY_FORCES);
    joint_forces(world, model, lane);                        lap(clock, JOINT_FORCES);
    build_and_factorise(world, model, lane);                 lap(clock, FACTORISE);
    finish_solve(world, model, lane, world.joint_qdd);       lap(clock, SOLVE);
    if (record) save_substep(world, lane, record);           lap(clock, SAVE);
    if (num_acts > 0) advance_acts(world, model, lane, substep_dt);
    integrate(world, model, lane, substep_dt);               lap(clock, INTEGRATE);
}

// The implicit adjoint: from  M joint_qdd = joint_force - bias  follow  lambda = M^-1 joint_qdd_bar,
// joint_force_bar = lambda, and one reverse sweep of inverse dynamics with joint_qdd held fixed.
INLINE void substep_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane, Scalar substep_dt,
                            const Real* record, Clock& clock) {
    restore_substep(world, lane, record);                    lap(clock, RESTORE);
    if (num_acts > 0) advance_acts_adjoint(world, adjoint, model, lane, substep_dt);
    integrate_adjoint(world, adjoint, model, lane, substep_dt); lap(clock, INTEGRATE_ADJOINT);
    if (!store_motion) kinematics(world, model, lane);       lap(clock, KINEMATICS_AGAIN);
    if (store_factor) begin_solve(world, model, lane);
    else build_and_factorise(world, model, lane);            lap(clock, FACTOR_AGAIN);
    finish_solve(world, model, lane, adjoint.lambda);        lap(clock, SOLVE_LAMBDA);
    if (!store_motion) velocities(world, model, lane);
    accelerations<true>(world, model, lane);
    lambda_motions(world, adjoint, model, lane);             lap(clock, VELOCITIES_AGAIN);
    body_forces_adjoint(world, adjoint, model, lane);        lap(clock, BODY_FORCES_ADJOINT);
    sweep_to_root(world, adjoint, model, lane);              lap(clock, SWEEP);
    joint_forces_adjoint(world, adjoint, model, lane);       lap(clock, JOINT_FORCES_ADJOINT);
}

INLINE void step_forward(World& world, const Model& model, int lane, const Tensors& t, int block,
                         long long* cycles) {
    load_state(world, model, lane, t.joint_q, t.joint_qd, t.num_worlds, block);
    if (num_acts > 0) load_acts(world, lane, t, block);
    load_inputs(world, model, lane, t, block);
    Clock clock = start_clock(cycles, block == 0 && lane == 0);
    for (int i = 0; i < t.substeps; ++i) {
        Real* record = t.trajectory ? t.trajectory + ((long long)i * t.num_blocks + block) * record_size : nullptr;
        substep(world, model, lane, t.substep_dt, record, clock);
    }
    store_state(world, lane, t, block);
}

// With more blocks than the trajectory has, block b runs along trajectory block b modulo num_blocks: many
// directions through the same worlds, for Jacobians.
INLINE void step_backward(World& world, Adjoint& adjoint, const Model& model, int lane, const Tensors& t,
                          const Cotangents& c, int block, long long* cycles) {
    const int world_block = block % t.num_blocks;
    const long long stride = (long long)t.num_blocks * record_size;
    load_inputs(world, model, lane, t, world_block);
    load_cotangents(adjoint, model, lane, t, c, block, world_block);
    Clock clock = start_clock(cycles, block == 0 && lane == 0);
    for (int i = t.substeps - 1; i >= 0; --i) {
        const Real* record = t.trajectory + i * stride + (long long)world_block * record_size;
        if (i > 0) prefetch_substep(record - stride, lane);
        substep_adjoint(world, adjoint, model, lane, t.substep_dt, record, clock);
    }
    store_cotangents(adjoint, model, lane, t, c, block, world_block);
}
