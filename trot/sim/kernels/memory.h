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

// What the backward pass needs of a substep: the state before it, its acceleration, and where it pays, the factor.
constexpr int RECORD_ACTS = sizeof(Substep) / sizeof(Real);
constexpr int RECORD_FACTOR = RECORD_ACTS + num_acts;
constexpr int RECORD_DIAGONAL = RECORD_FACTOR + num_mass_entries;
constexpr int record_size = store_factor ? RECORD_DIAGONAL + num_dofs : RECORD_FACTOR;

// Where a number of the record lives.
INLINE Real* recorded(World& world, const Model& model, int k) {
    if (k < RECORD_ACTS) return numbers(static_cast<Substep*>(&world)) + k;
    if (k < RECORD_FACTOR) return world.act + (k - RECORD_ACTS);
    if (k < RECORD_DIAGONAL) return world.mass_matrix + model.mass_entry[k - RECORD_FACTOR];
    return world.inverse_diagonal + (k - RECORD_DIAGONAL);
}

INLINE void save_substep(World& world, const Model& model, int lane, Real* record) {
    FOR_LANES(k, record_size) record[k] = *recorded(world, model, k);
    barrier();
}

// On CUDA, ask for a record while another is worked on.
INLINE void prefetch_substep(const Real* record, int lane) {
    constexpr int line = 128 / sizeof(Scalar);
    FOR_LANES(k, (record_size + line - 1) / line) prefetch(record + k * line);
}

INLINE void restore_substep(World& world, const Model& model, int lane, const Real* record) {
    if (LANES == 1) {
        for (int k = 0; k < record_size; ++k) *recorded(world, model, k) = record[k];
        return;
    }
    // All loads first, so that they travel together.
    constexpr int rounds = (record_size + LANES - 1) / LANES;
    Real number[rounds];
    UNROLL for (int i = 0; i < rounds; ++i)
        if (i * LANES + lane < record_size) number[i] = record[i * LANES + lane];
    UNROLL for (int i = 0; i < rounds; ++i)
        if (i * LANES + lane < record_size) *recorded(world, model, i * LANES + lane) = number[i];
    barrier();
}
