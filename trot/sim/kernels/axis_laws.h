// Laws of one coordinate x with rate v, of a joint or of a tie between joints: a limit with damping, and dry friction.
#pragma once
#include "world.h"

struct AxisForce { Real force, by_x, by_v; };  // a force, and how it changes with x and with v

// Beyond a limit by a depth d, moving back at the speed u:  max(0, stiffness d - damping d u).  As on the ground, it
// begins at zero and never pulls.
INLINE AxisForce limit_law(Scalar lower, Scalar upper, Scalar stiffness, Scalar damping, Real x, Real v) {
    const Real below = lower - x, above = x - upper;
    const Real firm_below = stiffness - v * damping, firm_above = stiffness + v * damping;
    const Mask holds_below = (below > zero()) & (firm_below > zero());
    const Mask holds_above = (above > zero()) & (firm_above > zero());
    AxisForce result;
    result.force = select(holds_below, below * firm_below, zero()) - select(holds_above, above * firm_above, zero());
    result.by_x = -(select(holds_below, firm_below, zero()) + select(holds_above, firm_above, zero()));
    result.by_v = -(select(holds_below, below, zero()) + select(holds_above, above, zero())) * damping;
    return result;
}

// Against the motion: friction (3 s - s^3) / 2 with s = v / full_speed, and the whole friction beyond |s| = 1, where the
// slope has come down to zero. It holds nothing still: what is pushed by less creeps.
INLINE AxisForce dry_friction(Scalar friction, Scalar full_speed, Real v) {
    const Real s = larger(smaller(v * (Scalar(1) / full_speed), one()), -one());
    AxisForce result;
    result.force = s * (s * s - Scalar(3)) * (Scalar(0.5) * friction);
    result.by_x = zero();
    result.by_v = (s * s - one()) * (Scalar(1.5) * friction / full_speed);
    return result;
}
