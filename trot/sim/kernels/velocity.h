// Velocities and accelerations of the bodies, from the roots outwards (the outward pass of recursive Newton-Euler).
#pragma once
#include "tree.h"

// Velocity of the frame that a dof's axis is fixed in: the body as it moves before its later joints add their share.
INLINE Motion velocity_of_axis(const World& world, const Model& model, int dof) {
    const int body = model.dof_body[dof];
    Motion velocity = world.body_velocity[body];
    for (int later = model.dof_joint_end[dof]; later < model.body_dof_start[body + 1]; ++later)
        velocity -= world.joint_axis[later] * world.joint_qd[later];
    return velocity;
}

STAGE void velocities(World& world, const Model& model, int lane) {
    root_to_leaves<6>(model, lane, numbers(world.body_velocity), [&](int) { return zero(); },
        [&](int body, int first, Share<6>& sum) { add_dofs(sum, world.joint_axis, world.joint_qd, model, body, first); });
    FOR_LANES(dof, num_dofs) {
        const bool moves = model.dof_kind[dof] != WORLD_SLIDE;
        world.joint_axis_rate[dof] =
            moves ? cross(velocity_of_axis(world, model, dof), world.joint_axis[dof]) : zero_motion();
    }
    barrier();
}

// Gravity enters as an acceleration of the ground the other way. Forward, joint_qdd is not known yet: bias only.
template <bool WITH_JOINT_QDD>
INLINE void accelerations(World& world, const Model& model, int lane) {
    root_to_leaves<6>(model, lane, numbers(world.body_acceleration),
        [&](int number) { return number < 3 ? zero() : real(-model.gravity[number - 3]); },
        [&](int body, int first, Share<6>& sum) {
            add_dofs(sum, world.joint_axis_rate, world.joint_qd, model, body, first);
            if (WITH_JOINT_QDD) add_dofs(sum, world.joint_axis, world.joint_qdd, model, body, first);
        });
}
