// The path of a tendon, piece by piece: from a waypoint on body a to one on body b, straight or around a shape on a
// third body. A piece's length changes with the wrench of each body on it: with W = force_at(gradient by the end, end),
//   d length = dot(motion of a, W_a) + dot(motion of b, W_b) - dot(motion of the shape, W_a + W_b)
// because the length stays the same where all three move alike.
#pragma once
#include "muscle.h"
#include "tendon_wrap.h"

struct Piece { Vec3 a, b, a_bar, b_bar; Real length; Wrap wrap; };

INLINE Vec3 shape_axis(const World& world, const Model& model, int piece, int which) {
    const Constant3 axis = model.piece_axis[piece].row[which];
    const int body = model.piece_shape_body[piece];
    return body < 0 ? vec3(axis) : world.body_rotation[body] * axis;
}

INLINE Wrap piece_wrap(const World& world, const Model& model, int piece, Vec3 a, Vec3 b) {
    const int body = model.piece_shape_body[piece];
    const Vec3 middle = waypoint(world, body, model.piece_middle[piece]);
    const Vec3 side = waypoint(world, body, model.piece_side[piece]) - middle;
    const bool has_side = model.piece_has_side[piece];
    const Scalar radius = model.piece_radius[piece];
    if (model.piece_kind[piece] == AROUND_SPHERE) return wrap_sphere(a - middle, b - middle, side, has_side, radius);
    return wrap_cylinder(a - middle, b - middle, side, has_side, radius, shape_axis(world, model, piece, 0),
                         shape_axis(world, model, piece, 1));
}

INLINE Piece find_piece(const World& world, const Model& model, int piece) {
    Piece p;
    p.a = waypoint(world, model.piece_body_a[piece], model.piece_point_a[piece]);
    p.b = waypoint(world, model.piece_body_b[piece], model.piece_point_b[piece]);
    const Vec3 span = p.b - p.a;
    p.length = length_of(span);
    p.b_bar = span * (one() / p.length);
    p.a_bar = -p.b_bar;
    if (model.piece_kind[piece] == STRAIGHT) return p;
    p.wrap = piece_wrap(world, model, piece, p.a, p.b);
    p.length = select(p.wrap.touches, p.wrap.length, p.length);
    p.a_bar = select(p.wrap.touches, p.wrap.a_bar, p.a_bar);
    p.b_bar = select(p.wrap.touches, p.wrap.b_bar, p.b_bar);
    return p;
}

// How the gradient changes while the ends move, as seen from the shape.
INLINE void piece_gradient_rate(const Model& model, const Piece& p, int piece, Vec3 a_moves, Vec3 b_moves,
                                Vec3& a_rate, Vec3& b_rate) {
    const Vec3 span = p.b - p.a, opens = b_moves - a_moves;
    const Real inverse = one() / length_of(span);
    const Vec3 direction = span * inverse;
    b_rate = (opens - direction * dot(direction, opens)) * inverse;
    a_rate = -b_rate;
    if (model.piece_kind[piece] == STRAIGHT) return;
    Vec3 a_wrapped, b_wrapped;
    wrap_gradient_rate(p.wrap, model.piece_radius[piece], a_moves, b_moves, a_wrapped, b_wrapped);
    a_rate = select(p.wrap.touches, a_wrapped, a_rate);
    b_rate = select(p.wrap.touches, b_wrapped, b_rate);
}

INLINE Motion motion_of(const Motion* of_body, int body) { return body < 0 ? zero_motion() : of_body[body]; }

// How fast a piece lengthens when bodies move so.
INLINE Real piece_rate(const World& world, const Model& model, int piece, const Motion* of_body) {
    const Force a = world.piece_wrench[2 * piece], b = world.piece_wrench[2 * piece + 1];
    const Real ends = dot(motion_of(of_body, model.piece_body_a[piece]), a)
                      + dot(motion_of(of_body, model.piece_body_b[piece]), b);
    return model.piece_kind[piece] == STRAIGHT
        ? ends : ends - dot(motion_of(of_body, model.piece_shape_body[piece]), a + b);
}

STAGE void place_pieces(World& world, const Model& model, int lane) {
    FOR_LANES(piece, num_pieces) {
        const Piece p = find_piece(world, model, piece);
        const Real share = real(model.piece_share[piece]);
        world.piece_wrench[2 * piece] = force_at(p.a_bar * share, p.a);
        world.piece_wrench[2 * piece + 1] = force_at(p.b_bar * share, p.b);
        world.piece_length[piece] = p.length * share;
    }
    barrier();
}

// Derivative of  power * (rate with body_lambda) + speed_weight * (rate with body_velocity)  by moving each of the three
// bodies, the lengths' own effect (length_weight) included.
INLINE void piece_pose_adjoint(const World& world, Adjoint& adjoint, const Model& model, int piece, Real power,
                               Real speed_weight, Real length_weight) {
    const Piece p = find_piece(world, model, piece);
    const int body_a = model.piece_body_a[piece], body_b = model.piece_body_b[piece];
    const int shape = model.piece_kind[piece] == STRAIGHT ? -1 : model.piece_shape_body[piece];
    const auto moves = [&](int body) {
        return motion_of(adjoint.body_lambda, body) * power + motion_of(world.body_velocity, body) * speed_weight;
    };
    const Real share = real(model.piece_share[piece]);
    const Motion of_shape = moves(shape);
    const Motion of_a = (moves(body_a) - of_shape) * share, of_b = (moves(body_b) - of_shape) * share;
    const Vec3 a_moves = velocity_at(of_a, p.a), b_moves = velocity_at(of_b, p.b);
    Vec3 a_rate, b_rate;
    piece_gradient_rate(model, p, piece, a_moves, b_moves, a_rate, b_rate);
    const Force a = world.piece_wrench[2 * piece] * length_weight, b = world.piece_wrench[2 * piece + 1] * length_weight;
    const Force turns_a = force_at(a_rate, p.a), turns_b = force_at(b_rate, p.b);
    adjoint.piece_pose_bar[3 * piece] = a + turns_a + force_at(cross(p.a_bar, of_a.angular), p.a);
    adjoint.piece_pose_bar[3 * piece + 1] = b + turns_b + force_at(cross(p.b_bar, of_b.angular), p.b);
    Force with_shape = -(a + b + turns_a + turns_b);
    with_shape.angular += cross(p.a_bar, a_moves) + cross(p.b_bar, b_moves);
    adjoint.piece_pose_bar[3 * piece + 2] = with_shape;
}

// Takes off each body's numbers what the pieces do to it: of_piece(piece, which of its three bodies, number).
// body_piece holds 3 * piece + which.
template <typename OfPiece>
INLINE void subtract_pieces(const Model& model, int lane, Force* of_body, OfPiece of_piece) {
    FOR_LANES(item, 6 * num_bodies) {
        const int body = item / 6, number = item % 6;
        Real sum = numbers(of_body)[item];
        for (int k = model.body_piece_start[body]; k < model.body_piece_start[body + 1]; ++k)
            sum -= of_piece(model.body_piece[k] / 3, model.body_piece[k] % 3, number);
        numbers(of_body)[item] = sum;
    }
    barrier();
}
// One number of the wrench on one of a piece's bodies, for a unit of push along it.
INLINE Real piece_wrench_number(const World& world, int piece, int which, int number) {
    const Real a = numbers(&world.piece_wrench[2 * piece])[number];
    const Real b = numbers(&world.piece_wrench[2 * piece + 1])[number];
    return which == 0 ? a : which == 1 ? b : -(a + b);
}
