// Forward kinematics: where every body is, along which axes every dof moves it, its inertia there.
// It has no adjoint of its own: moving dof j carries its whole subtree by the Motion joint_axis[j], so the derivative
// of any quantity with respect to poses is collected as a Force (pose_bar) and paired with that axis
// (inverse_dynamics.h).
#pragma once
#include "kinematics_lanes.h"
#include "parameters.h"

// Earlier joints of a body see its origin move away when a later joint acts.
INLINE void shift_earlier_anchors(World& world, int first_dof, int end_dof, Vec3 moved) {
    for (int dof = first_dof; dof < end_dof; ++dof) world.joint_axis[dof].linear -= moved;
}

// Pose of a body in its parent's frame. Until place_axis() runs, joint_axis[dof] holds (axis, anchor as seen from the
// body's origin), both in the parent's axes.
INLINE void place_in_parent(World& world, const Model& model, int body) {
    Mat3 rot = mat3(model.body_rotation[body]);
    Vec3 pos = vec3(model.body_position[body]);
    const int first_dof = model.body_dof_start[body];
    for (int joint = model.body_joint_start[body]; joint < model.body_joint_start[body + 1]; ++joint) {
        const int dof = model.joint_dof_start[joint];
        const int q_index = model.joint_q_start[joint];
        const Real* q = world.joint_q + q_index;
        const Constant3 axis = model.joint_axis[joint], anchor = model.joint_anchor[joint];
        if (model.joint_type[joint] == HINGE) {
            const Vec3 world_axis = rot * axis, before = rot * anchor;
            rot = rot * rotation_about(axis, q[0] - model.q_reference[q_index]);
            const Vec3 after = rot * anchor;
            pos += before - after;
            shift_earlier_anchors(world, first_dof, dof, before - after);
            world.joint_axis[dof] = motion(world_axis, after);
        } else if (model.joint_type[joint] == SLIDE_JOINT) {
            const Vec3 world_axis = rot * axis;
            const Vec3 moved = world_axis * (q[0] - model.q_reference[q_index]);
            pos += moved;
            shift_earlier_anchors(world, first_dof, dof, moved);
            world.joint_axis[dof] = motion(world_axis, zero3());
        } else if (model.joint_type[joint] == BALL) {
            const Vec3 before = rot * anchor;
            rot = rot * rotation(load_quat(q));
            const Vec3 after = rot * anchor;
            pos += before - after;
            shift_earlier_anchors(world, first_dof, dof, before - after);
            for (int k = 0; k < 3; ++k) world.joint_axis[dof + k] = motion(column(rot, k), after);
        } else {  // FREE: turns about its own origin, slides along world axes
            pos = vec3(q[0], q[1], q[2]);
            rot = rotation(load_quat(q + 3));
            for (int k = 0; k < 3; ++k) world.joint_axis[dof + 3 + k] = motion(column(rot, k), zero3());
        }
    }
    world.rotation_in_parent[body] = rot;
    world.position_in_parent[body] = pos;
}

// One row of a body's rotation and one number of its position. One lane continues from the parent, which it has just
// done; many lanes walk from the root each, and wait for nobody.
INLINE void place_row_in_world(World& world, const Model& model, int body, int row) {
    const int parent = model.body_parent[body], end = model.ancestor_start[body + 1];
    int next = model.ancestor_start[body] + 1;
    Vec3 rotation;
    Real position;
    if (LANES == 1 && parent >= 0) {
        rotation = world.body_rotation[parent].row[row];
        position = numbers(&world.body_position[parent])[row];
        next = end - 1;
    } else {
        const int root = model.ancestor[next - 1];
        rotation = world.rotation_in_parent[root].row[row];
        position = numbers(&world.position_in_parent[root])[row] - numbers(&world.position_in_parent[0])[row];
    }
    for (; next < end; ++next) {
        const int link = model.ancestor[next];
        position += dot(rotation, world.position_in_parent[link]);
        rotation = row_times(rotation, world.rotation_in_parent[link]);
    }
    world.body_rotation[body].row[row] = rotation;
    numbers(&world.body_position[body])[row] = position;
}

INLINE void place_axis(World& world, const Model& model, int dof) {
    const int body = model.dof_body[dof], parent = model.body_parent[body];
    Motion& axis = world.joint_axis[dof];
    if (model.dof_kind[dof] == WORLD_SLIDE) {
        const int k = dof - model.body_dof_start[body];
        axis = motion(zero3(), vec3(real(k == 0), real(k == 1), real(k == 2)));
        return;
    }
    Vec3 direction = axis.angular, anchor = axis.linear;
    if (parent >= 0) {
        direction = world.body_rotation[parent] * direction;
        anchor = world.body_rotation[parent] * anchor;
    }
    if (model.dof_kind[dof] == TURN)
        axis = motion(direction, cross(anchor + world.body_position[body], direction));
    else
        axis = motion(zero3(), direction);
}

// Spatial inertia about the origin: rotate, then parallel axis theorem.
INLINE void place_inertia(World& world, const Model& model, int body) {
    const Mat3& rot = world.body_rotation[body];
    const Constant33& central = model.body_inertia[body];
    const Vec3 com = rot * model.body_com[body] + world.body_position[body];
    const Scalar mass = model.body_mass[body];
    Mat3 turned;  // rot * central
    for (int i = 0; i < 3; ++i) {
        const Vec3 row = rot.row[i];
        turned.row[i] = vec3(dot(row, central.row[0]), dot(row, central.row[1]), dot(row, central.row[2]));
    }
    const Vec3 moment = com * real(mass);
    Inertia result;
    result.mass = real(mass);
    result.moment = moment;
    result.xx = dot(turned.row[0], rot.row[0]) + moment.y * com.y + moment.z * com.z;
    result.yy = dot(turned.row[1], rot.row[1]) + moment.x * com.x + moment.z * com.z;
    result.zz = dot(turned.row[2], rot.row[2]) + moment.x * com.x + moment.y * com.y;
    result.xy = dot(turned.row[0], rot.row[1]) - moment.x * com.y;
    result.xz = dot(turned.row[0], rot.row[2]) - moment.x * com.z;
    result.yz = dot(turned.row[1], rot.row[2]) - moment.y * com.z;
    if (per_world_parameters)
        for (int i = 0; i < 10; ++i) numbers(&result)[i] *= mass_factor(world, body);
    world.body_inertia[body] = result;
}

STAGE void kinematics(World& world, const Model& model, int lane) {
    if (tree_in_lanes) {
        place_in_lanes(world, model, lane);
        barrier();
    } else {
        FOR_LANES(body, num_bodies) place_in_parent(world, model, body);
        barrier();
        FOR_LANES(item, 3 * num_bodies) place_row_in_world(world, model, item / 3, item % 3);
        if (lane == 0) world.origin = world.position_in_parent[0];
        barrier();
        FOR_LANES(dof, num_dofs) place_axis(world, model, dof);
    }
    FOR_LANES(body, num_bodies) place_inertia(world, model, body);
    barrier();
}
