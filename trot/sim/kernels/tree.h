// Two ways over the tree of bodies: sums from the roots outwards, and sums over subtrees. Each number has one owner.
// One lane walks the tree, parents before children or the other way round, and builds on what it has just done. Many
// lanes would wait for each other at every level: with a lane for every dof they double what they have summed instead
// (tree_lanes.h), and with fewer each adds up its own line of dofs, or its own subtree.
#pragma once
#include "tree_lanes.h"

// result[body] = start + term(dof) of every dof that moves the body, root first.
template <typename Term>
INLINE void root_to_leaves(const Model& model, int lane, Motion* result, const Motion& start, Term term) {
    if (tree_in_lanes) {
        root_to_leaves_in_lanes(model, lane, result, start, term);
        return;
    }
    FOR_LANES(body, num_bodies) {
        const int parent = model.body_parent[body];
        Motion sum = LANES == 1 && parent >= 0 ? result[parent] : start;
        const int end = model.body_chain_end[body];
        const int begin = LANES == 1 ? end - (model.body_dof_start[body + 1] - model.body_dof_start[body])
                                     : model.body_chain_start[body];
        UNROLL_SOME for (int k = begin; k < end; ++k) sum = sum + term(model.chain[k]);
        result[body] = sum;
    }
    barrier();
}

// Every body's WIDTH numbers become the sum over its subtree, of_dof included where given. In depth-first order the
// bodies and the dofs of a subtree are ranges.
template <int WIDTH>
INLINE void leaves_to_root(const Model& model, int lane, Real* of_body, const Real* of_dof = nullptr) {
    if (tree_in_lanes) {
        if (of_dof) leaves_to_root_in_lanes<WIDTH, num_dofs>(model, lane, of_body, of_dof);
        else leaves_to_root_in_lanes<WIDTH, num_bodies>(model, lane, of_body, of_dof);
        return;
    }
    if (LANES == 1) {
        for (int body = num_bodies - 1; body >= 0; --body) {
            Real sum[WIDTH];
            for (int i = 0; i < WIDTH; ++i) sum[i] = of_body[WIDTH * body + i];
            for (int dof = model.body_dof_start[body]; of_dof && dof < model.body_dof_start[body + 1]; ++dof)
                for (int i = 0; i < WIDTH; ++i) sum[i] += of_dof[WIDTH * dof + i];
            for (int k = model.child_start[body]; k < model.child_start[body + 1]; ++k)
                for (int i = 0; i < WIDTH; ++i) sum[i] += of_body[WIDTH * model.child[k] + i];
            for (int i = 0; i < WIDTH; ++i) of_body[WIDTH * body + i] = sum[i];
        }
        return;
    }
    constexpr int items = WIDTH * num_bodies, rounds = (items + LANES - 1) / LANES;
    Real total[rounds];
    UNROLL for (int round = 0; round < rounds; ++round) {
        const int item = round * LANES + lane;
        if (item >= items) break;
        const int body = item / WIDTH, number = item % WIDTH, end = model.body_subtree_end[body];
        Real sum = zero();
        UNROLL_SOME for (int k = body; k < end; ++k) sum += of_body[WIDTH * k + number];
        if (of_dof) {
            UNROLL_SOME for (int dof = model.body_dof_start[body]; dof < model.body_dof_start[end]; ++dof)
                sum += of_dof[WIDTH * dof + number];
        }
        total[round] = sum;
    }
    barrier();
    UNROLL for (int round = 0; round < rounds; ++round)
        if (round * LANES + lane < items) of_body[round * LANES + lane] = total[round];
    barrier();
}
