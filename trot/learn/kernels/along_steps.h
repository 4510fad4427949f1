// Sums along the steps of a window, one after the other in each world. Tensors are [member][step][world].
#pragma once

// Steps that are read at once, so that nobody waits for each of them alone.
constexpr int AT_ONCE = 8;

// Where a world's numbers begin, and which member's it is.
struct Along {
    long long first;
    int member;
    CUDA_CALLABLE inline Along(const Window& w, long long row)
        : first(row / w.worlds * w.steps * w.worlds + row % w.worlds), member((int)(row / w.worlds)) {}
};

CUDA_CALLABLE inline void collect(const Window& w, const Collected& c, long long row) {
    const Along along(w, row);
    Scalar so_far = c.so_far[row];
    for (int begin = 0; begin < w.steps; begin += AT_ONCE) {
        const int count = w.steps - begin < AT_ONCE ? w.steps - begin : AT_ONCE;
        Scalar reward[AT_ONCE];
        bool done[AT_ONCE];
        for (int k = 0; k < AT_ONCE; ++k) {
            if (k >= count) break;
            const long long at = along.first + (long long)(begin + k) * w.worlds;
            reward[k] = c.reward[at], done[k] = c.done[at];
        }
        for (int k = 0; k < AT_ONCE; ++k) {
            if (k >= count) break;
            so_far += reward[k];
            c.collected[along.first + (long long)(begin + k) * w.worlds] = so_far;
            if (done[k]) so_far = 0;
        }
    }
    c.carried[row] = so_far;
}

// From the last step to the first.
CUDA_CALLABLE inline void average_returns(const Window& w, const Averaged& a, long long row) {
    const Along along(w, row);
    const Scalar gamma = a.gammas ? a.gammas[along.member] : a.gamma;
    const Scalar lambda = a.lambdas ? a.lambdas[along.member] : a.lam;
    Scalar following = a.next_value[along.first + (long long)(w.steps - 1) * w.worlds];
    for (int end = w.steps; end > 0; end -= AT_ONCE) {
        const int count = end < AT_ONCE ? end : AT_ONCE;
        Scalar reward[AT_ONCE], value[AT_ONCE];
        bool done[AT_ONCE];
        for (int k = 0; k < AT_ONCE; ++k) {
            if (k >= count) break;
            const long long at = along.first + (long long)(end - 1 - k) * w.worlds;
            reward[k] = a.reward[at], value[k] = a.next_value[at], done[k] = a.done[at];
        }
        for (int k = 0; k < AT_ONCE; ++k) {
            if (k >= count) break;
            // Exact at either end.
            const Scalar apart = following - value[k];
            const Scalar mixed = lambda < Scalar(0.5) ? value[k] + lambda * apart : following - apart * (1 - lambda);
            following = reward[k] + gamma * (done[k] ? value[k] : mixed);
            a.targets[along.first + (long long)(end - 1 - k) * w.worlds] = following;
        }
    }
}
