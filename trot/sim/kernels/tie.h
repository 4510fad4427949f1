// Ties: what couples joints without a control, a fixed tendon or a joint that follows another.
// A tie has a length, the sum of a polynomial in the coordinate of each of its strands,
//   length = sum p(q - reference),   rate = sum p'(q - reference) qd
// and pulls on it: a spring outside of its resting range, damping, limits, dry friction. A strand's dof feels p' times
// the tie's force. The tie works its force out once; dofs gather what its strands do.
#pragma once
#include "axis_laws.h"

struct Polynomial { Real value, slope, bend; };  // with its first and second derivative

INLINE Polynomial strand_length(const World& world, const Model& model, int strand) {
    const Scalar* c = model.strand_coefficient + 5 * strand;
    const Real x = world.joint_q[model.strand_q[strand]] - model.strand_reference[strand];
    Polynomial p;
    p.value = (((x * c[4] + c[3]) * x + c[2]) * x + c[1]) * x + c[0];
    p.slope = ((x * (4 * c[4]) + 3 * c[3]) * x + 2 * c[2]) * x + c[1];
    p.bend = (x * (12 * c[4]) + 6 * c[3]) * x + 2 * c[2];
    return p;
}

INLINE AxisForce tie_law(const Model& model, int tie, Real length, Real rate) {
    AxisForce sum = limit_law(model.tie_lower[tie], model.tie_upper[tie], model.tie_limit_stiffness[tie],
                              model.tie_limit_damping[tie], length, rate);
    const AxisForce friction = dry_friction(model.tie_friction[tie], model.tie_friction_speed[tie], rate);
    const Real shorter = larger(model.tie_rest_lower[tie] - length, zero());
    const Real longer = larger(length - model.tie_rest_upper[tie], zero());
    const Mask strained = (shorter > zero()) | (longer > zero());
    sum.force += (shorter - longer) * model.tie_stiffness[tie] - rate * model.tie_damping[tie] + friction.force;
    sum.by_x -= select(strained, real(model.tie_stiffness[tie]), zero());
    sum.by_v += friction.by_v - model.tie_damping[tie];
    return sum;
}

INLINE AxisForce tie_force(const World& world, const Model& model, int tie) {
    Real length = zero(), rate = zero();
    for (int k = model.tie_strand_start[tie]; k < model.tie_strand_start[tie + 1]; ++k) {
        const Polynomial p = strand_length(world, model, k);
        length += p.value;
        rate += p.slope * world.joint_qd[model.strand_dof[k]];
    }
    return tie_law(model, tie, length, rate);
}

STAGE void tie_forces(World& world, const Model& model, int lane) {
    FOR_LANES(tie, num_ties) {
        const Real force = tie_force(world, model, tie).force;
        for (int k = model.tie_strand_start[tie]; k < model.tie_strand_start[tie + 1]; ++k)
            world.strand_force[k] = force * strand_length(world, model, k).slope;
    }
    barrier();
}

// Derivative of force * power, where power = sum p' lambda. Leaves in strand_q_bar and strand_qd_bar what each strand
// passes back to its dof.
STAGE void tie_forces_adjoint(World& world, Adjoint& adjoint, const Model& model, int lane) {
    FOR_LANES(tie, num_ties) {
        const int first = model.tie_strand_start[tie], end = model.tie_strand_start[tie + 1];
        const AxisForce f = tie_force(world, model, tie);
        Real power = zero();
        for (int k = first; k < end; ++k)
            power += strand_length(world, model, k).slope * adjoint.lambda[model.strand_dof[k]];
        const Real length_bar = f.by_x * power, rate_bar = f.by_v * power;
        for (int k = first; k < end; ++k) {
            const Polynomial p = strand_length(world, model, k);
            const int dof = model.strand_dof[k];
            adjoint.strand_q_bar[k] = length_bar * p.slope
                                      + (rate_bar * world.joint_qd[dof] + f.force * adjoint.lambda[dof]) * p.bend;
            adjoint.strand_qd_bar[k] = rate_bar * p.slope;
        }
    }
    barrier();
}
