// The sums of tree.h where every dof has a lane of its own. What a lane has summed so far doubles in length from round
// to round, so a few rounds go through the whole tree, all in registers: lanes show each other what they hold, and no
// number is waited for in shared memory.
#pragma once
#include "world.h"

// A lane per dof: sums over 1, 2, 4, ... dofs of its line to the root, itself the last.
template <typename Term>
INLINE void root_to_leaves_in_lanes(const Model& model, int lane, Motion* result, const Motion& start, Term term) {
    const int dof = lane < num_dofs ? lane : num_dofs - 1;  // idle lanes keep the last one company
    const int depth = model.dof_depth[dof];
    const int* own = model.chain + model.dof_chain_start[dof] + depth;
    Motion sum = term(dof);
    UNROLL for (int reach = 1; reach < LANES; reach *= 2) {
        if (reach >= num_depths) break;
        const bool continues = depth >= reach;
        const Motion inwards = from_lane(sum, continues ? own[-reach] : dof);
        if (continues) sum = sum + inwards;
    }
    if (lane < num_dofs && dof + 1 == model.dof_body_end[dof]) result[model.dof_body[dof]] = start + sum;
    barrier();
}

// A lane per body, or where dofs count too, per dof; of the latter the first of a body brings along the body's own
// numbers. A subtree is a range of these, and a lane adds it up from stretches of 1, 2, 4, ... elements that others
// have summed, as the binary digits of its length ask. Only sums: a difference of running totals would lose digits.
template <int WIDTH, int COUNT>
INLINE void leaves_to_root_in_lanes(const Model& model, int lane, Real* of_body, const Real* of_dof) {
    const int element = lane < COUNT ? lane : COUNT - 1;
    const int body = of_dof ? model.dof_body[element] : element;
    const bool owns = lane < COUNT && (!of_dof || element == model.body_dof_start[body]);
    const int length = (of_dof ? model.dof_subtree_end[element] : model.body_subtree_end[element]) - element;
    Real stretch[WIDTH], sum[WIDTH];
    UNROLL for (int i = 0; i < WIDTH; ++i) {
        stretch[i] = of_dof ? of_dof[WIDTH * element + i] : zero();
        if (owns) stretch[i] += of_body[WIDTH * body + i];
        sum[i] = zero();
    }
    int next = element;
    UNROLL for (int size = 1; size <= LANES; size *= 2) {
        if (size > COUNT) break;
        const bool takes = length & size;
        UNROLL for (int i = 0; i < WIDTH; ++i) {
            const Real more = from_lane(stretch[i], takes ? next : element);
            if (takes) sum[i] += more;
        }
        if (takes) next += size;
        // Stretches that would reach past the last element are nobody's.
        if (2 * size <= COUNT)
            UNROLL for (int i = 0; i < WIDTH; ++i) stretch[i] += from_lane(stretch[i], (lane + size) % LANES);
    }
    if (owns) UNROLL for (int i = 0; i < WIDTH; ++i) of_body[WIDTH * body + i] = sum[i];
    barrier();
}
