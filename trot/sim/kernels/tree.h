// Two ways over the tree of bodies: sums from the roots outwards, and sums over subtrees. Each number has one owner.
// One lane walks the tree, parents before children or the other way round. Many lanes would wait for each other at
// every level of it, so there each number adds up its whole line of ancestors, or its whole subtree, by itself.
#pragma once
#include "world.h"

// How many of a body's WIDTH numbers one lane takes together: all of them where there is one lane, else one.
template <int WIDTH>
struct Share {
    static constexpr int count = LANES == 1 ? WIDTH : 1;
    static constexpr int per_body = WIDTH / count;
    static constexpr int rounds = (num_bodies * per_body + LANES - 1) / LANES;
    Real number[count];
};

// result[body] = start + own of the body and all its ancestors. own(body, first, sum) adds the body's own numbers
// first, first + 1, ... to the share; start(number) is what a root starts from.
template <int WIDTH, typename Start, typename Own>
INLINE void root_to_leaves(const Model& model, int lane, Real* result, Start start, Own own) {
    if (LANES == 1) {
        for (int body = 0; body < num_bodies; ++body) {
            const int parent = model.body_parent[body];
            Share<WIDTH> sum;
            for (int i = 0; i < WIDTH; ++i) sum.number[i] = parent < 0 ? start(i) : result[WIDTH * parent + i];
            own(body, 0, sum);
            for (int i = 0; i < WIDTH; ++i) result[WIDTH * body + i] = sum.number[i];
        }
        return;
    }
    FOR_LANES(item, WIDTH * num_bodies) {
        Share<WIDTH> sum;
        sum.number[0] = zero();
        own(item / WIDTH, item % WIDTH, sum);
        result[item] = sum.number[0];
    }
    barrier();
    Real total[Share<WIDTH>::rounds];
    UNROLL for (int round = 0; round < Share<WIDTH>::rounds; ++round) {
        const int item = round * LANES + lane;
        if (item >= WIDTH * num_bodies) break;
        const int body = item / WIDTH, number = item % WIDTH;
        Real sum = start(number);
        UNROLL_SOME for (int k = model.ancestor_start[body]; k < model.ancestor_start[body + 1]; ++k)
            sum += result[WIDTH * model.ancestor[k] + number];
        total[round] = sum;
    }
    barrier();
    UNROLL for (int round = 0; round < Share<WIDTH>::rounds; ++round)
        if (round * LANES + lane < WIDTH * num_bodies) result[round * LANES + lane] = total[round];
    barrier();
}

// result[body] += own of the body and of all it carries.
template <int WIDTH, typename Own>
INLINE void leaves_to_root(const Model& model, int lane, Real* result, Own own) {
    if (LANES == 1) {
        for (int body = num_bodies - 1; body >= 0; --body) {
            Share<WIDTH> sum;
            for (int i = 0; i < WIDTH; ++i) sum.number[i] = result[WIDTH * body + i];
            own(body, 0, sum);
            for (int k = model.child_start[body]; k < model.child_start[body + 1]; ++k)
                for (int i = 0; i < WIDTH; ++i) sum.number[i] += result[WIDTH * model.child[k] + i];
            for (int i = 0; i < WIDTH; ++i) result[WIDTH * body + i] = sum.number[i];
        }
        return;
    }
    FOR_LANES(item, WIDTH * num_bodies) {
        Share<WIDTH> sum;
        sum.number[0] = result[item];
        own(item / WIDTH, item % WIDTH, sum);
        result[item] = sum.number[0];
    }
    barrier();
    Real total[Share<WIDTH>::rounds];
    UNROLL for (int round = 0; round < Share<WIDTH>::rounds; ++round) {
        const int item = round * LANES + lane;
        if (item >= WIDTH * num_bodies) break;
        const int body = item / WIDTH;
        Real sum = zero();
        // In depth-first order a subtree is a range.
        UNROLL_SOME for (int k = item; k < item + WIDTH * (model.body_subtree_end[body] - body); k += WIDTH) sum += result[k];
        total[round] = sum;
    }
    barrier();
    UNROLL for (int round = 0; round < Share<WIDTH>::rounds; ++round)
        if (round * LANES + lane < WIDTH * num_bodies) result[round * LANES + lane] = total[round];
    barrier();
}
template <int WIDTH>
INLINE void leaves_to_root(const Model& model, int lane, Real* result) {
    leaves_to_root<WIDTH>(model, lane, result, [](int, int, Share<WIDTH>&) {});
}

// Adds a body's own dofs: axis times rate, or a plain sum.
INLINE void add_dofs(Share<6>& sum, const Motion* axis, const Real* rate, const Model& model, int body, int first) {
    for (int dof = model.body_dof_start[body]; dof < model.body_dof_start[body + 1]; ++dof)
        for (int i = 0; i < Share<6>::count; ++i) sum.number[i] += numbers(axis + dof)[first + i] * rate[dof];
}
INLINE void add_dofs(Share<6>& sum, const Force* of_dof, const Model& model, int body, int first) {
    for (int dof = model.body_dof_start[body]; dof < model.body_dof_start[body + 1]; ++dof)
        for (int i = 0; i < Share<6>::count; ++i) sum.number[i] += numbers(of_dof + dof)[first + i];
}
