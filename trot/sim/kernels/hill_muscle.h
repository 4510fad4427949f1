// MuJoCo's muscles: along its tendon one pushes apart (a pull is negative) with
//   push = -peak (activation FL(x) FV(v) + FP(x)),    x and v: length and rate in units of the muscle's best length
// FL a bump of four parabolas around x = 1, FV zero from v = -1 downwards and its largest from v = fvmax - 1 upwards, FP
// a parabola from x = 1 on and then a line. All three have continuous slopes; where parabolas meet, the inner one's
// counts. A push is held to its range, and does not change there.
#pragma once
#include "tendon.h"

struct Push { Real value, by_length, by_rate, by_activation; };

struct Curve { Real value, slope; };

// e counts from the best length in half widths of the bump's side: at 1 the parabolas meet, at 2 it ends.
INLINE Curve force_length(const Model& model, int hill, Real x) {
    const Mask shorter = x <= one();
    const Real per = select(shorter, real(-model.hill_shorter[hill]), real(model.hill_longer[hill]));
    const Real e = smaller((x - Scalar(1)) * per, real(Scalar(2)));
    const Mask inner = e <= one();
    Curve curve;
    curve.value = select(inner, one() - e * e * Scalar(0.5), (Scalar(2) - e) * (Scalar(2) - e) * Scalar(0.5));
    curve.slope = select(inner, -e, e - Scalar(2)) * per;
    return curve;
}
INLINE Curve passive_force(const Model& model, int hill, Real x) {
    const Scalar per = model.hill_longer[hill], most = model.hill_passive[hill];
    const Real e = larger((x - Scalar(1)) * per, zero()), bent = smaller(e, one());
    Curve curve;
    curve.value = bent * (e - bent * Scalar(0.5)) * most;
    curve.slope = bent * (per * most);
    return curve;
}
INLINE Curve force_velocity(const Model& model, int hill, Real v) {
    const Scalar most = model.hill_fastest[hill], inverse = model.hill_inverse_rise[hill], rise = most - Scalar(1);
    const Real shortening = larger(v + Scalar(1), zero()), short_of = larger(rise - v, zero());
    const Mask closes = v <= zero();
    Curve curve;
    curve.value = select(closes, shortening * shortening, most - short_of * short_of * inverse);
    curve.slope = select(closes, shortening, short_of * inverse) * Scalar(2);
    return curve;
}

INLINE Push hill_push(const Model& model, int hill, Real length, Real rate, Real activation) {
    const Scalar peak = model.hill_peak[hill], per_length = model.hill_per_length[hill];
    const Scalar per_rate = model.hill_per_rate[hill];
    const Real x = length * per_length + model.hill_offset[hill];
    const Curve active = force_length(model, hill, x), passive = passive_force(model, hill, x);
    const Curve speed = force_velocity(model, hill, rate * per_rate);
    const Real lower = real(model.hill_lower[hill]), upper = real(model.hill_upper[hill]);
    const Real free = -(activation * active.value * speed.value + passive.value) * peak;
    const Mask held = (free < lower) | (free > upper);
    Push push;
    push.value = select(free < lower, lower, select(free > upper, upper, free));
    push.by_length =
        select(held, zero(), -(activation * active.slope * speed.value + passive.slope) * (peak * per_length));
    push.by_rate = select(held, zero(), -activation * active.value * speed.slope * (peak * per_rate));
    push.by_activation = select(held, zero(), -active.value * speed.value * peak);
    return push;
}

INLINE Real sum_of_pieces(const Model& model, int hill, const Real* of_piece) {
    Real sum = zero();
    for (int k = model.hill_piece_start[hill]; k < model.hill_piece_start[hill + 1]; ++k) sum += of_piece[k];
    return sum;
}

// What activates a muscle: a state of its own, or the control itself.
INLINE Real hill_activation(const World& world, const Model& model, int hill) {
    const int act = model.hill_act[hill];
    return act < 0 ? world.control[model.hill_actuator[hill]] : world.act[act];
}

STAGE void hill_muscles(World& world, const Model& model, int lane) {
    place_pieces(world, model, lane);
    FOR_LANES(piece, num_pieces) world.piece_rate[piece] = piece_rate(world, model, piece, world.body_velocity);
    barrier();
    FOR_LANES(hill, num_hills) {
        const Real length = sum_of_pieces(model, hill, world.piece_length);
        const Real rate = sum_of_pieces(model, hill, world.piece_rate);
        world.hill_push[hill] = hill_push(model, hill, length, rate, hill_activation(world, model, hill)).value;
    }
    barrier();
}

// Derivative of the power of all pushes when bodies move with body_lambda, each muscle's push times the rate at which
// that motion lengthens it.
STAGE void hill_muscles_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane) {
    place_pieces(world, model, lane);
    FOR_LANES(piece, num_pieces) {
        world.piece_rate[piece] = piece_rate(world, model, piece, world.body_velocity);
        adjoint.piece_lambda_rate[piece] = piece_rate(world, model, piece, adjoint.body_lambda);
    }
    barrier();
    FOR_LANES(hill, num_hills) {
        const Real length = sum_of_pieces(model, hill, world.piece_length);
        const Real rate = sum_of_pieces(model, hill, world.piece_rate);
        const Real push_bar = sum_of_pieces(model, hill, adjoint.piece_lambda_rate);
        const Push push = hill_push(model, hill, length, rate, hill_activation(world, model, hill));
        world.hill_push[hill] = push.value;
        adjoint.hill_length_bar[hill] = push_bar * push.by_length;
        adjoint.hill_rate_bar[hill] = push_bar * push.by_rate;
        const Real activation_bar = push_bar * push.by_activation;
        const int act = model.hill_act[hill];
        if (act < 0) adjoint.hill_control_bar[hill] += activation_bar;
        else adjoint.act_bar[act] += activation_bar;
    }
    barrier();
    FOR_LANES(piece, num_pieces) {
        const int hill = model.piece_hill[piece];
        piece_pose_adjoint(world, adjoint, model, piece, world.hill_push[hill], adjoint.hill_rate_bar[hill],
                           adjoint.hill_length_bar[hill]);
    }
    barrier();
}

INLINE void subtract_hill_forces(World& world, const Model& model, int lane) {
    subtract_pieces(model, lane, world.body_force, [&](int piece, int which, int number) {
        return piece_wrench_number(world, piece, which, number) * world.hill_push[model.piece_hill[piece]];
    });
}
INLINE void subtract_hill_bars(const World& world, Adjoint& adjoint, const Model& model, int lane) {
    subtract_pieces(model, lane, adjoint.velocity_bar, [&](int piece, int which, int number) {
        return piece_wrench_number(world, piece, which, number) * adjoint.hill_rate_bar[model.piece_hill[piece]];
    });
    subtract_pieces(model, lane, adjoint.pose_bar, [&](int piece, int which, int number) {
        return numbers(&adjoint.piece_pose_bar[3 * piece + which])[number];
    });
}
