// What kernels for a block of threads are written in: a barrier, sums over lanes and over the block, four numbers at once.
//
//   CUDA   a block of threads works on a tile, which lies in shared memory
//   CPU    one thread does, in plain memory: slow, but it is the same arithmetic, so that it can be tested anywhere
//
// The build defines Scalar as float or double, and BLOCK_THREADS; the header behind this one TILE_NUMBERS.
#pragma once

#if defined(__CUDA_ARCH__)

#define INLINE __device__ __forceinline__
#define STAGE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define UNROLL_SOME _Pragma("unroll 4")
#define UNROLL_LOADS _Pragma("unroll 8")
#define SHARED_MEMORY(name, scratch) __shared__ alignas(16) Scalar name[TILE_NUMBERS]

constexpr int THREADS = BLOCK_THREADS, WARP = 32;

INLINE void barrier() { __syncthreads(); }

// Over so many neighbouring lanes; each of them gets the same bits.
template <int LANES>
INLINE Scalar sum_of_lanes(Scalar value) {
    UNROLL for (int distance = 1; distance < LANES; distance *= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}

#else

#define INLINE inline __attribute__((always_inline))
#define STAGE inline __attribute__((noinline))
#define UNROLL
#define UNROLL_SOME
#define UNROLL_LOADS
#define SHARED_MEMORY(name, scratch) Scalar* name = scratch

constexpr int THREADS = 1, WARP = 1;

INLINE void barrier() {}
template <int LANES>
INLINE Scalar sum_of_lanes(Scalar value) {
    static_assert(LANES == 1, "one thread has no neighbours");
    return value;
}

#endif

constexpr int WARPS = THREADS / WARP;

// Over all threads, in a fixed order; `warps` holds a number for each warp.
INLINE Scalar sum_of_block(Scalar value, Scalar* warps, int thread) {
    value = sum_of_lanes<WARP>(value);
    if (THREADS == 1) return value;
    if (thread % WARP == 0) warps[thread / WARP] = value;
    barrier();
    Scalar sum = 0;
    UNROLL for (int k = 0; k < WARPS; ++k) sum += warps[k];
    return sum;
}

// Four numbers that are read and written at once.
struct alignas(16) Four {
    Scalar x, y, z, w;
};
#define WHOLE_FOURS(n) (((n) + 3) / 4 * 4)
#define FOUR(place) (*(Four*)(place))
#define CONST_FOUR(place) (*(const Four*)(place))

INLINE Four uniform(Scalar a) { return {a, a, a, a}; }
INLINE Four scaled(Four a, Scalar scale, Scalar shift) {
    return {a.x * scale + shift, a.y * scale + shift, a.z * scale + shift, a.w * scale + shift};
}
INLINE void add_scaled(Four& sum, Scalar a, Four b) {
    sum.x += a * b.x;
    sum.y += a * b.y;
    sum.z += a * b.z;
    sum.w += a * b.w;
}
INLINE Scalar dot(Four a, Four b, Scalar sum) { return a.w * b.w + (a.z * b.z + (a.y * b.y + (a.x * b.x + sum))); }
INLINE Scalar elu(Scalar x) { return x > 0 ? x : wp::exp(x) - 1; }
