// The mass matrix again, for many lanes and at most as many dofs: lane i keeps the row of dof i in registers while it
// changes, and shows it to the others once it is final. Same results as mass_matrix.h up to rounding, and the same
// layout in world.mass_matrix; a fraction of its waiting.
#pragma once
#include "mass_matrix.h"

constexpr int row_quads = row_stride / 4;

INLINE Quad* shown_row(World& world, int dof) { return reinterpret_cast<Quad*>(world.mass_matrix + dof * row_stride); }

// Row of this lane's dof: composite force against every ancestor's axis. The diagonal is kept apart. Idle lanes keep
// the last dof company, and leave its row in shared memory alone.
struct LaneRow { Quad quad[row_quads]; Real diagonal; int dof; bool idle; };

INLINE LaneRow lane_row(const World& world, const Model& model, int lane) {
    LaneRow row;
    row.idle = lane >= num_dofs;
    const int dof = row.dof = row.idle ? num_dofs - 1 : lane;
    const int* chain = model.chain + model.dof_chain_start[dof];
    const int depth = model.dof_depth[dof];
    const Force momentum = world.composite_inertia[model.dof_body[dof]] * world.joint_axis[dof];
    UNROLL for (int column = 1; column < row_stride; ++column)
        row.quad[column / 4].number[column % 4] =
            column_of(depth) > column ? dot(world.joint_axis[chain[column - 1]], momentum) : zero();
    row.quad[0].number[RIGHT_HAND_SIDE] = row.idle ? zero() : world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE];
    row.diagonal = dot(world.joint_axis[dof], momentum) + model.dof_armature[dof];
    return row;
}

// Depth by depth, the outermost first: rows of that depth are final, and each ancestor's row loses its share of them.
// The order is known to the compiler, which writes the loops out. Each has a fixed length for that: one
// whose length depends on an outer one stays a loop, and looks its dofs up.
INLINE void eliminate_in_lanes(World& world, LaneRow& row, const Model& model) {
    constexpr DofsByDepth by_depth = dofs_by_depth;
    const int dof = row.dof, own_depth = model.dof_depth[dof], end = model.dof_subtree_end[dof];
    UNROLL for (int depth = num_depths - 1; depth >= 0; --depth) {
        const int quads = column_of(depth) / 4 + 1;
        if (own_depth == depth && !row.idle) {
            UNROLL for (int i = 0; i < row_quads; ++i)
                if (i < quads) shown_row(world, dof)[i] = row.quad[i];
            world.inverse_diagonal[dof] = reciprocal(row.diagonal);
        }
        barrier();
        UNROLL for (int k = 0; k < num_dofs; ++k) {
            if (k < by_depth.start[depth] || k >= by_depth.start[depth + 1]) continue;
            const int outer = by_depth.dof[k];
            // A dof that does not carry the outer one has no column in its row, and nothing written there.
            const bool carries = dof < outer && outer < end;
            const Real coupling = carries ? world.mass_matrix[outer * row_stride + column_of(own_depth)] : zero();
            const Real share = coupling * world.inverse_diagonal[outer];
            UNROLL for (int i = 0; i < row_quads; ++i) {
                if (i >= quads) continue;
                const Quad shown = shown_row(world, outer)[i];
                UNROLL for (int n = 0; n < 4; ++n) row.quad[i].number[n] -= share * shown.number[n];
            }
            row.diagonal -= share * coupling;
        }
    }
    barrier();
}

// Leaves the right-hand side as L^-T times itself and D L in world.mass_matrix, as factorise() does. Past its ancestors
// a row picks up numbers of its descendants; nobody reads them.
STAGE void factorise_in_lanes(World& world, const Model& model, int lane) {
    FOR_LANES(body, num_bodies) world.composite_inertia[body] = world.body_inertia[body];
    barrier();
    leaves_to_root<10>(model, lane, numbers(world.composite_inertia));
    LaneRow row = lane_row(world, model, lane);
    eliminate_in_lanes(world, row, model);
}

// Depth by depth again: dofs of one depth do not carry each other, so what they pass inwards travels together.
STAGE void solve_to_root_in_lanes(World& world, const Model& model, int lane) {
    constexpr DofsByDepth by_depth = dofs_by_depth;
    const int dof = lane < num_dofs ? lane : num_dofs - 1;
    const int own = column_of(model.dof_depth[dof]), end = model.dof_subtree_end[dof];
    Real x = world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE];
    UNROLL for (int depth = num_depths - 1; depth > 0; --depth) {
        const Real done = x;  // in the lanes of this depth
        UNROLL for (int k = 0; k < num_dofs; ++k) {
            if (k < by_depth.start[depth] || k >= by_depth.start[depth + 1]) continue;
            const int outer = by_depth.dof[k];
            const Real coupling = world.mass_matrix[outer * row_stride + own] * world.inverse_diagonal[outer];
            const Real shown = from_lane(done, outer);
            x -= dof < outer && outer < end ? coupling * shown : zero();
        }
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
    UNROLL for (int inner = 0; inner + 1 < num_depths; ++inner) {
        const bool has = inner < depth;
        const Real coupling = has ? row[column_of(inner)] * inverse : zero();
        x -= coupling * from_lane(x, has ? chain[inner] : dof);
    }
    if (lane < num_dofs) solution[dof] = x;
    barrier();
}
