// Gravity compensation: a body's weight, or a share of it, borne from outside at a point of the body.
#pragma once
#include "parameters.h"

// Three numbers of a table.
INLINE Vec3 triple(const Scalar* table, int k) {
    return vec3(real(table[3 * k]), real(table[3 * k + 1]), real(table[3 * k + 2]));
}

struct Lift { Vec3 force, at; };

INLINE Lift lift_of(const World& world, const Model& model, int body) {
    const Real share = mass_factor(world, body) * -model.body_lift[body];
    Lift lift;
    lift.force = vec3(share * model.gravity[0], share * model.gravity[1], share * model.gravity[2]);
    lift.at = world.body_rotation[body] * triple(model.body_lift_position, body) + world.body_position[body];
    return lift;
}

INLINE Force lift_force(const World& world, const Model& model, int body) {
    const Lift lift = lift_of(world, model, body);
    return force_at(lift.force, lift.at);
}

// Derivative of dot(lambda, lift_force) with respect to moving the body.
INLINE Force lift_pose_bar(const World& world, const Model& model, int body, const Motion& lambda) {
    const Lift lift = lift_of(world, model, body);
    return force_at(cross(lift.force, lambda.angular), lift.at);
}
