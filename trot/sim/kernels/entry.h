// Where a launch enters: find this lane's model and workspace, then run a block of worlds.
#pragma once
#include "step.h"

// On CUDA both lie in shared memory as long as they fit; a robot too large for that works in device memory.
constexpr int SHARED_BYTES = 47 * 1024;

struct BackwardWorkspace { World world; Adjoint adjoint; };

#if defined(__CUDA_ARCH__)
INLINE const Model& shared_model(const Model* source, int lane) {
    constexpr bool fits = sizeof(Model) + sizeof(BackwardWorkspace) <= SHARED_BYTES;
    constexpr int num_words = sizeof(Model) / sizeof(int);
    __shared__ alignas(16) int words[fits ? num_words : 1];
    if (!fits) return *source;
    FOR_LANES(k, num_words) words[k] = reinterpret_cast<const int*>(source)[k];
    return *reinterpret_cast<const Model*>(words);
}
template <typename Workspace>
INLINE Workspace& workspace(char* scratch, int block) {
    constexpr bool fits = sizeof(Model) + sizeof(BackwardWorkspace) <= SHARED_BYTES;
    __shared__ alignas(alignof(Workspace)) Real words[fits ? sizeof(Workspace) / sizeof(Real) : 1];
    if (fits) return *reinterpret_cast<Workspace*>(words);
    return *reinterpret_cast<Workspace*>(scratch + (long long)block * sizeof(Workspace));
}
#else
// A CPU thread runs its blocks one after the other in one workspace.
INLINE const Model& shared_model(const Model* source, int) { return *source; }
template <typename Workspace>
INLINE Workspace& workspace(char* scratch, int) { return *reinterpret_cast<Workspace*>(scratch); }
#endif

INLINE void run_forward(const Model* source, char* scratch, const Tensors& tensors, int block, int num_blocks, int lane,
                        long long* cycles) {
    const Model& model = shared_model(source, lane);
    World& world = workspace<World>(scratch, block);
    barrier();
    step_forward(world, model, lane, tensors, block, num_blocks, cycles);
}

INLINE void run_backward(const Model* source, char* scratch, const Tensors& tensors, const Cotangents& cotangents,
                         int block, int lane, long long* cycles) {
    const Model& model = shared_model(source, lane);
    BackwardWorkspace& space = workspace<BackwardWorkspace>(scratch, block);
    barrier();
    step_backward(space.world, space.adjoint, model, lane, tensors, cotangents, block, cycles);
}

// What the host must allocate.
INLINE void report_sizes(int* sizes) {
    sizes[0] = WORLDS_PER_BLOCK;
    sizes[1] = record_size;
    sizes[2] = sizeof(BackwardWorkspace);
    sizes[3] = SHARED_BYTES;
    sizes[4] = NUM_STAGES;
}
