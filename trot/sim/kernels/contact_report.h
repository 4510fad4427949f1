// Where each contact point is and how the ground pushes it, for whoever wants to see: zero above the ground. After the
// points come the pairs of shapes: the force on the first body, at the mean of the places where they touch.
#pragma once
#include "entry.h"

constexpr int num_contacts = num_points + num_pairs;

INLINE void report_contact(const Contacts& contacts, int block, int contact, Vec3 place, Vec3 f) {
    for (int k = 0; k < 3; ++k) {
        const int column = 3 * contact + k;
        store(contacts.point, contacts.num_worlds, 3 * num_contacts, block, column, numbers(&place)[k]);
        store(contacts.force, contacts.num_worlds, 3 * num_contacts, block, column, numbers(&f)[k]);
    }
}

template <typename Kind>
INLINE void report_pairs(const World& world, const Model& model, int lane, const Contacts& contacts, int block,
                         int first, int end) {
    FOR_LANES_FROM(pair, first, end) {
        const Motion velocity = seen_from(world.body_velocity, model.pair_body_a[pair], model.pair_body_b[pair]);
        Vec3 force = zero3(), place = zero3();
        Real weight = zero();
        touches_of_pair<Kind>(world, model, pair, [&](const typename Kind::Found& found, Mask touches) {
            const Vec3 f = touch_force(pair_parameters(world, model, pair), found, velocity_at(velocity, found.point));
            const Real normal = select(touches, dot(found.normal, f), zero());
            weight += normal;
            place += found.point * normal;
            force = select(touches, force + f, force);
        });
        const Mask pushes = weight > zero();
        const Vec3 middle = place * (one() / select(pushes, weight, one()));
        const Vec3 shown = select(pushes, middle, world.feeler_position[model.pair_feeler_start[pair]]);
        report_contact(contacts, block, num_points + pair, shown + world.origin, force);
    }
}

INLINE void report_contacts(const Work& work, const Contacts& contacts, int thread) {
    const int block = work.first_block + thread / LANES, lane = thread % LANES;
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
            report_contact(contacts, block, point, touching + world.origin, select(depth > zero(), f, zero3()));
        }
    }
    if (num_pairs == 0) return;
    place_feelers(world, model, lane);
    report_pairs<RoundPairs>(world, model, lane, contacts, block, 0, first_box_pair);
    report_pairs<BoxPairs>(world, model, lane, contacts, block, first_box_pair, first_plane_pair);
    report_pairs<PlanePairs>(world, model, lane, contacts, block, first_plane_pair, first_field_pair);
    report_pairs<FieldPairs>(world, model, lane, contacts, block, first_field_pair, num_pairs);
}
