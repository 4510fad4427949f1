// Constants that a user may give per world and differentiate by. A kernel built without them reads the model's own.
#pragma once
#include "world.h"

INLINE Real mass_factor(const World& world, int body) {
    return per_world_parameters ? world.parameter[body] : one();
}
INLINE Real shape_parameter(const World& world, int which, int shape, Scalar otherwise) {
    return per_world_parameters ? world.parameter[num_bodies + which * num_shapes + shape] : real(otherwise);
}
INLINE Real contact_stiffness(const World& world, const Model& model, int shape) {
    return shape_parameter(world, 0, shape, model.shape_stiffness[shape]);
}
INLINE Real contact_damping(const World& world, const Model& model, int shape) {
    return shape_parameter(world, 1, shape, model.shape_damping[shape]);
}
INLINE Real friction_stiffness(const World& world, const Model& model, int shape) {
    return shape_parameter(world, 2, shape, model.shape_friction_stiffness[shape]);
}
INLINE Real friction(const World& world, const Model& model, int shape) {
    return shape_parameter(world, 3, shape, model.shape_friction[shape]);
}
