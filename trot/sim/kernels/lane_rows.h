// The mass matrix again, for many lanes and at most as many dofs: lane i keeps the row of dof i in registers, and what
// one row needs of another comes through from_lane(). Same results as mass_matrix.h up to rounding, and its layout in
// world.mass_matrix; a fraction of its waiting.
#pragma once
#include "mass_matrix.h"

constexpr bool rows_in_lanes = LANES > 1 && num_dofs <= LANES;

// Whether moving `inner` moves `outer`, another dof.
INLINE bool carries(const Model& model, int inner, int outer) {
    return inner < outer && outer < model.dof_subtree_end[inner];
}

// Row of this lane's dof: composite force against every ancestor's axis. The diagonal is kept apart.
struct LaneRow { Real number[row_stride]; Real diagonal; };

INLINE LaneRow lane_row(const World& world, const Model& model, int dof) {
    LaneRow row;
    const int* chain = model.chain + model.dof_chain_start[dof];
    const int depth = model.dof_depth[dof];
    const Force momentum = world.composite_inertia[model.dof_body[dof]] * world.joint_axis[dof];
    row.number[RIGHT_HAND_SIDE] = world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE];
    UNROLL for (int column = 1; column < row_stride; ++column)
        row.number[column] = column_of(depth) > column ? dot(world.joint_axis[chain[column - 1]], momentum) : zero();
    row.diagonal = dot(world.joint_axis[dof], momentum) + model.dof_armature[dof];
    return row;
}

// Pivot by pivot, the outermost first: each ancestor's row loses its share of the pivot's row.
INLINE Real eliminate_in_lanes(LaneRow& row, const Model& model, int dof) {
    const int own = column_of(model.dof_depth[dof]);
    Real inverse = zero();
    for (int pivot = num_dofs - 1; pivot >= 0; --pivot) {
        const Real pivot_inverse = one() / from_lane(row.diagonal, pivot);
        const bool affected = carries(model, dof, pivot);
        Real outer[row_stride], coupling = zero();
        UNROLL for (int column = 0; column < row_stride; ++column) {
            outer[column] = from_lane(row.number[column], pivot);
            coupling = column == own ? outer[column] : coupling;
        }
        const Real share = affected ? coupling * pivot_inverse : zero();
        UNROLL for (int column = 0; column < row_stride; ++column) row.number[column] -= share * outer[column];
        row.diagonal -= share * coupling;
        inverse = dof == pivot ? pivot_inverse : inverse;
    }
    return inverse;
}

// Leaves the right-hand side as L^-T times itself and D L in world.mass_matrix, as factorise() does.
STAGE void factorise_in_lanes(World& world, const Model& model, int lane) {
    FOR_LANES(body, num_bodies) world.composite_inertia[body] = world.body_inertia[body];
    barrier();
    leaves_to_root<10>(model, lane, numbers(world.composite_inertia));
    const int dof = lane < num_dofs ? lane : num_dofs - 1;  // idle lanes keep the last one company
    LaneRow row = lane_row(world, model, dof);
    const Real inverse = eliminate_in_lanes(row, model, dof);
    if (lane < num_dofs) {
        // Past its ancestors a row has picked up numbers of its descendants; nobody reads them.
        UNROLL for (int column = 0; column < row_stride; ++column) world.mass_matrix[dof * row_stride + column] = row.number[column];
        world.inverse_diagonal[dof] = inverse;
    }
    barrier();
}

STAGE void solve_to_root_in_lanes(World& world, const Model& model, int lane) {
    const int dof = lane < num_dofs ? lane : num_dofs - 1;
    const int own = column_of(model.dof_depth[dof]), end = model.dof_subtree_end[dof];
    Real x = world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE];
    UNROLL_SOME for (int pivot = num_dofs - 1; pivot > 0; --pivot) {
        const Real coupling = world.mass_matrix[pivot * row_stride + own] * world.inverse_diagonal[pivot];
        const Real outer = from_lane(x, pivot);
        x -= dof < pivot && pivot < end ? coupling * outer : zero();
    }
    barrier();
    if (lane < num_dofs) world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE] = x;
    barrier();
}

// Ancestors at depth 0 are done first, then those at depth 1, ...
STAGE void solve_to_leaves_in_lanes(World& world, const Model& model, int lane, Real* solution) {
    const int dof = lane < num_dofs ? lane : num_dofs - 1;
    const int depth = model.dof_depth[dof];
    const int* chain = model.chain + model.dof_chain_start[dof];
    const Real* row = world.mass_matrix + dof * row_stride;
    const Real inverse = world.inverse_diagonal[dof];
    Real x = row[RIGHT_HAND_SIDE] * inverse;
    UNROLL_SOME for (int inner = 0; inner + 2 < row_stride; ++inner) {
        const bool has = inner < depth;
        const Real coupling = has ? row[column_of(inner)] * inverse : zero();
        x -= coupling * from_lane(x, has ? chain[inner] : dof);
    }
    if (lane < num_dofs) solution[dof] = x;
    barrier();
}
