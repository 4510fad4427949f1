// The contact law of contact.h between two shapes: along the normal of their touch, at one point, equal and opposite.
// A feeler of the first shape, a ball or a capsule, touches the second one (touch_round.h, touch_box.h, touch_plane.h,
// touch_field.h). Each of these finds a Touch and, next to it, says how the touch moves with the first body. How it
// moves with the second body follows: where both move alike, the depth stays and the rest is carried along.
#pragma once
#include "contact.h"

struct Feeler { Vec3 centre, half; Scalar radius; };  // the ball swept from centre - half to centre + half

// The normal is a unit vector and points at the first shape.
struct Touch { Vec3 point, normal; Real depth; };

INLINE Feeler feeler_at(const World& world, const Model& model, int feeler) {
    Feeler result;
    result.centre = world.feeler_position[feeler];
    result.half = world.feeler_half[feeler];
    result.radius = model.feeler_radius[feeler];
    return result;
}

// How the second shape, on a body or fixed to the world (-1), turns a vector, and where it has a point.
INLINE Vec3 carried(const World& world, int body, Vec3 point) {
    if (body < 0) return point - world.origin;
    return world.body_rotation[body] * point + world.body_position[body];
}
INLINE Vec3 turned(const World& world, int body, Vec3 direction) {
    return body < 0 ? direction : world.body_rotation[body] * direction;
}
INLINE Vec3 turned_back(const World& world, int body, Vec3 direction) {
    return body < 0 ? direction : row_times(direction, world.body_rotation[body]);
}

// u is the velocity of the first body's point as seen from the second body.
INLINE Vec3 touch_force(const ContactParameters& p, const Touch& touch, Vec3 u) {
    const Real rise = dot(touch.normal, u);
    const Vec3 along = u - touch.normal * rise;
    const Real speed = square_root(dot(along, along) + Scalar(1e-30));
    const Vec3 f = contact_force(p, touch.depth, vec3(speed, zero(), rise));
    return touch.normal * f.z + along * (f.x / speed);
}

struct TouchAdjoint { Touch touch; Vec3 u; ContactParameters parameters; };

// Derivative of dot(touch_force, f_bar); that by the point stays zero.
INLINE TouchAdjoint touch_force_adjoint(const ContactParameters& p, const Touch& touch, Vec3 u, Vec3 f_bar) {
    const Vec3 n = touch.normal;
    const Real rise = dot(n, u);
    const Vec3 along = u - n * rise;
    const Real speed = square_root(dot(along, along) + Scalar(1e-30));
    const Vec3 heading = along * (one() / speed), plain_u = vec3(speed, zero(), rise);
    const Real f_along_bar = dot(heading, f_bar);
    const Vec3 f = contact_force(p, touch.depth, plain_u);
    const ContactAdjoint bar = contact_force_adjoint(p, touch.depth, plain_u, vec3(f_along_bar, zero(), dot(n, f_bar)));
    const Vec3 along_bar = heading * bar.u.x + (f_bar - heading * f_along_bar) * (f.x / speed);
    const Real rise_bar = bar.u.z - dot(n, along_bar);
    TouchAdjoint result;
    result.touch.point = zero3();
    result.touch.normal = f_bar * f.z + u * rise_bar - along_bar * rise;
    result.touch.depth = bar.depth;
    result.u = along_bar + n * rise_bar;
    result.parameters = bar.parameters;
    return result;
}

// A touch acts in the middle of the overlap of a ball at `centre`: the derivative by the point goes to the other three.
INLINE Vec3 middle_of_overlap(Vec3 centre, Vec3 normal, Scalar radius, Real depth) {
    return centre - normal * (radius - depth * Scalar(0.5));
}
INLINE void middle_of_overlap_adjoint(const Touch& touch, Scalar radius, Touch& bar, Vec3& centre_bar) {
    centre_bar = bar.point;
    bar.normal -= bar.point * (radius - touch.depth * Scalar(0.5));
    bar.depth += dot(touch.normal, bar.point) * Scalar(0.5);
}
