// A ball or capsule against a box: at the point of its axis nearest to the box, drawn to the middle of the axis by a
// small term, as between capsules (touch_round.h). Outside of the box the normal points from the nearest point of the
// box to it; inside, it is that of the nearest face.
#pragma once
#include "touch_round.h"

struct BoxTouch : Touch {
    Feeler a;
    Vec3 at_a, beyond;      // beyond: from the box to at_a, zero inside
    Vec3 normal_in_box, half_in_box;
    Vec3 outside;           // per axis of the box: 1 where beyond a face, else 0
    Real distance, stiffness;
    Mask is_outside, s_moves;
};

INLINE Real beyond_face(Real y, Scalar size) { return y - larger(smaller(y, real(size)), real(-size)); }
INLINE Vec3 beyond_box(Vec3 y, Constant3 size) {
    return vec3(beyond_face(y.x, size.x), beyond_face(y.y, size.y), beyond_face(y.z, size.z));
}
INLINE Vec3 times(Vec3 a, Vec3 b) { return vec3(a.x * b.x, a.y * b.y, a.z * b.z); }

// The slope of  |beyond(s)|^2 / 2 + draw s^2 / 2  grows with s along straight pieces, with bends where the axis passes
// the plane of a face: between the two bends around its zero it is a straight line.
struct NearestOnAxis {
    Vec3 centre, half;
    Constant3 size;
    Scalar draw;
    Real low, low_slope, high, high_slope;

    INLINE Real slope(Real s) const { return dot(half, beyond_box(centre + half * s, size)) + s * draw; }
    INLINE void bend(Real face, Real y, Real rate) {
        const Mask moves = (rate > real(Scalar(1e-20))) | (rate < real(Scalar(-1e-20)));
        const Real s = within_one(select(moves, (face - y) / select(moves, rate, one()), zero()));
        const Real found = slope(s);
        const Mask below = (found <= zero()) & (s > low), above = (found >= zero()) & (s < high);
        low = select(below, s, low);
        low_slope = select(below, found, low_slope);
        high = select(above, s, high);
        high_slope = select(above, found, high_slope);
    }
    INLINE Real find() {
        low = -one();
        high = one();
        low_slope = slope(low);
        high_slope = slope(high);
        const Mask at_low = low_slope >= zero(), at_high = high_slope <= zero();
        for (int side = -1; side <= 1; side += 2) {
            bend(real(size.x * side), centre.x, half.x);
            bend(real(size.y * side), centre.y, half.y);
            bend(real(size.z * side), centre.z, half.z);
        }
        const Real rise = high_slope - low_slope;
        const Mask rises = rise > zero();
        const Real s = low - (high - low) * low_slope / select(rises, rise, one());
        return select(at_low, -one(), select(at_high, one(), select(rises, s, low)));
    }
};

// The normal of the nearest face, for a point inside, and minus the distance to it.
INLINE Real nearest_face(Vec3 y, Constant3 size, Vec3& normal) {
    const Vec3 sign = vec3(select(y.x < zero(), -one(), one()), select(y.y < zero(), -one(), one()),
                           select(y.z < zero(), -one(), one()));
    const Real gap_x = size.x - y.x * sign.x, gap_y = size.y - y.y * sign.y, gap_z = size.z - y.z * sign.z;
    const Mask is_x = (gap_x <= gap_y) & (gap_x <= gap_z), y_before_z = gap_y <= gap_z;
    normal.x = select(is_x, sign.x, zero());
    normal.y = select(is_x, zero(), select(y_before_z, sign.y, zero()));
    normal.z = select(is_x, zero(), select(y_before_z, zero(), sign.z));
    return -select(is_x, gap_x, select(y_before_z, gap_y, gap_z));
}

INLINE Vec3 into_box(const World& world, const Model& model, int box, Vec3 direction) {
    return row_times(turned_back(world, model.box_body[box], direction), mat3(model.box_rotation[box]));
}
INLINE Vec3 out_of_box(const World& world, const Model& model, int box, Vec3 direction) {
    return turned(world, model.box_body[box], mat3(model.box_rotation[box]) * direction);
}
INLINE Vec3 box_centre(const World& world, const Model& model, int box) {
    return carried(world, model.box_body[box], vec3(model.box_position[box]));
}

INLINE BoxTouch touch_box(const World& world, const Model& model, const Feeler& a, Scalar a_square, int box) {
    const Constant3 size = model.box_size[box];
    BoxTouch r;
    r.a = a;
    Vec3 y = into_box(world, model, box, a.centre - box_centre(world, model, box));
    r.half_in_box = into_box(world, model, box, a.half);
    r.s_moves = zero() > one();
    r.at_a = a.centre;
    r.stiffness = one();
    if (a_square > 0) {
        NearestOnAxis nearest;
        nearest.centre = y;
        nearest.half = r.half_in_box;
        nearest.size = size;
        nearest.draw = a_square * DRAW_TO_MIDDLE;
        const Real s = nearest.find();
        r.s_moves = (s < one()) & (s > -one());
        r.at_a += a.half * s;
        y += r.half_in_box * s;
        r.stiffness = real(nearest.draw);
    }
    const Vec3 beyond = beyond_box(y, size);
    const Real square = dot(beyond, beyond);
    r.is_outside = square > zero();
    r.outside = vec3(select(beyond.x == zero(), zero(), one()), select(beyond.y == zero(), zero(), one()),
                     select(beyond.z == zero(), zero(), one()));
    r.stiffness += dot(times(r.half_in_box, r.outside), r.half_in_box);
    r.distance = square_root(square + Scalar(1e-30));
    Vec3 face;
    const Real inside = nearest_face(y, size, face);
    r.normal_in_box = select(r.is_outside, beyond * (one() / r.distance), face);
    r.normal = out_of_box(world, model, box, r.normal_in_box);
    r.beyond = out_of_box(world, model, box, beyond);
    r.depth = a.radius - select(r.is_outside, r.distance, inside);
    r.point = middle_of_overlap(r.at_a, r.normal, a.radius, r.depth);
    return r;
}

// Derivative by moving the first body.
INLINE Force touch_box_adjoint(const World& world, const Model& model, const BoxTouch& r, int box, Touch bar) {
    Vec3 a_bar;
    middle_of_overlap_adjoint(r, r.a.radius, bar, a_bar);
    // The normal turns only as far as it is not that of a face.
    const Vec3 normal_bar = times(into_box(world, model, box, bar.normal), r.outside);
    const Vec3 turning = (normal_bar - r.normal_in_box * dot(r.normal_in_box, normal_bar)) * (one() / r.distance);
    a_bar += out_of_box(world, model, box, select(r.is_outside, turning, zero3())) - r.normal * bar.depth;
    // s follows: what it minimises stays stationary.
    const Real share = select(r.s_moves, dot(r.a.half, a_bar) / r.stiffness, zero());
    a_bar -= out_of_box(world, model, box, times(r.half_in_box, r.outside)) * share;
    const Force of_point = force_at(a_bar, r.at_a);
    return force(of_point.angular - cross(r.a.half, r.beyond) * share, of_point.linear);
}
