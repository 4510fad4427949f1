// The joint-space mass matrix by composite rigid bodies (Featherstone, table 6.2), its factor M = L^T D L, which is as
// sparse as the tree (his table 6.3), and the solves with it.
// A row of world.mass_matrix belongs to one dof: the right-hand side first, then one number per ancestor dof, root
// first, itself last. The ancestors of an ancestor stand in the same columns. Factorising leaves D L in the rows and
// 1 / D beside them. Lanes take entries: a few columns of one row at a time.
#pragma once
#include "tree.h"

constexpr int RIGHT_HAND_SIDE = 0;
INLINE int column_of(int depth) { return 1 + depth; }

STAGE void mass_matrix(World& world, const Model& model, int lane) {
    FOR_LANES(body, num_bodies) world.composite_inertia[body] = world.body_inertia[body];
    barrier();
    leaves_to_root<10>(model, lane, numbers(world.composite_inertia));
    FOR_LANES(dof, num_dofs)
        world.composite_force[dof] = world.composite_inertia[model.dof_body[dof]] * world.joint_axis[dof];
    barrier();
    FOR_LANES(entry, num_entries) {
        const int dof = model.entry_dof[entry], first = model.entry_column[entry], depth = model.dof_depth[dof];
        const int* chain = model.chain + model.dof_chain_start[dof];
        const Force momentum = world.composite_force[dof];
        for (int column = first; column < first + columns_per_entry; ++column) {
            if (column == RIGHT_HAND_SIDE) continue;
            Real m = zero();  // past the row's end
            if (column <= column_of(depth)) m = dot(world.joint_axis[chain[column - 1]], momentum);
            if (column == column_of(depth)) m += model.dof_armature[dof];
            world.mass_matrix[dof * row_stride + column] = m;
        }
    }
    barrier();
}

// Takes off an entry what dofs further out, first to end, contribute.
INLINE void eliminate(World& world, const Model& model, int entry, int first, int end) {
    const int dof = model.entry_dof[entry], column = column_of(model.dof_depth[dof]);
    Real* const row = world.mass_matrix + dof * row_stride + model.entry_column[entry];
    Real x[columns_per_entry];
    for (int i = 0; i < columns_per_entry; ++i) x[i] = row[i];
    for (int k = first; k < end; ++k) {
        const Real* outer = world.mass_matrix + k * row_stride;
        const Real scaled = outer[column] * world.inverse_diagonal[k];
        outer += model.entry_column[entry];
        for (int i = 0; i < columns_per_entry; ++i) x[i] -= scaled * outer[i];
    }
    for (int i = 0; i < columns_per_entry; ++i) row[i] = x[i];
}

// From the leaves inwards, level by level: first what the bodies further out contribute, then a body's own dofs, the
// last first. The right-hand side is one more column, so it comes out as L^-T times itself.
STAGE void factorise(World& world, const Model& model, int lane) {
    for (int level = num_levels - 1; level >= 0; --level) {
        if (level < num_levels - 1) {
            FOR_LANES_FROM(entry, model.level_entry_start[level], model.level_entry_start[level + 1]) {
                const int dof = model.entry_dof[entry];
                eliminate(world, model, entry, model.dof_body_end[dof], model.dof_subtree_end[dof]);
            }
            barrier();
        }
        for (int turn = 0; turn < model.level_max_dofs[level]; ++turn) {
            const int cell = level * max_body_dofs + turn;
            FOR_LANES_FROM(entry, model.turn_entry_start[cell], model.turn_entry_start[cell + 1]) {
                const int dof = model.entry_dof[entry], diagonal = column_of(model.dof_depth[dof]);
                eliminate(world, model, entry, dof + 1, model.dof_body_end[dof]);
                const int first = model.entry_column[entry];
                if (first <= diagonal && diagonal < first + columns_per_entry)
                    world.inverse_diagonal[dof] = reciprocal(world.mass_matrix[dof * row_stride + diagonal]);
            }
            barrier();
        }
    }
}

// L^-T times the right-hand side, for a factor that is already there.
STAGE void solve_to_root(World& world, const Model& model, int lane) {
    for (int level = num_levels - 1; level >= 0; --level) {
        for (int turn = 0; turn < model.level_max_dofs[level]; ++turn) {
            FOR_LANES_FROM(item, model.level_start[level], model.level_start[level + 1]) {
                const int body = model.level_body[item], dof = model.body_dof_start[body + 1] - 1 - turn;
                if (dof < model.body_dof_start[body]) continue;
                const int column = column_of(model.dof_depth[dof]);
                Real x = world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE];
                for (int k = dof + 1; k < model.dof_subtree_end[dof]; ++k) {
                    const Real* outer = world.mass_matrix + k * row_stride;
                    x -= outer[column] * world.inverse_diagonal[k] * outer[RIGHT_HAND_SIDE];
                }
                world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE] = x;
            }
            barrier();
        }
    }
}

// (D L)^-1 of that, from the roots outwards.
STAGE void solve_to_leaves(World& world, const Model& model, int lane, Real* solution) {
    for (int level = 0; level < num_levels; ++level) {
        for (int turn = 0; turn < model.level_max_dofs[level]; ++turn) {
            FOR_LANES_FROM(item, model.level_start[level], model.level_start[level + 1]) {
                const int body = model.level_body[item], dof = model.body_dof_start[body] + turn;
                if (dof >= model.body_dof_start[body + 1]) continue;
                const int* chain = model.chain + model.dof_chain_start[dof];
                const Real* row = world.mass_matrix + dof * row_stride;
                Real x = row[RIGHT_HAND_SIDE];
                for (int depth = 0; depth < model.dof_depth[dof]; ++depth)
                    x -= row[column_of(depth)] * solution[chain[depth]];
                solution[dof] = x * world.inverse_diagonal[dof];
            }
            barrier();
        }
    }
}
