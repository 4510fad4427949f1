// Constants that a user may give per world and differentiate by. A kernel built without them reads the model's own.
// In a row of them, NAME_column is where those called NAME begin; trot/sim/parameters.py says in which order.
#pragma once
#include "world.h"

INLINE Real parameter_or(const World& world, int column, Scalar otherwise) {
    return per_world_parameters ? world.parameter[column] : real(otherwise);
}
INLINE Real mass_factor(const World& world, int body) { return parameter_or(world, body_mass_column + body, Scalar(1)); }
INLINE Real contact_stiffness(const World& world, const Model& model, int shape) {
    return parameter_or(world, contact_stiffness_column + shape, model.shape_stiffness[shape]);
}
INLINE Real contact_damping(const World& world, const Model& model, int shape) {
    return parameter_or(world, contact_damping_column + shape, model.shape_damping[shape]);
}
INLINE Real friction_stiffness(const World& world, const Model& model, int shape) {
    return parameter_or(world, friction_stiffness_column + shape, model.shape_friction_stiffness[shape]);
}
INLINE Real friction(const World& world, const Model& model, int shape) {
    return parameter_or(world, friction_column + shape, model.shape_friction[shape]);
}
