// Where each contact point is and how the ground pushes it, for whoever wants to see: zero above the ground.
#pragma once
#include "entry.h"

INLINE void report_contacts(const Work& work, const Contacts& contacts, int thread) {
    const int block = work.first_block + thread / LANES, lane = thread % LANES, width = 3 * num_points;
    const Model& model = shared_model(work.model, lane);
    World& world = workspace<World>(work.scratch, block);
    barrier();
    load_state(world, model, lane, contacts.joint_q, contacts.joint_qd, contacts.num_worlds, block);
    kinematics(world, model, lane);
    velocities(world, model, lane);
    FOR_LANES(body, num_bodies) {
        for (int point = model.body_point_start[body]; point < model.body_point_start[body + 1]; ++point) {
            const Real depth = contact_depth(world, model, body, point);
            const Vec3 touching = contact_point(world, model, body, point, depth).touching;
            const Vec3 u = velocity_at(world.body_velocity[body], touching);
            const Vec3 f = contact_force(contact_parameters(world, model, model.point_shape[point]), depth, u);
            const Vec3 place = touching + world.origin;
            for (int k = 0; k < 3; ++k) {
                const Real push = select(depth > zero(), numbers(&f)[k], zero());
                store(contacts.point, contacts.num_worlds, width, block, 3 * point + k, numbers(&place)[k]);
                store(contacts.force, contacts.num_worlds, width, block, 3 * point + k, push);
            }
        }
    }
}
