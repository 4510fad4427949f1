// Muscles: a chain of straight segments through waypoints, under one tension = activation times peak force.
// A segment pulls its two ends together: along the unit vector u from a to b, body a feels +tension u at a and body b
// feels -tension u at b. About the common origin these are one wrench with opposite signs, since a x u = b x u.
// Segments between the same two bodies lie in bundles (trot/sim/bundles.py). A lane goes through a bundle with the poses
// of both bodies at hand, and adds up what all its segments do to them. Where every bundle has a lane of its own, lanes
// then add up those between the same two bodies, and the first of them stands for all.
#pragma once
#include "parameters.h"

struct Segment { Vec3 a, direction; Real inverse_length; };

INLINE Pose pose_of(const World& world, int body) {
    return body < 0 ? pose(identity(), -world.origin) : pose(world.body_rotation[body], world.body_position[body]);
}
INLINE Vec3 waypoint(const World& world, int body, Constant3 point) { return pose_of(world, body) * point; }

INLINE Segment muscle_segment(const Pose& of_a, const Pose& of_b, const Model& model, int segment) {
    Segment s;
    s.a = of_a * model.segment_point_a[segment];
    const Vec3 span = of_b * model.segment_point_b[segment] - s.a;
    // Two waypoints in one place pull in no direction.
    s.inverse_length = inverse_square_root(dot(span, span) + Scalar(1e-30));
    s.direction = span * s.inverse_length;
    return s;
}

INLINE Real muscle_tension(const World& world, const Model& model, int segment) {
    return world.control[model.segment_actuator[segment]] * model.segment_peak_force[segment];
}

// each(bundle, idle): lanes that have none keep the last one company, and idle.
template <typename Each>
INLINE void each_bundle(int lane, Each each) {
    constexpr int items = bundles_in_lanes ? LANES : num_bundles;
    FOR_LANES(item, items) each(item < num_bundles ? item : num_bundles - 1, item >= num_bundles);
}
// each(segment, its number in the bundle, there). Of many lanes each has the loop written out, so that it works on some
// segments while it waits for others. All loops are as long as the longest: past its end a bundle has its last segment
// again, which is not there.
template <typename Each>
INLINE void each_segment(const Model& model, int bundle, bool idle, Each each) {
    const int first = model.bundle_segment_start[bundle], end = model.bundle_segment_start[bundle + 1];
    if (LANES == 1) {
        for (int k = first; k < end; ++k) each(k, k - first, true);
        return;
    }
    UNROLL_MORE for (int i = 0; i < longest_bundle; ++i) {
        const bool there = first + i < end;
        each(there ? first + i : end - 1, i, there && !idle);
    }
}
// To the first bundle of a group, those between the same two bodies, what all of them have; nothing is left to the
// others. What a lane has added up doubles in length from round to round.
INLINE Force sum_of_group(Force sum, const Model& model, int bundle) {
    if (!bundles_in_lanes) return sum;
    const int end = model.bundle_group_end[bundle];
    UNROLL for (int reach = 1; reach < longest_group; reach *= 2) {
        const bool more = bundle + reach < end;
        const Force next = from_lane(sum, more ? bundle + reach : bundle);
        if (more) sum += next;
    }
    return bundle == model.bundle_group_start[bundle] ? sum : zero_force();
}

// The wrench on body a; on body b it is the opposite.
STAGE void muscles(World& world, const Model& model, int lane) {
    each_bundle(lane, [&](int bundle, bool idle) {
        const Pose of_a = pose_of(world, model.bundle_body_a[bundle]);
        const Pose of_b = pose_of(world, model.bundle_body_b[bundle]);
        Force sum = zero_force();
        each_segment(model, bundle, idle, [&](int k, int, bool there) {
            const Segment s = muscle_segment(of_a, of_b, model, k);
            const Real tension = there ? muscle_tension(world, model, k) : zero();
            sum += force_at(s.direction * tension, s.a);
        });
        sum = sum_of_group(sum, model, bundle);
        if (!idle) world.bundle_force[bundle] = sum;
    });
    barrier();
}

INLINE Motion lambda_of(const Adjoint& adjoint, int body) {
    return body < 0 ? zero_motion() : adjoint.body_lambda[body];
}

// Derivative of tension * dot(direction, closing), the power of the pull when the bodies move with body_lambda; closing
// is the velocity of a seen from body b. It is taken while body a moves and b stays. Where both move alike, the pull is
// carried along, which gives what b's moving does. By the tension it is summed over substeps: activations hold still
// during a control step.
STAGE void muscles_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane) {
    each_bundle(lane, [&](int bundle, bool idle) {
        const int body_a = model.bundle_body_a[bundle], body_b = model.bundle_body_b[bundle];
        const Pose of_a = pose_of(world, body_a), of_b = pose_of(world, body_b);
        const Motion lambda = lambda_of(adjoint, body_a) - lambda_of(adjoint, body_b);
        Force sum = zero_force(), pose_bar = zero_force();
        Real power[at_least_one(longest_bundle)];
        each_segment(model, bundle, idle, [&](int k, int i, bool there) {
            const Segment s = muscle_segment(of_a, of_b, model, k);
            const Real tension = there ? muscle_tension(world, model, k) : zero();
            const Vec3 closing = velocity_at(lambda, s.a), pull = s.direction * tension;
            power[i] = dot(s.direction, closing);
            // Moving the end turns the direction, and shifts the point whose velocity counts.
            const Vec3 turning = (closing - s.direction * power[i]) * (tension * s.inverse_length);
            sum += force_at(pull, s.a);
            pose_bar += force_at(cross(pull, lambda.angular) - turning, s.a);
        });
        // Not before the last of them: nothing is read ahead of what may have been written.
        each_segment(model, bundle, idle, [&](int k, int i, bool there) {
            if (there) adjoint.tension_bar[k] += power[i];
        });
        sum = sum_of_group(sum, model, bundle), pose_bar = sum_of_group(pose_bar, model, bundle);
        if (idle) return;
        world.bundle_force[bundle] = sum;
        adjoint.bundle_pose_bar[2 * bundle] = pose_bar;
        adjoint.bundle_pose_bar[2 * bundle + 1] = -(pose_bar + cross(lambda, sum));
    });
    barrier();
}

INLINE Real activation_bar(const Adjoint& adjoint, const Model& model, int muscle) {
    Real sum = zero();
    for (int k = model.muscle_segment_start[muscle]; k < model.muscle_segment_start[muscle + 1]; ++k)
        sum += adjoint.tension_bar[model.muscle_segment[k]] * model.segment_peak_force[model.muscle_segment[k]];
    return sum;
}

// Takes what all bundles that end on a body do to it off its number. body_bundle holds 2 * bundle + end.
INLINE void subtract_muscle_forces(World& world, const Model& model, int lane) {
    FOR_LANES(item, 6 * num_bodies) {
        const int body = item / 6, number = item % 6;
        Real sum = numbers(world.body_force)[item];
        UNROLL_SOME for (int k = model.body_bundle_start[body]; k < model.body_bundle_start[body + 1]; ++k) {
            const int end = model.body_bundle[k];
            const Real pull = numbers(&world.bundle_force[end / 2])[number];
            sum += end % 2 ? pull : -pull;
        }
        numbers(world.body_force)[item] = sum;
    }
    barrier();
}
INLINE void subtract_muscle_pose_bars(Adjoint& adjoint, const Model& model, int lane) {
    FOR_LANES(item, 6 * num_bodies) {
        const int body = item / 6, number = item % 6;
        Real sum = numbers(adjoint.pose_bar)[item];
        UNROLL_SOME for (int k = model.body_bundle_start[body]; k < model.body_bundle_start[body + 1]; ++k)
            sum -= numbers(&adjoint.bundle_pose_bar[model.body_bundle[k]])[number];
        numbers(adjoint.pose_bar)[item] = sum;
    }
    barrier();
}
