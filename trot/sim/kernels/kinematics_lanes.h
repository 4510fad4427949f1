// Poses and axes of kinematics.h where every dof has a lane of its own. A joint is a link like a body: lanes first work
// out where each puts what follows it, then join these poses along the line to the root, 1, 2, 4, ... dofs at a time,
// so that all joints of all bodies are placed at once. Same results as kinematics.h up to rounding.
#pragma once
#include "tree_lanes.h"

// A pose is that of what follows, as seen from what goes before.
INLINE Pose operator*(const Pose& inner, const Pose& outer) {
    Pose r;
    r.rotation = inner.rotation * outer.rotation;
    r.position = inner.position + inner.rotation * outer.position;
    return r;
}
INLINE Pose from_lane(const Pose& a, int other) {
    Pose r;
    for (int i = 0; i < 3; ++i) r.rotation.row[i] = from_lane(a.rotation.row[i], other);
    r.position = from_lane(a.position, other);
    return r;
}
INLINE Pose turned_about(const Mat3& rotation, Constant3 anchor) {
    return pose(rotation, vec3(anchor) - rotation * anchor);
}

// A joint of several dofs acts at its last; a body's place in its parent comes with its first.
INLINE Pose pose_at_dof(const World& world, const Model& model, int dof) {
    const int joint = model.dof_joint[dof], type = model.joint_type[joint], body = model.dof_body[dof];
    const int q_index = model.joint_q_start[joint];
    const Real* q = world.joint_q + q_index;
    Pose own = pose(identity(), zero3());
    if (dof + 1 == model.dof_joint_end[dof]) {
        if (type == HINGE)
            own = turned_about(rotation_about(model.joint_axis[joint], q[0] - model.q_reference[q_index]),
                               model.joint_anchor[joint]);
        else if (type == SLIDE_JOINT)
            own.position = vec3(model.joint_axis[joint]) * (q[0] - model.q_reference[q_index]);
        else if (type == BALL)
            own = turned_about(rotation(load_quat(q)), model.joint_anchor[joint]);
        else
            own = pose(rotation(load_quat(q + 3)), vec3(q[0], q[1], q[2]));
    }
    if (dof == model.body_dof_start[body] && type != FREE)
        own = pose(mat3(model.body_rotation[body]), vec3(model.body_position[body])) * own;
    return own;
}

// Leaves in every lane the pose after its dof. Lines end at the root's last dof, and the world's origin is taken off
// the root before the others are joined to it: a far runner loses no precision.
INLINE Pose pose_in_world(World& world, const Model& model, int lane, int dof) {
    const int depth = model.dof_depth[dof];
    const int* own = model.chain + model.dof_chain_start[dof] + depth;
    const int root = model.dof_body[own[-depth]], root_end = model.body_dof_start[root + 1];
    const bool of_root = dof < root_end;
    const bool is_free = model.joint_type[model.dof_joint[dof]] == FREE;  // all in one
    const int line = is_free ? 0 : of_root ? depth : depth - (root_end - model.body_dof_start[root]);
    Pose found = pose_at_dof(world, model, dof);
    UNROLL for (int reach = 1; reach < LANES; reach *= 2) {
        if (reach > longest_line) break;
        const bool continues = line >= reach;
        const Pose inner = from_lane(found, continues ? own[-reach] : dof);
        if (continues) found = inner * found;
    }
    const Vec3 origin = from_lane(found.position, model.body_dof_start[1] - 1);
    if (lane == 0) world.origin = origin;
    if (of_root) found.position -= origin;
    const Pose base = from_lane(found, root_end - 1);
    return of_root ? found : base * found;
}

// Turns and slides about the axes as they are after the joint: what it does itself leaves its axis and anchor alone.
INLINE Motion axis_in_world(const Model& model, int dof, const Pose& after_joint) {
    const int joint = model.dof_joint[dof], type = model.joint_type[joint];
    const int k = dof - model.dof_joint_start[dof];
    if (model.dof_kind[dof] == WORLD_SLIDE) return motion(zero3(), vec3(real(k == 0), real(k == 1), real(k == 2)));
    const bool single = type == HINGE || type == SLIDE_JOINT;
    const Vec3 direction = single ? after_joint.rotation * model.joint_axis[joint] : column(after_joint.rotation, k % 3);
    if (model.dof_kind[dof] != TURN) return motion(zero3(), direction);
    Vec3 anchor = after_joint.position;
    if (type != FREE) anchor += after_joint.rotation * model.joint_anchor[joint];
    return motion(direction, cross(anchor, direction));
}

INLINE void place_in_lanes(World& world, const Model& model, int lane) {
    const int dof = lane < num_dofs ? lane : num_dofs - 1;  // idle lanes keep the last one company
    const Pose after = pose_in_world(world, model, lane, dof);
    const Motion axis = axis_in_world(model, dof, from_lane(after, model.dof_joint_end[dof] - 1));
    if (lane >= num_dofs) return;
    world.joint_axis[dof] = axis;
    if (dof + 1 == model.dof_body_end[dof]) {
        world.body_rotation[model.dof_body[dof]] = after.rotation;
        world.body_position[model.dof_body[dof]] = after.position;
    }
}
