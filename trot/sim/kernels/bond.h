// Bonds: what holds two bodies together, or one to the world, at a point (connect) and in its orientation too (weld).
// With the anchors p_a and p_b, their middle m, the velocity u and the rate of turning w of body a as seen from body b,
//   force on a at m = -(stiffness (p_a - p_b) + damping u(m)),   torque on a = -(turn_stiffness c + turn_damping w)
// where c = 2 sin(angle / 2) axis is the chord of the rotation from b's frame of the bond to a's, in world axes: for
// small angles the rotation vector. Body b feels the opposite at the same point, so that no momentum comes or goes.
#pragma once
#include "lift.h"
#include "pair_contact.h"

// The rotation E from b's frame of the bond to a's, in world axes: its sine times its axis, its trace, and the chord
// sine / w, where w is the cosine of half the angle but 0.05 at least. Within 6 degrees of half a turn the chord so falls
// to zero instead of jumping to the other side.
struct BondTurn { Mat3 a, b; Vec3 sine, chord; Real trace, w; Mask far; };

constexpr Scalar least_half_cosine = Scalar(0.05);

INLINE Mat3 bond_frame(const World& world, int body, const Scalar* table, int bond) {
    Mat3 own;
    for (int i = 0; i < 3; ++i) own.row[i] = triple(table, 3 * bond + i);
    return body < 0 ? own : world.body_rotation[body] * own;
}

INLINE BondTurn bond_turn(const World& world, const Model& model, int bond) {
    BondTurn t;
    t.a = bond_frame(world, model.bond_body_a[bond], model.bond_frame_a, bond);
    t.b = bond_frame(world, model.bond_body_b[bond], model.bond_frame_b, bond);
    const auto e = [&](int i, int j) { return dot(t.a.row[i], t.b.row[j]); };
    t.trace = e(0, 0) + e(1, 1) + e(2, 2);
    t.sine = vec3(e(2, 1) - e(1, 2), e(0, 2) - e(2, 0), e(1, 0) - e(0, 1)) * real(Scalar(0.5));
    const Real square = (t.trace + Scalar(1)) * Scalar(0.25), least = real(least_half_cosine * least_half_cosine);
    t.far = square < least;
    t.w = square_root(larger(square, least));
    t.chord = t.sine * (one() / t.w);
    return t;
}

// Derivative of dot(chord, chord_bar) with respect to turning a's frame by a small rotation d: the sine changes by
// (trace d - E d) / 2, the trace by -2 dot(sine, d).
INLINE Vec3 bond_turn_adjoint(const BondTurn& t, Vec3 chord_bar) {
    const Real inverse = one() / t.w;
    const Vec3 through_sine = (chord_bar * t.trace - t.b * row_times(chord_bar, t.a)) * (inverse * Scalar(0.5));
    const Real through_w = dot(t.sine, chord_bar) * inverse * inverse * inverse * Scalar(0.25);
    return through_sine + t.sine * select(t.far, zero(), through_w);
}

struct BondAt { Vec3 a, b, middle, apart; };

INLINE BondAt bond_at(const World& world, const Model& model, int bond) {
    BondAt at;
    at.a = carried(world, model.bond_body_a[bond], triple(model.bond_point_a, bond));
    at.b = carried(world, model.bond_body_b[bond], triple(model.bond_point_b, bond));
    at.middle = (at.a + at.b) * real(Scalar(0.5));
    at.apart = at.a - at.b;
    return at;
}

INLINE Vec3 bond_pull(const Model& model, int bond, const BondAt& at, const Motion& velocity) {
    return -(at.apart * real(model.bond_stiffness[bond])
             + velocity_at(velocity, at.middle) * real(model.bond_damping[bond]));
}
INLINE Vec3 bond_torque(const Model& model, int bond, const BondTurn& turn, const Motion& velocity) {
    return -(turn.chord * real(model.bond_turn_stiffness[bond])
             + velocity.angular * real(model.bond_turn_damping[bond]));
}

// The wrench on body a; on body b it is the opposite.
STAGE void bonds(World& world, const Model& model, int lane) {
    FOR_LANES(bond, num_bonds) {
        const Motion velocity = seen_from(world.body_velocity, model.bond_body_a[bond], model.bond_body_b[bond]);
        const BondAt at = bond_at(world, model, bond);
        Force sum = force_at(bond_pull(model, bond, at, velocity), at.middle);
        if (model.bond_turns[bond])
            sum.angular += bond_torque(model, bond, bond_turn(world, model, bond), velocity);
        world.bond_force[bond] = sum;
    }
    barrier();
}

// Derivative of the power of all bonds when bodies move with body_lambda.
STAGE void bonds_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane) {
    FOR_LANES(bond, num_bonds) {
        const int body_a = model.bond_body_a[bond], body_b = model.bond_body_b[bond];
        const Motion velocity = seen_from(world.body_velocity, body_a, body_b);
        const Motion lambda = seen_from(adjoint.body_lambda, body_a, body_b);
        const BondAt at = bond_at(world, model, bond);
        const Vec3 pull = bond_pull(model, bond, at, velocity), pull_bar = velocity_at(lambda, at.middle);
        const Vec3 apart_bar = pull_bar * real(-model.bond_stiffness[bond]);
        const Vec3 u_bar = pull_bar * real(-model.bond_damping[bond]);
        // The middle moves with half of each anchor: through u, and through the lever of the pull.
        const Vec3 half_bar = (cross(u_bar, velocity.angular) + cross(pull, lambda.angular)) * real(Scalar(0.5));
        Force sum = force_at(pull, at.middle), velocity_bar = force_at(u_bar, at.middle);
        Force pose_a_bar = force_at(half_bar + apart_bar, at.a), pose_b_bar = force_at(half_bar - apart_bar, at.b);
        if (model.bond_turns[bond]) {
            const BondTurn turn = bond_turn(world, model, bond);
            const Vec3 chord_bar = lambda.angular * real(-model.bond_turn_stiffness[bond]);
            const Vec3 by_a = bond_turn_adjoint(turn, chord_bar);
            sum.angular += bond_torque(model, bond, turn, velocity);
            velocity_bar.angular -= lambda.angular * real(model.bond_turn_damping[bond]);
            pose_a_bar.angular += by_a;
            // Where both turn alike, the chord is carried along.
            pose_b_bar.angular += cross(turn.chord, chord_bar) - by_a;
        }
        world.bond_force[bond] = sum;
        adjoint.bond_velocity_bar[bond] = velocity_bar;
        adjoint.bond_pose_bar[2 * bond] = pose_a_bar;
        adjoint.bond_pose_bar[2 * bond + 1] = pose_b_bar;
    }
    barrier();
}

// Takes what all bonds of a body do to it off its numbers: of_bond(bond, which of its two bodies, number).
template <typename OfBond>
INLINE void subtract_bonds(const Model& model, int lane, Force* of_body, OfBond of_bond) {
    FOR_LANES(item, 6 * num_bodies) {
        const int body = item / 6, number = item % 6;
        Real sum = numbers(of_body)[item];
        for (int k = model.body_bond_start[body]; k < model.body_bond_start[body + 1]; ++k) {
            const int which = model.body_bond[k];
            sum -= of_bond(which / 2, which % 2, number);
        }
        numbers(of_body)[item] = sum;
    }
    barrier();
}
INLINE void subtract_bond_forces(World& world, const Model& model, int lane) {
    subtract_bonds(model, lane, world.body_force,
                   [&](int bond, int which, int number) { return opposite(world.bond_force[bond], which, number); });
}
INLINE void subtract_bond_bars(Adjoint& adjoint, const Model& model, int lane) {
    subtract_bonds(model, lane, adjoint.velocity_bar, [&](int bond, int which, int number) {
        return opposite(adjoint.bond_velocity_bar[bond], which, number);
    });
    subtract_bonds(model, lane, adjoint.pose_bar, [&](int bond, int which, int number) {
        return numbers(&adjoint.bond_pose_bar[2 * bond + which])[number];
    });
}
