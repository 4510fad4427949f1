// Contact of shapes with each other, and with what is fixed to the world: pairs that masks let collide. A pair owns its
// force, one wrench on its first body and the opposite on its second; bodies gather what their pairs do to them.
#pragma once
#include "touch_box.h"
#include "touch_field.h"
#include "touch_plane.h"
#include "touch_round.h"

// Pairs stand in the model by what the second shape is.
constexpr int first_box_pair = num_round_pairs, first_plane_pair = first_box_pair + num_box_pairs,
              first_field_pair = first_plane_pair + num_plane_pairs;

INLINE void place_feelers(World& world, const Model& model, int lane) {
    FOR_LANES(feeler, num_feelers) {
        const int body = model.feeler_body[feeler];
        world.feeler_position[feeler] = carried(world, body, vec3(model.feeler_position[feeler]));
        world.feeler_half[feeler] = turned(world, body, vec3(model.feeler_half[feeler]));
    }
    barrier();
}

INLINE ContactParameters pair_parameters(const World& world, const Model& model, int pair) {
    ContactParameters p;
    p.stiffness = parameter_or(world, pair_stiffness_column + pair, model.pair_stiffness[pair]);
    p.damping = parameter_or(world, pair_damping_column + pair, model.pair_damping[pair]);
    p.friction_stiffness =
        parameter_or(world, pair_friction_stiffness_column + pair, model.pair_friction_stiffness[pair]);
    p.friction = parameter_or(world, pair_friction_column + pair, model.pair_friction[pair]);
    return p;
}

INLINE Mask within(Vec3 apart, Scalar reach) { return dot(apart, apart) < real(reach * reach); }

// The four kinds. near() is the cheap test; solid is the second shape's place in the table of its kind.
struct RoundPairs {
    using Found = RoundTouch;
    INLINE static Mask near(const World& world, const Model& model, int feeler, int solid) {
        return within(world.feeler_position[feeler] - world.feeler_position[solid],
                      model.feeler_reach[feeler] + model.feeler_reach[solid]);
    }
    INLINE static Found find(const World& world, const Model& model, int feeler, int solid) {
        return touch_round(feeler_at(world, model, feeler), feeler_at(world, model, solid),
                           model.feeler_square[feeler], model.feeler_square[solid]);
    }
    INLINE static Force adjoint(const World&, const Model&, const Found& found, int, const Touch& bar) {
        return touch_round_adjoint(found, bar);
    }
};
struct BoxPairs {
    using Found = BoxTouch;
    INLINE static Mask near(const World& world, const Model& model, int feeler, int solid) {
        return within(world.feeler_position[feeler] - box_centre(world, model, solid),
                      model.feeler_reach[feeler] + model.box_reach[solid]);
    }
    INLINE static Found find(const World& world, const Model& model, int feeler, int solid) {
        return touch_box(world, model, feeler_at(world, model, feeler), model.feeler_square[feeler], solid);
    }
    INLINE static Force adjoint(const World& world, const Model& model, const Found& found, int solid,
                                const Touch& bar) {
        return touch_box_adjoint(world, model, found, solid, bar);
    }
};
struct PlanePairs {
    struct Found : Touch { Feeler a; };
    INLINE static Mask near(const World&, const Model&, int, int) { return one() > zero(); }
    INLINE static Found find(const World& world, const Model& model, int feeler, int solid) {
        Found found;
        found.a = feeler_at(world, model, feeler);
        static_cast<Touch&>(found) = touch_plane(world, model, found.a, solid);
        return found;
    }
    INLINE static Force adjoint(const World&, const Model&, const Found& found, int, const Touch& bar) {
        return touch_plane_adjoint(found, found.a, bar);
    }
};
struct FieldPairs {
    using Found = FieldTouch;
    INLINE static Mask near(const World&, const Model&, int, int) { return one() > zero(); }
    INLINE static Found find(const World& world, const Model& model, int feeler, int solid) {
        return touch_field(world, model, feeler_at(world, model, feeler), solid);
    }
    INLINE static Force adjoint(const World&, const Model& model, const Found& found, int solid, const Touch& bar) {
        return touch_field_adjoint(model, found, solid, bar);
    }
};

INLINE Motion seen_from(const Motion* of_body, int body, int from) {
    if (from < 0) return of_body[body];
    return body < 0 ? zero_motion() - of_body[from] : of_body[body] - of_body[from];
}

// Whether anything of a pair is near in some world; most pairs are done with this.
template <typename Kind>
INLINE bool may_touch(const World& world, const Model& model, int pair) {
    const int solid = model.pair_solid[pair];
    for (int feeler = model.pair_feeler_start[pair]; feeler < model.pair_feeler_end[pair]; ++feeler)
        if (any(Kind::near(world, model, feeler, solid))) return true;
    return false;
}

// Calls visit(found, touches) for every feeler of a pair that touches in some world, and says whether one did.
template <typename Kind, typename Visit>
INLINE bool touches_of_pair(const World& world, const Model& model, int pair, Visit visit) {
    const int solid = model.pair_solid[pair];
    bool some = false;
    for (int feeler = model.pair_feeler_start[pair]; feeler < model.pair_feeler_end[pair]; ++feeler) {
        const Mask near = Kind::near(world, model, feeler, solid);
        if (!any(near)) continue;
        const typename Kind::Found found = Kind::find(world, model, feeler, solid);
        const Mask touches = near & (found.depth > zero());
        if (!any(touches)) continue;
        some = true;
        visit(found, touches);
    }
    return some;
}

template <typename Kind>
INLINE void pair_forces(World& world, const Model& model, int lane, int first, int end) {
    FOR_LANES_FROM(pair, first, end) {
        world.pair_touches[pair] = 0;
        if (!may_touch<Kind>(world, model, pair)) continue;
        Force sum = zero_force();
        const auto push = [&](const typename Kind::Found& found, Mask touches) {
            const Motion velocity = seen_from(world.body_velocity, model.pair_body_a[pair], model.pair_body_b[pair]);
            const Vec3 f = touch_force(pair_parameters(world, model, pair), found, velocity_at(velocity, found.point));
            sum = select(touches, sum + force_at(f, found.point), sum);
        };
        world.pair_touches[pair] = touches_of_pair<Kind>(world, model, pair, push);
        if (world.pair_touches[pair]) world.pair_force[pair] = sum;
    }
}

STAGE void pair_contacts(World& world, const Model& model, int lane) {
    place_feelers(world, model, lane);
    if (num_round_pairs > 0) pair_forces<RoundPairs>(world, model, lane, 0, first_box_pair);
    if (num_box_pairs > 0) pair_forces<BoxPairs>(world, model, lane, first_box_pair, first_plane_pair);
    if (num_plane_pairs > 0) pair_forces<PlanePairs>(world, model, lane, first_plane_pair, first_field_pair);
    if (num_field_pairs > 0) pair_forces<FieldPairs>(world, model, lane, first_field_pair, num_pairs);
    barrier();
}

// Derivative of the power of all pairs when bodies move with body_lambda.
template <typename Kind>
INLINE void pair_forces_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane, int first, int end) {
    FOR_LANES_FROM(pair, first, end) {
        world.pair_touches[pair] = 0;
        if (!may_touch<Kind>(world, model, pair)) continue;
        const int body_a = model.pair_body_a[pair], body_b = model.pair_body_b[pair], solid = model.pair_solid[pair];
        Force sum = zero_force(), velocity_bar = zero_force(), pose_a_bar = zero_force(), pose_b_bar = zero_force();
        const auto push = [&](const typename Kind::Found& found, Mask touches) {
            const Motion velocity = seen_from(world.body_velocity, body_a, body_b);
            const Motion lambda = seen_from(adjoint.body_lambda, body_a, body_b);
            const ContactParameters parameters = pair_parameters(world, model, pair);
            const Vec3 u = velocity_at(velocity, found.point);
            const Vec3 f = touch_force(parameters, found, u);
            TouchAdjoint bar = touch_force_adjoint(parameters, found, u, velocity_at(lambda, found.point));
            bar.touch.point = cross(bar.u, velocity.angular) + cross(f, lambda.angular);
            const Force by_a = Kind::adjoint(world, model, found, solid, bar.touch);
            Force by_both = force_at(bar.touch.point, found.point);
            by_both.angular += cross(found.normal, bar.touch.normal);
            sum = select(touches, sum + force_at(f, found.point), sum);
            velocity_bar = select(touches, velocity_bar + force_at(bar.u, found.point), velocity_bar);
            pose_a_bar = select(touches, pose_a_bar + by_a, pose_a_bar);
            pose_b_bar = select(touches, pose_b_bar + (by_both - by_a), pose_b_bar);
            if (per_world_parameters) {
                Real* pair_bar = adjoint.parameter_bar + pair;
                pair_bar[pair_stiffness_column] += select(touches, bar.parameters.stiffness, zero());
                pair_bar[pair_damping_column] += select(touches, bar.parameters.damping, zero());
                pair_bar[pair_friction_stiffness_column] += select(touches, bar.parameters.friction_stiffness, zero());
                pair_bar[pair_friction_column] += select(touches, bar.parameters.friction, zero());
            }
        };
        world.pair_touches[pair] = touches_of_pair<Kind>(world, model, pair, push);
        if (!world.pair_touches[pair]) continue;
        world.pair_force[pair] = sum;
        adjoint.pair_velocity_bar[pair] = velocity_bar;
        adjoint.pair_pose_bar[2 * pair] = pose_a_bar;
        adjoint.pair_pose_bar[2 * pair + 1] = pose_b_bar;
    }
}

STAGE void pair_contacts_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane) {
    place_feelers(world, model, lane);
    if (num_round_pairs > 0) pair_forces_adjoint<RoundPairs>(world, adjoint, model, lane, 0, first_box_pair);
    if (num_box_pairs > 0) pair_forces_adjoint<BoxPairs>(world, adjoint, model, lane, first_box_pair, first_plane_pair);
    if (num_plane_pairs > 0)
        pair_forces_adjoint<PlanePairs>(world, adjoint, model, lane, first_plane_pair, first_field_pair);
    if (num_field_pairs > 0) pair_forces_adjoint<FieldPairs>(world, adjoint, model, lane, first_field_pair, num_pairs);
    barrier();
}

// Takes what all pairs of a body do to it off its numbers: of_pair(pair, which of its two bodies, number). One lane
// goes through the pairs; many lanes own a number each, and go through those of its body.
template <typename OfPair>
INLINE void subtract_pairs(const World& world, const Model& model, int lane, Force* of_body, OfPair of_pair) {
    if (LANES == 1) {
        for (int pair = 0; pair < num_pairs; ++pair) {
            if (!world.pair_touches[pair]) continue;
            const int body_a = model.pair_body_a[pair], body_b = model.pair_body_b[pair];
            for (int number = 0; number < 6; ++number) {
                if (body_a >= 0) numbers(&of_body[body_a])[number] -= of_pair(pair, 0, number);
                if (body_b >= 0) numbers(&of_body[body_b])[number] -= of_pair(pair, 1, number);
            }
        }
        return;
    }
    FOR_LANES(item, 6 * num_bodies) {
        const int body = item / 6, number = item % 6;
        Real sum = numbers(of_body)[item];
        for (int k = model.body_pair_start[body]; k < model.body_pair_start[body + 1]; ++k) {
            const int which = model.body_pair[k];
            if (world.pair_touches[which / 2]) sum -= of_pair(which / 2, which % 2, number);
        }
        numbers(of_body)[item] = sum;
    }
    barrier();
}
INLINE Real opposite(const Force& of_first, int which, int number) {
    const Real share = numbers(&of_first)[number];
    return which ? -share : share;
}
INLINE void subtract_pair_forces(World& world, const Model& model, int lane) {
    subtract_pairs(world, model, lane, world.body_force,
                   [&](int pair, int which, int number) { return opposite(world.pair_force[pair], which, number); });
}
INLINE void subtract_pair_bars(const World& world, Adjoint& adjoint, const Model& model, int lane) {
    subtract_pairs(world, model, lane, adjoint.velocity_bar, [&](int pair, int which, int number) {
        return opposite(adjoint.pair_velocity_bar[pair], which, number);
    });
    subtract_pairs(world, model, lane, adjoint.pose_bar, [&](int pair, int which, int number) {
        return numbers(&adjoint.pair_pose_bar[2 * pair + which])[number];
    });
}
