// The reverse sweep of inverse dynamics: -(d ID / d q)^T lambda and -(d ID / d qd)^T lambda, with joint_qdd held fixed.
// docs/adjoint.md derives it. Every body knows the derivative by its acceleration, velocity and pose (body_force.h);
// what remains is how these depend on the joint axes and rates of the dofs inwards of it.
#pragma once
#include "body_force.h"
#include "velocity.h"

INLINE void lambda_motions(World& world, Adjoint& adjoint, const Model& model, int lane) {
    root_to_leaves(model, lane, adjoint.body_lambda, zero_motion(),
                   [&](int dof) { return world.joint_axis[dof] * adjoint.lambda[dof]; });
}

// The subtree's sum at one dof of a body: without the shares of the body's earlier joints, which lie inwards of it.
INLINE Force from_this_joint_on(Force of_body, const Force* of_dof, const Model& model, int dof) {
    for (int earlier = model.body_dof_start[model.dof_body[dof]]; earlier < model.dof_joint_start[dof]; ++earlier)
        of_body -= of_dof[earlier];
    return of_body;
}

STAGE void sweep_to_root(World& world, Adjoint& adjoint, const Model& model, int lane) {
    body_forces_to_root(world, model, lane);
    leaves_to_root<6>(model, lane, numbers(adjoint.acceleration_bar));

    // joint_axis_rate = velocity x axis, so an acceleration of the subtree depends on the velocity of the axis.
    FOR_LANES(dof, num_dofs) {
        const Force acceleration_bar = adjoint.acceleration_bar[model.dof_body[dof]];
        adjoint.dof_velocity_bar[dof] = model.dof_kind[dof] == WORLD_SLIDE
            ? zero_force() : cross(world.joint_axis[dof], acceleration_bar) * world.joint_qd[dof];
    }
    barrier();
    leaves_to_root<6>(model, lane, numbers(adjoint.velocity_bar), numbers(adjoint.dof_velocity_bar));

    // joint_qd, and what turning the axis itself does: it carries velocity, acceleration and lambda outwards.
    FOR_LANES(dof, num_dofs) {
        const int body = model.dof_body[dof];
        const Motion axis = world.joint_axis[dof];
        const Force acceleration_bar = adjoint.acceleration_bar[body];
        const Force velocity_bar =
            from_this_joint_on(adjoint.velocity_bar[body], adjoint.dof_velocity_bar, model, dof);
        adjoint.joint_qd_bar[dof] -= dot(axis, velocity_bar) + dot(world.joint_axis_rate[dof], acceleration_bar);
        if (model.dof_kind[dof] == WORLD_SLIDE) {
            adjoint.dof_pose_bar[dof] = zero_force();
        } else {
            const Motion velocity = velocity_of_axis(world, model, dof);
            const Force axis_bar = (velocity_bar - cross(velocity, acceleration_bar)) * world.joint_qd[dof]
                                   + acceleration_bar * world.joint_qdd[dof]
                                   + world.body_force[body] * adjoint.lambda[dof];
            adjoint.dof_pose_bar[dof] = cross(axis, axis_bar);
        }
    }
    barrier();
    leaves_to_root<6>(model, lane, numbers(adjoint.pose_bar), numbers(adjoint.dof_pose_bar));
    FOR_LANES(dof, num_dofs) {
        const Force pose_bar =
            from_this_joint_on(adjoint.pose_bar[model.dof_body[dof]], adjoint.dof_pose_bar, model, dof);
        adjoint.joint_q_bar[dof] -= dot(world.joint_axis[dof], pose_bar);
    }
    barrier();
}
