// A ball against a plane that is fixed to the world: at its deepest point, as on the ground.
#pragma once
#include "touch.h"

INLINE Touch touch_plane(const World& world, const Model& model, const Feeler& a, int plane) {
    const Vec3 above = a.centre - carried(world, -1, vec3(model.plane_position[plane]));
    Touch r;
    r.normal = vec3(model.plane_normal[plane]);
    r.depth = a.radius - dot(r.normal, above);
    r.point = a.centre - r.normal * real(a.radius);
    return r;
}

// Derivative by moving the first body.
INLINE Force touch_plane_adjoint(const Touch& r, const Feeler& a, const Touch& bar) {
    return force_at(bar.point - r.normal * bar.depth, a.centre);
}
