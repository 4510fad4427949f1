// Newton and Euler for every body: the force its joints must supply,
//   body_force = I a + v x* (I v) - ground - muscles of either kind - pairs of shapes - bonds - lift
// and the derivative of dot(body_lambda, body_force) with respect to the body's acceleration, velocity and pose.
#pragma once
#include "bond.h"
#include "contact.h"
#include "hill_muscle.h"
#include "muscle.h"
#include "pair_contact.h"
#include "tree.h"

STAGE void body_forces(World& world, const Model& model, int lane) {
    if (num_segments > 0) muscles(world, model, lane);
    if (num_hills > 0) hill_muscles(world, model, lane);
    if (num_pairs > 0) pair_contacts(world, model, lane);
    if (num_bonds > 0) bonds(world, model, lane);
    FOR_LANES(body, num_bodies) {
        const Inertia& inertia = world.body_inertia[body];
        const Motion velocity = world.body_velocity[body];
        const Force momentum = inertia * velocity;
        world.body_force[body] = inertia * world.body_acceleration[body] + cross(velocity, momentum)
                                 - ground_force(world, model, body);
        if (num_lifts > 0) world.body_force[body] -= lift_force(world, model, body);
    }
    barrier();
    if (num_segments > 0) subtract_muscle_forces(world, model, lane);
    if (num_hills > 0) subtract_hill_forces(world, model, lane);
    if (num_pairs > 0) subtract_pair_forces(world, model, lane);
    if (num_bonds > 0) subtract_bond_forces(world, model, lane);
}

// With w = body_lambda the inertial part is  dot(w, I a) + dot(w x v, I v):  linear in a, quadratic in v, and moving
// the body by a Motion d turns its inertia,  dI x = d x* (I x) - I (d x x).
INLINE void inertial_adjoint(const World& world, const Motion& w, int body, Force& force, Force& acceleration_bar,
                             Force& velocity_bar, Force& pose_bar) {
    const Inertia& inertia = world.body_inertia[body];
    const Motion v = world.body_velocity[body], a = world.body_acceleration[body];
    const Motion wv = cross(w, v);
    const Force i_a = inertia * a, i_v = inertia * v, i_w = inertia * w, i_wv = inertia * wv;
    force = i_a + cross(v, i_v);
    acceleration_bar = i_w;
    velocity_bar = i_wv - cross(w, i_v);
    pose_bar = -(cross(w, i_a) + cross(a, i_w) + cross(wv, i_v) + cross(v, i_wv));
}

STAGE void body_forces_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane) {
    if (num_segments > 0) muscles_adjoint(world, adjoint, model, lane);
    if (num_hills > 0) hill_muscles_adjoint(world, adjoint, model, lane);
    if (num_pairs > 0) pair_contacts_adjoint(world, adjoint, model, lane);
    if (num_bonds > 0) bonds_adjoint(world, adjoint, model, lane);
    FOR_LANES(body, num_bodies) {
        const Motion w = adjoint.body_lambda[body];
        Force force, acceleration_bar, velocity_bar, pose_bar;
        inertial_adjoint(world, w, body, force, acceleration_bar, velocity_bar, pose_bar);
        if (num_lifts > 0) {
            force -= lift_force(world, model, body);
            pose_bar -= lift_pose_bar(world, model, body, w);
        }
        if (per_world_parameters)
            adjoint.parameter_bar[body_mass_column + body] -= dot(w, force) / mass_factor(world, body);
        Force ground_velocity_bar = zero_force(), ground_pose_bar = zero_force();
        const Force ground = ground_force_adjoint(world, adjoint, model, body, ground_velocity_bar, ground_pose_bar);
        world.body_force[body] = force - ground;
        adjoint.acceleration_bar[body] = acceleration_bar;
        adjoint.velocity_bar[body] = velocity_bar - ground_velocity_bar;
        adjoint.pose_bar[body] = pose_bar - ground_pose_bar;
    }
    barrier();
    if (num_segments > 0) {
        subtract_muscle_forces(world, model, lane);
        subtract_muscle_pose_bars(adjoint, model, lane);
    }
    if (num_hills > 0) {
        subtract_hill_forces(world, model, lane);
        subtract_hill_bars(world, adjoint, model, lane);
    }
    if (num_pairs > 0) {
        subtract_pair_forces(world, model, lane);
        subtract_pair_bars(world, adjoint, model, lane);
    }
    if (num_bonds > 0) {
        subtract_bond_forces(world, model, lane);
        subtract_bond_bars(adjoint, model, lane);
    }
}

// Afterwards body_force[body] is what everything beyond the body's joints needs.
INLINE void body_forces_to_root(World& world, const Model& model, int lane) {
    leaves_to_root<6>(model, lane, numbers(world.body_force));
}
