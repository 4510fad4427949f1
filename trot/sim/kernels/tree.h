// Two ways over the tree of bodies, level by level. Lanes share the numbers of a level; each number has one owner.
#pragma once
#include "world.h"

// How many of a body's WIDTH numbers one lane takes together: all of them where there is one lane, else one.
template <int WIDTH>
struct Share {
    static constexpr int count = LANES == 1 ? WIDTH : 1;
    static constexpr int per_body = WIDTH / count;
    Real number[count];
};

// result[body] = result[parent] + own, from the roots outwards. own(body, first, sum) adds the body's own numbers
// first, first + 1, ... to the share; at_root(number) is what a root starts from.
template <int WIDTH, typename Root, typename Own>
INLINE void root_to_leaves(const Model& model, int lane, Real* result, Root at_root, Own own) {
    using Sum = Share<WIDTH>;
    for (int level = 0; level < num_levels; ++level) {
        FOR_LANES_FROM(item, Sum::per_body * model.level_start[level], Sum::per_body * model.level_start[level + 1]) {
            const int body = model.level_body[item / Sum::per_body], first = item % Sum::per_body * Sum::count;
            const Real* parent = result + WIDTH * model.body_parent[body] + first;
            Sum sum;
            for (int i = 0; i < Sum::count; ++i) sum.number[i] = level == 0 ? at_root(first + i) : parent[i];
            own(body, first, sum);
            for (int i = 0; i < Sum::count; ++i) result[WIDTH * body + first + i] = sum.number[i];
        }
        barrier();
    }
}

// result[body] += own and the sum over its children, from the leaves inwards: a sum over each subtree.
template <int WIDTH, typename Own>
INLINE void leaves_to_root(const Model& model, int lane, Real* result, Own own) {
    using Sum = Share<WIDTH>;
    for (int level = num_levels - 1; level >= 0; --level) {
        FOR_LANES_FROM(item, Sum::per_body * model.level_start[level], Sum::per_body * model.level_start[level + 1]) {
            const int body = model.level_body[item / Sum::per_body], first = item % Sum::per_body * Sum::count;
            Sum sum;
            for (int i = 0; i < Sum::count; ++i) sum.number[i] = result[WIDTH * body + first + i];
            own(body, first, sum);
            for (int k = model.child_start[body]; k < model.child_start[body + 1]; ++k) {
                const Real* child = result + WIDTH * model.child[k] + first;
                for (int i = 0; i < Sum::count; ++i) sum.number[i] += child[i];
            }
            for (int i = 0; i < Sum::count; ++i) result[WIDTH * body + first + i] = sum.number[i];
        }
        barrier();
    }
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
