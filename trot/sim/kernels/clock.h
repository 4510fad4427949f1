// Cycles per stage, for the benchmark's build only. Block 0 reports; elsewhere this is nothing.
#pragma once
#include "real.h"

enum Stage {
    KINEMATICS, VELOCITIES, BODY_FORCES, JOINT_FORCES, FACTORISE, SOLVE, SAVE, INTEGRATE,
    RESTORE, INTEGRATE_ADJOINT, KINEMATICS_AGAIN, FACTOR_AGAIN, SOLVE_LAMBDA, VELOCITIES_AGAIN, BODY_FORCES_ADJOINT,
    SWEEP, JOINT_FORCES_ADJOINT, NUM_STAGES
};

#if defined(PROFILE)
struct Clock {
    long long* cycles;
    bool reports;
    long long last;
};
INLINE long long cycles_now() {
#if defined(__CUDA_ARCH__)
    return clock64();
#else
    return (long long)__builtin_readcyclecounter();
#endif
}
INLINE Clock start_clock(long long* cycles, bool reports) {
    Clock clock;
    clock.cycles = cycles;
    clock.reports = reports;
    clock.last = cycles_now();
    return clock;
}
INLINE void lap(Clock& clock, Stage stage) {
    const long long now = cycles_now();
    if (clock.reports) clock.cycles[stage] += now - clock.last;
    clock.last = now;
}
#else
struct Clock {};
INLINE Clock start_clock(long long*, bool) { return Clock(); }
INLINE void lap(Clock&, Stage) {}
#endif
