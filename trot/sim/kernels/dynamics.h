// The equation of motion  M joint_qdd = joint_force - bias,  solved in whichever way suits the machine.
#pragma once
#include "lane_rows.h"

// Builds and factorises M; the right-hand side goes through the first half of the solve on the way.
INLINE void build_and_factorise(World& world, const Model& model, int lane) {
    if (rows_in_lanes) {
        factorise_in_lanes(world, model, lane);
    } else {
        mass_matrix(world, model, lane);
        factorise(world, model, lane);
    }
}
// That first half alone, with a factor that was kept.
INLINE void begin_solve(World& world, const Model& model, int lane) {
    if (rows_in_lanes) solve_to_root_in_lanes(world, model, lane);
    else solve_to_root(world, model, lane);
}
INLINE void finish_solve(World& world, const Model& model, int lane, Real* solution) {
    if (rows_in_lanes) solve_to_leaves_in_lanes(world, model, lane, solution);
    else solve_to_leaves(world, model, lane, solution);
}
