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
    root_to_leaves(model, lane, world.body_velocity, zero_motion(),
                   [&](int dof) { return world.joint_axis[dof] * world.joint_qd[dof]; });
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
    const Vec3 upward = vec3(real(-model.gravity[0]), real(-model.gravity[1]), real(-model.gravity[2]));
    root_to_leaves(model, lane, world.body_acceleration, motion(zero3(), upward), [&](int dof) {
        const Motion bias = world.joint_axis_rate[dof] * world.joint_qd[dof];
        return WITH_JOINT_QDD ? bias + world.joint_axis[dof] * world.joint_qdd[dof] : bias;
    });
}
