// Activations that are states, which follow a control. A filter's and an integrator's:
//   act' = (control - act) / tau,   act' = control
// where the exact filter takes a whole substep of the first by its solution. A muscle's follows its control with the time constants of rising and falling,
//   act' = (control - act) / tau,   rising: tau_rise (0.5 + 1.5 act),   falling: tau_fall / (0.5 + 1.5 act)
// where between the two, as far as `smooth` reaches, tau passes from one to the other (mju_muscleDynamics). Without it
// the slope jumps at act = control; there falling counts.
#pragma once
#include "world.h"

struct ActRate { Real value, by_act, by_control; };

INLINE ActRate act_rate(const Model& model, int k, Real act, Real control) {
    const Real held = smaller(larger(act, zero()), one()), stretch = held * Scalar(1.5) + Scalar(0.5);
    const Real stretch_by_act = select((act < zero()) | (act > one()), zero(), real(Scalar(1.5)));
    const Real rise = stretch * model.act_rise[k], fall = model.act_fall[k] / stretch;
    const Real rise_by_act = stretch_by_act * model.act_rise[k], fall_by_act = -fall / stretch * stretch_by_act;
    const Real gap = control - act;
    // How much of tau is that of rising, and how this changes with the gap.
    const Scalar per_gap = model.act_per_gap[k];
    const Real s = smaller(larger(gap * per_gap + Scalar(0.5), zero()), one());
    const Real quintic = s * s * s * (s * (s * Scalar(6) - Scalar(15)) + Scalar(10));
    const Real share = per_gap > 0 ? quintic : select(gap > zero(), one(), zero());
    const Real share_by_gap = s * s * (one() - s) * (one() - s) * (Scalar(30) * per_gap);
    const Real tau = larger(fall + (rise - fall) * share, real(Scalar(1e-15)));
    const Real tau_by_gap = (rise - fall) * share_by_gap, tau_by_act = fall_by_act + (rise_by_act - fall_by_act) * share;
    ActRate rate;
    rate.value = gap / tau;
    rate.by_control = (one() - rate.value * tau_by_gap) / tau;
    rate.by_act = -rate.by_control - rate.value * tau_by_act / tau;
    return rate;
}

// The change of an activation over a substep, per second.
INLINE ActRate act_change(const Model& model, int k, Real act, Real control, Scalar substep_dt) {
    const int kind = num_servo_acts > 0 ? model.act_kind[k] : MUSCLE_ACT;
    if (kind == MUSCLE_ACT) return act_rate(model, k, act, control);
    ActRate rate;
    if (kind == INTEGRATOR_ACT) {
        rate.value = control;
        rate.by_control = one();
        rate.by_act = zero();
        return rate;
    }
    const double tau = model.act_rise[k], dt = substep_dt;
    const Scalar share = Scalar(kind == FILTER_ACT ? 1 / tau : (1 - ::exp(-dt / tau)) / dt);
    rate.value = (control - act) * share;
    rate.by_control = real(share);
    rate.by_act = real(-share);
    return rate;
}

STAGE void advance_acts(World& world, const Model& model, int lane, Scalar substep_dt) {
    FOR_LANES(k, num_acts) {
        const Real act = world.act[k];
        const Real control = world.control[model.act_actuator[k]];
        const Real next = act + act_change(model, k, act, control, substep_dt).value * substep_dt;
        const Real lower = real(model.act_lower[k]), upper = real(model.act_upper[k]);
        world.act[k] = select(next < lower, lower, select(next > upper, upper, next));
    }
    barrier();
}

// World holds the activations before the substep.
STAGE void advance_acts_adjoint(const World& world, Adjoint& adjoint, const Model& model, int lane,
                                Scalar substep_dt) {
    FOR_LANES(k, num_acts) {
        const Real act = world.act[k];
        const ActRate rate = act_change(model, k, act, world.control[model.act_actuator[k]], substep_dt);
        const Real next = act + rate.value * substep_dt;
        const Mask held = (next < real(model.act_lower[k])) | (next > real(model.act_upper[k]));
        const Real bar = select(held, zero(), adjoint.act_bar[k]);
        adjoint.act_bar[k] = bar + bar * rate.by_act * substep_dt;
        adjoint.act_control_bar[k] += bar * rate.by_control * substep_dt;
    }
    barrier();
}
