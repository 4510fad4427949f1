// The contact law, for one point at depth d > 0 below the ground that moves with velocity u:
//   normal     N = max(0, stiffness d - damping d u_n)                      never pulls
//   friction   T = -u_t / |u_t| * min(friction_stiffness |u_t|, mu N)       sticks, then slides
// u_n is the speed of separation, u_t the velocity along the ground. Above the ground there is no force.
#pragma once
#include "parameters.h"

struct ContactParameters { Real stiffness, damping, friction_stiffness, friction; };

INLINE ContactParameters contact_parameters(const World& world, const Model& model, int shape) {
    ContactParameters p;
    p.stiffness = contact_stiffness(world, model, shape);
    p.damping = contact_damping(world, model, shape);
    p.friction_stiffness = friction_stiffness(world, model, shape);
    p.friction = friction(world, model, shape);
    return p;
}

// Keeps the division finite for a point at rest, where friction_stiffness decides anyway.
INLINE Real sliding_speed(Vec3 u) { return square_root(u.x * u.x + u.y * u.y + Scalar(1e-30)); }

INLINE Vec3 contact_force(const ContactParameters& p, Real depth, Vec3 u) {
    const Real normal = larger(depth * (p.stiffness - p.damping * u.z), zero());
    const Real drag = smaller(p.friction_stiffness, p.friction * normal / sliding_speed(u));
    return vec3(-drag * u.x, -drag * u.y, normal);
}

struct ContactAdjoint { Real depth; Vec3 u; ContactParameters parameters; };

// Derivative of dot(contact_force, f_bar).
INLINE ContactAdjoint contact_force_adjoint(const ContactParameters& p, Real depth, Vec3 u, Vec3 f_bar) {
    const Real speed = sliding_speed(u), inverse_speed = one() / speed;
    const Real firmness = p.stiffness - p.damping * u.z;
    const Real normal = larger(depth * firmness, zero());
    const Mask slides = p.friction * normal * inverse_speed < p.friction_stiffness;
    const Mask presses = firmness > zero();
    const Real along = (u.x * f_bar.x + u.y * f_bar.y);  // drag works against this

    const Real drag = select(slides, p.friction * normal * inverse_speed, p.friction_stiffness);
    const Real drag_bar = -along;
    const Real speed_bar = select(slides, -drag * inverse_speed * drag_bar, zero());
    const Real normal_bar = f_bar.z + select(slides, p.friction * inverse_speed * drag_bar, zero());
    const Real pressed_bar = select(presses, normal_bar, zero());

    ContactAdjoint result;
    result.depth = pressed_bar * firmness;
    result.u.x = speed_bar * u.x * inverse_speed - drag * f_bar.x;
    result.u.y = speed_bar * u.y * inverse_speed - drag * f_bar.y;
    result.u.z = -pressed_bar * p.damping * depth;
    result.parameters.stiffness = pressed_bar * depth;
    result.parameters.damping = -pressed_bar * depth * u.z;
    result.parameters.friction_stiffness = select(slides, zero(), drag_bar);
    result.parameters.friction = select(slides, normal * inverse_speed * drag_bar, zero());
    return result;
}

// A contact point touches the ground below its centre. Positions are relative to the world's origin.
struct ContactPoint { Vec3 centre, touching; Real depth; };

INLINE Real contact_depth(const World& world, const Model& model, int body, int point) {
    const Vec3 up = world.body_rotation[body].row[2];  // the row that gives z
    const Real height = dot(up, model.point_position[point]) + world.body_position[body].z;
    return model.ground[0] + model.point_radius[point] - (world.origin.z + height);
}
INLINE ContactPoint contact_point(const World& world, const Model& model, int body, int point, Real depth) {
    ContactPoint result;
    result.centre = world.body_rotation[body] * model.point_position[point] + world.body_position[body];
    result.touching = result.centre - vec3(zero(), zero(), real(model.point_radius[point]));
    result.depth = depth;
    return result;
}

// The wrench of the ground on a body, all its points together.
INLINE Force ground_force(const World& world, const Model& model, int body) {
    Force sum = zero_force();
    for (int point = model.body_point_start[body]; point < model.body_point_start[body + 1]; ++point) {
        const Real depth = contact_depth(world, model, body, point);
        if (!any(depth > zero())) continue;
        const ContactPoint at = contact_point(world, model, body, point, depth);
        const Vec3 u = velocity_at(world.body_velocity[body], at.touching);
        const Vec3 f = contact_force(contact_parameters(world, model, model.point_shape[point]), depth, u);
        sum = select(depth > zero(), sum + force_at(f, at.touching), sum);
    }
    return sum;
}

// Derivative of dot(body_lambda, ground_force): adds to velocity_bar and pose_bar, returns ground_force itself.
INLINE Force ground_force_adjoint(const World& world, Adjoint& adjoint, const Model& model, int body,
                                  Force& velocity_bar, Force& pose_bar) {
    Force sum = zero_force();
    const Motion velocity = world.body_velocity[body], lambda = adjoint.body_lambda[body];
    for (int point = model.body_point_start[body]; point < model.body_point_start[body + 1]; ++point) {
        const Real depth = contact_depth(world, model, body, point);
        const Mask touches = depth > zero();
        if (!any(touches)) continue;
        const int shape = model.point_shape[point];
        const ContactParameters parameters = contact_parameters(world, model, shape);
        const ContactPoint at = contact_point(world, model, body, point, depth);
        const Vec3 u = velocity_at(velocity, at.touching);
        const Vec3 f = contact_force(parameters, depth, u);
        const ContactAdjoint bar = contact_force_adjoint(parameters, depth, u, velocity_at(lambda, at.touching));
        // The touching point moves with the centre: through u, through the lever of f, and straight into the ground.
        Vec3 point_bar = cross(bar.u, velocity.angular) + cross(f, lambda.angular);
        point_bar.z = point_bar.z - bar.depth;
        sum = select(touches, sum + force_at(f, at.touching), sum);
        velocity_bar = select(touches, velocity_bar + force_at(bar.u, at.touching), velocity_bar);
        pose_bar = select(touches, pose_bar + force_at(point_bar, at.centre), pose_bar);
        if (per_world_parameters) {
            Real* shape_bar = adjoint.parameter_bar + shape;
            shape_bar[contact_stiffness_column] += select(touches, bar.parameters.stiffness, zero());
            shape_bar[contact_damping_column] += select(touches, bar.parameters.damping, zero());
            shape_bar[friction_stiffness_column] += select(touches, bar.parameters.friction_stiffness, zero());
            shape_bar[friction_column] += select(touches, bar.parameters.friction, zero());
        }
    }
    return sum;
}
