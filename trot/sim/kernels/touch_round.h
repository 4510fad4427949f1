// Spheres and capsules against each other: at the closest points of their axes. Between two parallel capsules these
// could be anywhere along, so a small term draws them to the middle of either capsule: for s and t in [-1, 1] along the
// axes,  |a(s) - b(t)|^2 + m (s^2 + t^2)  is least. Where the axes cross in one point there is no normal, and no force.
#pragma once
#include "touch.h"

// Of the squared lengths of the axes: within about the root of this, in rad, two capsules count as parallel.
constexpr Scalar DRAW_TO_MIDDLE = Scalar(1e-3);

struct RoundTouch : Touch {
    Feeler a, b;
    Vec3 at_a, at_b, apart;
    Real distance, across;  // across: what couples s and t, zero where one of them is held at an end
    Mask s_moves, t_moves;
    Scalar s_weight, t_weight;
};

INLINE Real within_one(Real s) { return larger(smaller(s, one()), -one()); }

// A ball has no axis to move along; its weight only keeps divisions finite.
INLINE Scalar axis_weight(Scalar square, Scalar draw) { return square > 0 ? square + draw : Scalar(1); }

INLINE RoundTouch touch_round(const Feeler& a, const Feeler& b, Scalar a_square, Scalar b_square) {
    RoundTouch r;
    r.a = a;
    r.b = b;
    const Scalar both = a_square + b_square;
    const Scalar draw = both > 0 ? DRAW_TO_MIDDLE * a_square * b_square / both : Scalar(0);
    r.s_weight = axis_weight(a_square, draw);
    r.t_weight = axis_weight(b_square, draw);
    const Vec3 between = a.centre - b.centre;
    const Real across = dot(a.half, b.half), of_a = dot(a.half, between), of_b = dot(b.half, between);
    // s as if t had no ends; then t; and where that is beyond an end, t there and s once more.
    const Real free_s = (across * of_b - of_a * r.t_weight) / (r.s_weight * r.t_weight - across * across);
    const Real free_t = (across * within_one(free_s) + of_b) / r.t_weight;
    r.t_moves = (free_t < one()) & (free_t > -one());
    const Real t = within_one(free_t);
    const Real last_s = select(r.t_moves, free_s, (across * t - of_a) / r.s_weight);
    r.s_moves = (last_s < one()) & (last_s > -one());
    const Real s = within_one(last_s);
    r.across = select(r.s_moves & r.t_moves, across, zero());
    r.at_a = a.centre + a.half * s;
    r.at_b = b.centre + b.half * t;
    r.apart = r.at_a - r.at_b;
    r.distance = square_root(dot(r.apart, r.apart) + Scalar(1e-30));
    r.normal = r.apart * (one() / r.distance);
    r.depth = (a.radius + b.radius) - r.distance;
    r.point = middle_of_overlap(r.at_a, r.normal, a.radius, r.depth);
    return r;
}

// Derivative by moving the first body.
INLINE Force touch_round_adjoint(const RoundTouch& r, Touch bar) {
    Vec3 a_bar;
    middle_of_overlap_adjoint(r, r.a.radius, bar, a_bar);
    const Vec3 apart_bar =
        (bar.normal - r.normal * dot(r.normal, bar.normal)) * (one() / r.distance) - r.normal * bar.depth;
    a_bar += apart_bar;
    // s and t follow: what they minimise stays stationary.
    const Real s_bar = select(r.s_moves, dot(r.a.half, a_bar), zero());
    const Real t_bar = select(r.t_moves, -dot(r.b.half, apart_bar), zero());
    const Real inverse = one() / (r.s_weight * r.t_weight - r.across * r.across);
    const Real s_share = (s_bar * r.t_weight + t_bar * r.across) * inverse;
    const Real t_share = (s_bar * r.across + t_bar * r.s_weight) * inverse;
    a_bar += r.b.half * t_share - r.a.half * s_share;
    const Force of_point = force_at(a_bar, r.at_a);
    return force(of_point.angular - cross(r.a.half, r.apart) * s_share, of_point.linear);
}
