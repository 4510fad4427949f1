// Two ways over the tree of bodies, level by level. Lanes share the numbers of a level; each number has one owner.
#pragma once
#include "world.h"

// result[body] = result[parent] + own(body, number), from the roots outwards; roots start from at_root(number).
template <int WIDTH, typename Root, typename Own>
INLINE void root_to_leaves(const Model& model, int lane, Real* result, Root at_root, Own own) {
    for (int level = 0; level < num_levels; ++level) {
        FOR_LANES_FROM(item, WIDTH * model.level_start[level], WIDTH * model.level_start[level + 1]) {
            const int body = model.level_body[item / WIDTH], number = item % WIDTH;
            const int parent = model.body_parent[body];
            const Real from = level == 0 ? at_root(number) : result[WIDTH * parent + number];
            result[WIDTH * body + number] = from + own(body, number);
        }
        barrier();
    }
}

// result[body] = own(body, number) + the sum over its children, from the leaves inwards: a sum over each subtree.
template <int WIDTH, typename Own>
INLINE void leaves_to_root(const Model& model, int lane, Real* result, Own own) {
    for (int level = num_levels - 1; level >= 0; --level) {
        FOR_LANES_FROM(item, WIDTH * model.level_start[level], WIDTH * model.level_start[level + 1]) {
            const int body = model.level_body[item / WIDTH], number = item % WIDTH;
            Real sum = own(body, number);
            for (int child = model.child_start[body]; child < model.child_start[body + 1]; ++child)
                sum += result[WIDTH * model.child[child] + number];
            result[WIDTH * body + number] = sum;
        }
        barrier();
    }
}
