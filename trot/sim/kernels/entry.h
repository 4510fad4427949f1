// Where a launch enters: find this lane's model and workspace, then run a block of worlds.
#pragma once
#include "step.h"

// On CUDA both lie in shared memory as long as they fit; a robot too large for that works in device memory. Where many
// worlds are to share a multiprocessor, the model, the same for all, leaves its room to them: the cache holds it once.
constexpr int SHARED_BYTES = 47 * 1024;

struct BackwardWorkspace { World world; Adjoint adjoint; };
constexpr int SHARED_MODEL_BYTES = model_in_shared ? sizeof(Model) : 0;
constexpr bool fits_shared = SHARED_MODEL_BYTES + sizeof(BackwardWorkspace) <= SHARED_BYTES;

#if defined(__CUDA_ARCH__)
INLINE const Model& shared_model(const Model* source, int lane) {
    constexpr int num_words = sizeof(Model) / sizeof(int);
    __shared__ alignas(16) int words[fits_shared && model_in_shared ? num_words : 1];
    if (!fits_shared || !model_in_shared) return *source;
    FOR_LANES(k, num_words) words[k] = reinterpret_cast<const int*>(source)[k];
    return *reinterpret_cast<const Model*>(words);
}
template <typename Workspace>
INLINE Workspace& workspace(char* scratch, int block) {
    __shared__ alignas(alignof(Workspace)) Real words[fits_shared ? sizeof(Workspace) / sizeof(Real) : 1];
    if (fits_shared) return *reinterpret_cast<Workspace*>(words);
    return *reinterpret_cast<Workspace*>(scratch + (long long)block * sizeof(Workspace));
}
#else
// A CPU thread runs its blocks one after the other in one workspace.
INLINE const Model& shared_model(const Model* source, int) { return *source; }
template <typename Workspace>
INLINE Workspace& workspace(char* scratch, int) { return *reinterpret_cast<Workspace*>(scratch); }
#endif

INLINE void run_forward(const Work& work, const Tensors& tensors, int thread) {
    const int block = work.first_block + thread / LANES, lane = thread % LANES;
    const Model& model = shared_model(work.model, lane);
    World& world = workspace<World>(work.scratch, block);
    barrier();
    step_forward(world, model, lane, tensors, block, work.cycles);
}

INLINE void run_backward(const Work& work, const Tensors& tensors, const Cotangents& cotangents, int thread) {
    const int block = work.first_block + thread / LANES, lane = thread % LANES;
    const Model& model = shared_model(work.model, lane);
    BackwardWorkspace& space = workspace<BackwardWorkspace>(work.scratch, block);
    barrier();
    step_backward(space.world, space.adjoint, model, lane, tensors, cotangents, block, work.cycles);
}

// What the host must know to allocate.
INLINE void report_sizes(const Report& report, int) {
    report.sizes[0] = WORLDS_PER_BLOCK;
    report.sizes[1] = record_size;
    report.sizes[2] = sizeof(BackwardWorkspace);
    report.sizes[3] = fits_shared;
    report.sizes[4] = NUM_STAGES;
    report.sizes[5] = sizeof(Model);
}
