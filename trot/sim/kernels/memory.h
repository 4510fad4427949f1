// Between the tensors outside, (num_worlds, width) row by row, and the worlds of one block.
#pragma once
#include "world.h"

// A last, incomplete block computes its last world several times and stores it once.
INLINE Real load(const Scalar* tensor, int num_worlds, int width, int block, int column) {
#if defined(__CUDA_ARCH__)
    return tensor[(long long)block * width + column];
#else
    Real value;
    for (int i = 0; i < WORLDS_PER_BLOCK; ++i) {
        const int world = block * WORLDS_PER_BLOCK + i;
        value[i] = tensor[(long long)(world < num_worlds ? world : num_worlds - 1) * width + column];
    }
    return value;
#endif
}

INLINE void store(Scalar* tensor, int num_worlds, int width, int block, int column, Real value) {
#if defined(__CUDA_ARCH__)
    tensor[(long long)block * width + column] = value;
#else
    for (int i = 0; i < WORLDS_PER_BLOCK; ++i) {
        const int world = block * WORLDS_PER_BLOCK + i;
        if (world < num_worlds) tensor[(long long)world * width + column] = value[i];
    }
#endif
}

// Numbers of a table that differs from world to world only in where it is looked up.
INLINE Real gather(const Scalar* table, Real index) {
#if defined(__CUDA_ARCH__)
    return table[(int)index];
#else
    Real value;
    for (int i = 0; i < WORLDS_PER_BLOCK; ++i) value[i] = table[(int)index[i]];
    return value;
#endif
}

// A record is what the backward pass needs of a substep: the parts of World that are kept, one after the other. On CUDA
// each part is a whole number of quads, with which its struct ends.
constexpr int in_record(int count) { return LANES > 1 ? (count + 3) / 4 * 4 : count; }
constexpr int RECORD_FACTOR = in_record(num_q + 2 * num_dofs + num_acts);
constexpr int RECORD_MOTIONS = RECORD_FACTOR + (store_factor ? in_record(num_dofs * (row_stride + 1)) : 0);
constexpr int record_size = RECORD_MOTIONS + (store_motion ? in_record(sizeof(BodyMotions) / sizeof(Real)) : 0);

// Where a number of the record lives.
INLINE Real* recorded(World& world, int k) {
    if (k < RECORD_FACTOR) return numbers(static_cast<Substep*>(&world)) + k;
    if (k < RECORD_MOTIONS) return numbers(static_cast<Factor*>(&world)) + (k - RECORD_FACTOR);
    return numbers(static_cast<BodyMotions*>(&world)) + (k - RECORD_MOTIONS);
}

// On CUDA a record moves in quads, every LANES-th by one lane. As many as a lane has registers for are read before any
// is written, so that they travel together.
template <typename From, typename To>
INLINE void move_quads(int lane, From from, To to) {
    constexpr int count = record_size / 4, rounds = (count + LANES - 1) / LANES, at_once = 16;
    UNROLL for (int first = 0; first < rounds; first += at_once) {
        Quad quad[at_once];
        UNROLL for (int i = 0; i < at_once; ++i) {
            const int k = (first + i) * LANES + lane;
            if (first + i < rounds && k < count) quad[i] = *reinterpret_cast<const Quad*>(from(4 * k));
        }
        UNROLL for (int i = 0; i < at_once; ++i) {
            const int k = (first + i) * LANES + lane;
            if (first + i < rounds && k < count) *reinterpret_cast<Quad*>(to(4 * k)) = quad[i];
        }
    }
    barrier();
}

INLINE void save_substep(World& world, int lane, Real* record) {
    if (LANES == 1) {
        for (int k = 0; k < record_size; ++k) record[k] = *recorded(world, k);
    } else {
        move_quads(lane, [&](int k) { return recorded(world, k); }, [&](int k) { return record + k; });
    }
}

INLINE void restore_substep(World& world, int lane, const Real* record) {
    if (LANES == 1) {
        for (int k = 0; k < record_size; ++k) *recorded(world, k) = record[k];
    } else {
        move_quads(lane, [&](int k) { return record + k; }, [&](int k) { return recorded(world, k); });
    }
}

// On CUDA, ask for a record while another is worked on.
INLINE void prefetch_substep(const Real* record, int lane) {
    constexpr int line = 128 / sizeof(Scalar);
    FOR_LANES(k, (record_size + line - 1) / line) prefetch(record + k * line);
}
