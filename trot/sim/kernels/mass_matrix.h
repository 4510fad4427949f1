// The joint-space mass matrix by composite rigid bodies (Featherstone, table 6.2), its factor M = L^T D L, which is as
// sparse as the tree (his table 6.3), and the solves with it. Row i has one number per ancestor dof: the entry in
// column c belongs to the ancestor at depth c, and the ancestors of an ancestor are a prefix of the row.
#pragma once
#include "tree.h"

STAGE void mass_matrix(World& world, const Model& model, int lane) {
    leaves_to_root<10>(model, lane, numbers(world.composite_inertia),
        [&](int body, int number) { return numbers(&world.body_inertia[body])[number]; });
    FOR_LANES(dof, num_dofs)
        world.composite_force[dof] = world.composite_inertia[model.dof_body[dof]] * world.joint_axis[dof];
    barrier();
    FOR_LANES(entry, num_entries) {
        const int dof = model.entry_dof[entry], column = model.entry_column[entry];
        if (column == RIGHT_HAND_SIDE) continue;
        Real m = dot(world.joint_axis[model.entry_ancestor[entry]], world.composite_force[dof]);
        if (column == model.dof_depth[dof]) m += model.dof_armature[dof];
        world.mass_matrix[dof * row_stride + column] = m;
    }
    barrier();
}

// From the leaves inwards, body by body; entries of one level run side by side. The right-hand side is one more column,
// so that it comes out as L^-T times itself.
STAGE void factorise(World& world, const Model& model, int lane) {
    Real* const m = world.mass_matrix;
    Real* const factor = world.factor;
    Real* const inverse = world.inverse_diagonal;
    for (int level = num_levels - 1; level >= 0; --level) {
        const int first = model.level_entry_start[level], end = model.level_entry_start[level + 1];
        // Take off what the dofs of the bodies further out contribute ...
        if (level < num_levels - 1) {
            FOR_LANES_FROM(entry, first, end) {
                const int dof = model.entry_dof[entry], column = model.entry_column[entry];
                const int depth = model.dof_depth[dof];
                Real x = m[dof * row_stride + column];
                for (int k = model.dof_body_end[dof]; k < model.dof_subtree_end[dof]; ++k)
                    x -= factor[k * row_stride + depth] * m[k * row_stride + column];
                m[dof * row_stride + column] = x;
            }
            barrier();
        }
        // ... then the body's own later dofs, last dof first ...
        for (int turn = 0; turn < model.level_max_dofs[level]; ++turn) {
            FOR_LANES_FROM(entry, model.turn_entry_start[level * max_body_dofs + turn],
                           model.turn_entry_start[level * max_body_dofs + turn + 1]) {
                const int dof = model.entry_dof[entry], column = model.entry_column[entry];
                const int depth = model.dof_depth[dof];
                Real x = m[dof * row_stride + column];
                for (int k = dof + 1; k < model.dof_body_end[dof]; ++k)
                    x -= m[k * row_stride + depth] * inverse[k] * m[k * row_stride + column];
                m[dof * row_stride + column] = x;
                if (column == depth) inverse[dof] = one() / x;
            }
            barrier();
        }
        // ... and scale the finished rows.
        FOR_LANES_FROM(entry, first, end) {
            const int dof = model.entry_dof[entry], at = dof * row_stride + model.entry_column[entry];
            factor[at] = m[at] * inverse[dof];
        }
        barrier();
    }
}

// L^-T times the right-hand side, for a factor that is already there; scaled by the inverse diagonal as factorise() does.
STAGE void solve_to_root(World& world, const Model& model, int lane) {
    for (int level = num_levels - 1; level >= 0; --level) {
        for (int turn = 0; turn < model.level_max_dofs[level]; ++turn) {
            FOR_LANES_FROM(item, model.level_start[level], model.level_start[level + 1]) {
                const int body = model.level_body[item];
                const int dof = model.body_dof_start[body + 1] - 1 - turn;
                if (dof < model.body_dof_start[body]) continue;
                const int depth = model.dof_depth[dof];
                Real x = world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE];
                for (int k = dof + 1; k < model.dof_subtree_end[dof]; ++k)
                    x -= world.factor[k * row_stride + depth] * world.mass_matrix[k * row_stride + RIGHT_HAND_SIDE];
                world.mass_matrix[dof * row_stride + RIGHT_HAND_SIDE] = x;
                world.factor[dof * row_stride + RIGHT_HAND_SIDE] = x * world.inverse_diagonal[dof];
            }
            barrier();
        }
    }
}

// L^-1 D^-1 of that, from the roots outwards.
STAGE void solve_to_leaves(World& world, const Model& model, int lane, Real* solution) {
    for (int level = 0; level < num_levels; ++level) {
        for (int turn = 0; turn < model.level_max_dofs[level]; ++turn) {
            FOR_LANES_FROM(item, model.level_start[level], model.level_start[level + 1]) {
                const int body = model.level_body[item];
                const int dof = model.body_dof_start[body] + turn;
                if (dof >= model.body_dof_start[body + 1]) continue;
                const int* chain = model.chain + model.dof_chain_start[dof];
                const Real* row = world.factor + dof * row_stride;
                Real x = row[RIGHT_HAND_SIDE];
                for (int column = 0; column < model.dof_depth[dof]; ++column) x -= row[column] * solution[chain[column]];
                solution[dof] = x;
            }
            barrier();
        }
    }
}
