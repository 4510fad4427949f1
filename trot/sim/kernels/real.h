// One source, two machines. Real is the number every law is written in:
//   CPU    a vector of 64 bytes, one number of each of 16 worlds (8 in double precision), one lane; a loop over bodies
//          runs them one after the other
//   CUDA   a plain number of one world, 32 lanes; a loop over bodies spreads them over the lanes
// Scalar is the same number for every world: a model constant or a time step. The build defines it as float or double.
#pragma once

#if defined(__CUDA_ARCH__)

using Real = Scalar;
using Mask = bool;
constexpr int LANES = 32;
constexpr int WORLDS_PER_BLOCK = 1;
#define INLINE __device__ __forceinline__
#define STAGE __device__ __forceinline__

// Between stages: what one lane wrote, every lane may read.
INLINE void barrier() { __syncwarp(); }

// The number that another lane holds.
INLINE Real from_lane(Real value, int other) { return __shfl_sync(0xffffffffu, value, other); }

INLINE bool any(Mask mask) { return mask; }
INLINE Real square_root(Real a) { return sqrt(a); }
INLINE float reciprocal(float a) { return __frcp_rn(a); }
INLINE double reciprocal(double a) { return __drcp_rn(a); }
// To two units in the last place, without a branch.
INLINE float inverse_square_root(float a) { return rsqrtf(a); }
INLINE double inverse_square_root(double a) { return rsqrt(a); }
INLINE void prefetch(const Real* a) { asm volatile("prefetch.global.L1 [%0];" ::"l"(a)); }
INLINE Real nearest_integer(Real a) { return rint(a); }
INLINE Real larger(Real a, Real b) { return a > b ? a : b; }
INLINE Real smaller(Real a, Real b) { return a < b ? a : b; }

#else

constexpr int LANES = 1;
constexpr int WORLDS_PER_BLOCK = 64 / sizeof(Scalar);
typedef Scalar Real __attribute__((ext_vector_type(WORLDS_PER_BLOCK), aligned(64)));
typedef decltype(Real() < Real()) Mask;
#define INLINE inline __attribute__((always_inline))
#define STAGE inline __attribute__((noinline))

INLINE void barrier() {}
INLINE Real from_lane(Real value, int) { return value; }

INLINE bool any(Mask mask) { return __builtin_reduce_or(mask) != 0; }
INLINE Real square_root(Real a) { return __builtin_elementwise_sqrt(a); }
INLINE Real reciprocal(Real a) { return Scalar(1) / a; }
INLINE Real inverse_square_root(Real a) { return Scalar(1) / square_root(a); }
INLINE void prefetch(const Real*) {}
INLINE Real nearest_integer(Real a) { return __builtin_elementwise_roundeven(a); }
INLINE Real larger(Real a, Real b) { return __builtin_elementwise_max(a, b); }
INLINE Real smaller(Real a, Real b) { return __builtin_elementwise_min(a, b); }

#endif

// Latency is what a lone warp pays for: unrolled loads overlap.
#define UNROLL _Pragma("unroll")
#define UNROLL_SOME _Pragma("unroll 4")
#define UNROLL_MORE _Pragma("unroll 8")

#define FOR_LANES(i, n) for (int i = lane; i < (n); i += LANES)
#define FOR_LANES_FROM(i, first, end) for (int i = (first) + lane; i < (end); i += LANES)

INLINE Real real(Scalar a) { return Real(a); }
INLINE Real zero() { return Real(Scalar(0)); }
INLINE Real one() { return Real(Scalar(1)); }
INLINE Real select(Mask mask, Real a, Real b) { return mask ? a : b; }
// Clamped to a range. A NaN stays one: it must show in the state.
INLINE Real within(Real a, Scalar lower, Scalar upper) {
    return select(a < real(lower), real(lower), select(a > real(upper), real(upper), a));
}

// Sine and cosine to a few units in the last place, for angles up to 1e5 rad in single and 30 rad in double precision
// (beyond, the error grows with the angle): reduce to [-pi, pi], Taylor at the half angle, then double it.
INLINE void sine_cosine(Real angle, Real& sine, Real& cosine) {
    constexpr bool single = sizeof(Scalar) == 4;
    const Real turns = nearest_integer(angle * Scalar(0.15915494309189535));
    // 2 pi in two parts, so that the subtraction loses little.
    angle = angle - turns * Scalar(single ? 6.28125 : 6.283185307179586);
    angle = angle - turns * Scalar(single ? 0.0019353071795864769 : 2.4492935982947064e-16);
    const Real h = angle * Scalar(0.5);
    const Real x = h * h;
    Real s = real(Scalar(single ? 0 : 1.0 / 51090942171709440000.0));
    Real c = real(Scalar(single ? 0 : 1.0 / 2432902008176640000.0));
    if (!single) {
        s = s * x - Scalar(1.0 / 121645100408832000.0);
        s = s * x + Scalar(1.0 / 355687428096000.0);
        s = s * x - Scalar(1.0 / 1307674368000.0);
        c = c * x - Scalar(1.0 / 6402373705728000.0);
        c = c * x + Scalar(1.0 / 20922789888000.0);
        c = c * x - Scalar(1.0 / 87178291200.0);
    }
    s = s * x + Scalar(1.0 / 6227020800.0);
    s = s * x - Scalar(1.0 / 39916800.0);
    s = s * x + Scalar(1.0 / 362880.0);
    s = s * x - Scalar(1.0 / 5040.0);
    s = s * x + Scalar(1.0 / 120.0);
    s = s * x - Scalar(1.0 / 6.0);
    s = (s * x + Scalar(1)) * h;
    c = c * x + Scalar(1.0 / 479001600.0);
    c = c * x - Scalar(1.0 / 3628800.0);
    c = c * x + Scalar(1.0 / 40320.0);
    c = c * x - Scalar(1.0 / 720.0);
    c = c * x + Scalar(1.0 / 24.0);
    c = c * x - Scalar(0.5);
    c = c * x + Scalar(1);
    sine = s * c * Scalar(2);
    cosine = one() - s * s * Scalar(2);
}
