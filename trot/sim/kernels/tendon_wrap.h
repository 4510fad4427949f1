// A tendon from one end to the other around a sphere or a cylinder, as MuJoCo 4 lays it: straight to a point of tangency,
// along the surface on the shortest way, straight to the other end; or just straight, where nothing is in the way.
// `side`, where given, chooses the side that it passes on.
// In the plane of the wrap, with ends at distances r0 and r1 from the middle and the swept angle theta between them,
//   length = s0 + s1 + radius (theta - acos(radius / r0) - acos(radius / r1)),   s^2 = r^2 - radius^2
// whose gradient by an end is the unit vector along its straight part. On a cylinder, unrolled, the climb along its axis
// is the other side of a right triangle.
#pragma once
#include "spatial.h"

struct Vec2 { Real x, y; };

INLINE Vec2 vec2(Real x, Real y) { Vec2 r; r.x = x; r.y = y; return r; }
INLINE Vec2 operator+(Vec2 a, Vec2 b) { return vec2(a.x + b.x, a.y + b.y); }
INLINE Vec2 operator-(Vec2 a, Vec2 b) { return vec2(a.x - b.x, a.y - b.y); }
INLINE Vec2 operator*(Vec2 a, Real s) { return vec2(a.x * s, a.y * s); }
INLINE Real dot(Vec2 a, Vec2 b) { return a.x * b.x + a.y * b.y; }
INLINE Real cross(Vec2 a, Vec2 b) { return a.x * b.y - a.y * b.x; }

constexpr Scalar NO_LENGTH = Scalar(1e-15);  // MuJoCo's mjMINVAL

INLINE Real length_of(Vec3 a) { return square_root(dot(a, a) + Scalar(1e-30)); }

// Between two unit vectors, from 0 to pi, with all digits where it is small: 32 times the angle of a 32nd of it.
INLINE Real angle_between(Vec3 a, Vec3 b) {
    Real t = length_of(b - a) / (length_of(a + b) + Scalar(2));
    for (int halving = 0; halving < 3; ++halving) t = t / (square_root(t * t + Scalar(1)) + Scalar(1));
    const Real x = t * t;
    Real series = real(Scalar(1.0 / 17));
    series = Scalar(1.0 / 15) - series * x;
    series = Scalar(1.0 / 13) - series * x;
    series = Scalar(1.0 / 11) - series * x;
    series = Scalar(1.0 / 9) - series * x;
    series = Scalar(1.0 / 7) - series * x;
    series = Scalar(1.0 / 5) - series * x;
    series = Scalar(1.0 / 3) - series * x;
    return t * (Scalar(1) - series * x) * Scalar(32);
}

// The plane of a wrap: ends a and b in it, and where asked for the direction of the side.
struct Circle { Vec2 a, b, side; bool has_side; Scalar radius; };

// Whether the tendon touches, and which way it turns: counterclockwise (1) or clockwise (-1). Past a side it never crosses
// the ray that points away from it; else it goes the short way.
INLINE Mask wraps_circle(const Circle& c, Real& turn) {
    const Real square = real(c.radius * c.radius), area = cross(c.a, c.b);
    const Real a_over = cross(c.side, c.a), b_over = cross(c.side, c.b);
    const Mask on_both = (a_over < zero()) != (b_over < zero());
    const Real shortest = select(area < zero(), -one(), one());
    turn = c.has_side ? select(on_both, select(a_over < zero(), one(), -one()), shortest) : shortest;
    const Vec2 span = c.b - c.a;
    const Real span_square = dot(span, span);
    const Real share = -dot(span, c.a) / larger(span_square, real(NO_LENGTH));
    const Vec2 nearest = c.a + span * smaller(larger(share, zero()), one());
    const Mask in_the_way = (dot(nearest, nearest) <= square) | (turn * area < zero());
    return in_the_way & (dot(c.a, c.a) >= square) & (dot(c.b, c.b) >= square) & (span_square >= real(NO_LENGTH));
}

// Seen from the middle, or from the nearest point of a cylinder's axis: an end's direction, its distance, and the length
// of the straight part.
struct WrapEnd { Vec3 direction; Real distance, straight; };

INLINE WrapEnd wrap_end(Vec3 point, Scalar radius) {
    WrapEnd end;
    end.distance = length_of(point);
    end.direction = point * (one() / end.distance);
    const Real square = end.distance * end.distance - radius * radius;
    end.straight = square_root(larger(square, real(Scalar(1e-30))));
    return end;
}

struct Wrap {
    Mask touches;
    WrapEnd a, b;
    Vec3 normal;       // unit: the tendon turns about it
    Vec3 axis;         // of a cylinder; of a sphere zero
    Real spread;       // of a sphere: sine of the angle between the ends, negative on the long way round; else zero
    Real flat, climb;  // length around the axis and along it
    Real length;
    Vec3 a_flat_bar, b_flat_bar;  // gradient of `flat` by the ends
    Vec3 a_bar, b_bar;            // gradient of `length` by the ends, as seen from the shape
};

// The way on the circle of a given normal. a and b are seen from the shape.
INLINE void lay(Wrap& w, Vec3 a, Vec3 b, Scalar radius) {
    w.a = wrap_end(a - w.axis * dot(w.axis, a), radius);
    w.b = wrap_end(b - w.axis * dot(w.axis, b), radius);
    const Real a_near = radius / w.a.distance, a_far = w.a.straight / w.a.distance;
    const Real b_near = radius / w.b.distance, b_far = w.b.straight / w.b.distance;
    const Vec3 a_across = cross(w.normal, w.a.direction), b_across = cross(w.normal, w.b.direction);
    const Vec3 leaves = w.a.direction * a_near + a_across * a_far;
    const Vec3 arrives = w.b.direction * b_near - b_across * b_far;
    const Real least = angle_between(leaves, arrives);
    const Mask beyond = dot(w.normal, cross(leaves, arrives)) < zero();
    const Real angle = select(beyond, Scalar(6.283185307179586) - least, least);
    w.flat = w.a.straight + w.b.straight + angle * radius;
    w.climb = dot(w.axis, b - a);
    w.length = square_root(w.flat * w.flat + w.climb * w.climb);
    w.a_flat_bar = w.a.direction * a_far - a_across * a_near;
    w.b_flat_bar = w.b.direction * b_far + b_across * b_near;
    const Real flat_share = w.flat / w.length, climb_share = w.climb / w.length;
    w.a_bar = w.a_flat_bar * flat_share - w.axis * climb_share;
    w.b_bar = w.b_flat_bar * flat_share + w.axis * climb_share;
}

// For ends on one line with the middle, any plane through that line; the same as MuJoCo's.
INLINE Vec3 some_normal(Vec3 direction) {
    const Vec3 size = vec3(larger(direction.x, -direction.x), larger(direction.y, -direction.y),
                           larger(direction.z, -direction.z));
    const Mask x = (size.x > size.y) & (size.x > size.z), y = size.y > size.z;
    const Vec3 other = select(x, vec3(zero(), one(), one()),
                              select(y, vec3(one(), zero(), one()), vec3(one(), one(), zero())));
    const Vec3 normal = cross(direction, other);
    return normal * (one() / length_of(normal));
}

INLINE Wrap wrap_sphere(Vec3 a, Vec3 b, Vec3 side, bool has_side, Scalar radius) {
    const Vec3 x = a * (one() / length_of(a)), towards_b = b * (one() / length_of(b));
    const Vec3 normal = cross(x, towards_b);
    const Real spread = length_of(normal);
    const Mask in_line = spread < real(Scalar(4) * NO_LENGTH);
    const Vec3 unit = select(in_line, some_normal(x), normal * (one() / spread)), y = cross(unit, x);
    Circle circle;
    circle.a = vec2(dot(x, a), zero());
    circle.b = vec2(dot(x, b), dot(y, b));
    circle.side = vec2(dot(x, side), dot(y, side));
    circle.has_side = has_side;
    circle.radius = radius;
    Wrap w;
    Real turn;
    w.touches = wraps_circle(circle, turn);
    w.normal = unit * turn;
    w.axis = zero3();
    w.spread = select(in_line, zero(), spread * turn);
    lay(w, a, b, radius);
    return w;
}

// x and y span the plane across the axis.
INLINE Wrap wrap_cylinder(Vec3 a, Vec3 b, Vec3 side, bool has_side, Scalar radius, Vec3 x, Vec3 y) {
    Circle circle;
    circle.a = vec2(dot(x, a), dot(y, a));
    circle.b = vec2(dot(x, b), dot(y, b));
    circle.side = vec2(dot(x, side), dot(y, side));
    circle.has_side = has_side;
    circle.radius = radius;
    Wrap w;
    Real turn;
    w.touches = wraps_circle(circle, turn);
    w.axis = cross(x, y);
    w.normal = w.axis * turn;
    w.spread = zero();
    lay(w, a, b, radius);
    return w;
}

// How an end's direction, and near = radius / distance, change while it moves.
struct WrapEndRate { Vec3 direction; Real near, far; };

INLINE WrapEndRate wrap_end_rate(const WrapEnd& end, Vec3 axis, Vec3 moves, Scalar radius) {
    const Real apart = dot(end.direction, moves), inverse = one() / end.distance;
    WrapEndRate rate;
    rate.direction = (moves - axis * dot(axis, moves) - end.direction * apart) * inverse;
    rate.near = -apart * inverse * inverse * radius;
    rate.far = apart * inverse * inverse * (radius * radius) / end.straight;
    return rate;
}

// How the gradient changes while the ends move, as seen from the shape: the second derivative times that motion.
INLINE void wrap_gradient_rate(const Wrap& w, Scalar radius, Vec3 a_moves, Vec3 b_moves, Vec3& a_rate, Vec3& b_rate) {
    const WrapEndRate a = wrap_end_rate(w.a, w.axis, a_moves, radius), b = wrap_end_rate(w.b, w.axis, b_moves, radius);
    const Vec3 swing = cross(a.direction, w.b.direction) + cross(w.a.direction, b.direction);
    const Mask turns = (w.spread > zero()) | (w.spread < zero());
    const Real inverse = select(turns, one() / select(turns, w.spread, one()), zero());
    const Vec3 normal_rate = (swing - w.normal * dot(w.normal, swing)) * inverse;
    const Vec3 a_across = cross(w.normal, w.a.direction), b_across = cross(w.normal, w.b.direction);
    const Vec3 a_across_rate = cross(normal_rate, w.a.direction) + cross(w.normal, a.direction);
    const Vec3 b_across_rate = cross(normal_rate, w.b.direction) + cross(w.normal, b.direction);
    const Real a_inverse = one() / w.a.distance, b_inverse = one() / w.b.distance;
    const Vec3 a_flat_rate = a.direction * (w.a.straight * a_inverse) + w.a.direction * a.far
                             - a_across_rate * (radius * a_inverse) - a_across * a.near;
    const Vec3 b_flat_rate = b.direction * (w.b.straight * b_inverse) + w.b.direction * b.far
                             + b_across_rate * (radius * b_inverse) + b_across * b.near;
    const Real flat_rate = dot(w.a_flat_bar, a_moves) + dot(w.b_flat_bar, b_moves);
    const Real climb_rate = dot(w.axis, b_moves - a_moves);
    const Real over = one() / w.length, flat_share = w.flat * over, climb_share = w.climb * over;
    const Real length_rate = flat_share * flat_rate + climb_share * climb_rate;
    const Real flat_share_rate = (flat_rate - flat_share * length_rate) * over;
    const Vec3 climbing = w.axis * ((climb_rate - climb_share * length_rate) * over);
    a_rate = a_flat_rate * flat_share + w.a_flat_bar * flat_share_rate - climbing;
    b_rate = b_flat_rate * flat_share + w.b_flat_bar * flat_share_rate + climbing;
}
