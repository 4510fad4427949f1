// Muscles: a chain of straight segments through waypoints, under one tension = activation times peak force.
// A segment pulls its two ends together: along the unit vector u from a to b, body a feels +tension u at a and body b
// feels -tension u at b. About the common origin these are one wrench with opposite signs, since a x u = b x u.
#pragma once
#include "parameters.h"

struct Segment { Vec3 a, b, direction; Real length; };

INLINE Vec3 waypoint(const World& world, int body, Constant3 point) {
    if (body < 0) return vec3(point) - world.origin;
    return world.body_rotation[body] * point + world.body_position[body];
}

INLINE Segment muscle_segment(const World& world, const Model& model, int segment) {
    Segment s;
    s.a = waypoint(world, model.segment_body_a[segment], model.segment_point_a[segment]);
    s.b = waypoint(world, model.segment_body_b[segment], model.segment_point_b[segment]);
    const Vec3 span = s.b - s.a;
    s.length = square_root(dot(span, span) + Scalar(1e-30));  // two waypoints in one place pull in no direction
    s.direction = span * (one() / s.length);
    return s;
}

INLINE Real muscle_tension(const World& world, const Model& model, int muscle) {
    return world.control[model.muscle_actuator[muscle]] * model.muscle_peak_force[muscle];
}

// The wrench on body a; on body b it is the opposite.
STAGE void muscles(World& world, const Model& model, int lane) {
    FOR_LANES(segment, num_segments) {
        const Segment s = muscle_segment(world, model, segment);
        const Real tension = muscle_tension(world, model, model.segment_muscle[segment]);
        world.segment_force[segment] = force_at(s.direction * tension, s.a);
    }
    barrier();
}

INLINE Motion lambda_of(const Adjoint& adjoint, int body) {
    return body < 0 ? zero_motion() : adjoint.body_lambda[body];
}

// Derivative of tension * dot(direction, closing), the power of the pull when the bodies move with body_lambda;
// closing is the velocity of a seen from b.
STAGE void muscles_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane) {
    FOR_LANES(segment, num_segments) {
        const int muscle = model.segment_muscle[segment];
        const Segment s = muscle_segment(world, model, segment);
        const Real tension = muscle_tension(world, model, muscle);
        const Motion lambda_a = lambda_of(adjoint, model.segment_body_a[segment]);
        const Motion lambda_b = lambda_of(adjoint, model.segment_body_b[segment]);
        const Vec3 closing = velocity_at(lambda_a, s.a) - velocity_at(lambda_b, s.b);
        const Real power = dot(s.direction, closing);
        const Vec3 pull = s.direction * tension;
        // Moving an end turns the direction ...
        const Vec3 turning = (closing - s.direction * power) * (tension / s.length);
        // ... and shifts the point whose velocity counts.
        const Vec3 a_bar = cross(pull, lambda_a.angular) - turning;
        const Vec3 b_bar = turning - cross(pull, lambda_b.angular);
        world.segment_force[segment] = force_at(pull, s.a);
        adjoint.segment_pose_bar[2 * segment] = force_at(a_bar, s.a);
        adjoint.segment_pose_bar[2 * segment + 1] = force_at(b_bar, s.b);
        adjoint.segment_activation_bar[segment] = power * model.muscle_peak_force[muscle];
    }
    barrier();
    FOR_LANES(muscle, num_muscles) {
        Real sum = adjoint.activation_bar[muscle];
        for (int s = model.muscle_segment_start[muscle]; s < model.muscle_segment_start[muscle + 1]; ++s)
            sum += adjoint.segment_activation_bar[s];
        adjoint.activation_bar[muscle] = sum;
    }
}

// Takes what all segments that end on a body do to it off its number. body_segment holds 2 * segment + end.
INLINE void subtract_muscle_forces(World& world, const Model& model, int lane) {
    FOR_LANES(item, 6 * num_bodies) {
        const int body = item / 6, number = item % 6;
        Real sum = numbers(world.body_force)[item];
        for (int k = model.body_segment_start[body]; k < model.body_segment_start[body + 1]; ++k) {
            const int end = model.body_segment[k];
            const Real pull = numbers(&world.segment_force[end / 2])[number];
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
        for (int k = model.body_segment_start[body]; k < model.body_segment_start[body + 1]; ++k)
            sum -= numbers(&adjoint.segment_pose_bar[model.body_segment[k]])[number];
        numbers(adjoint.pose_bar)[item] = sum;
    }
    barrier();
}
