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

// What the backward pass needs of a substep: the state before it, its acceleration, and where it pays, the factor.
constexpr int RECORD_QD = num_q;
constexpr int RECORD_QDD = RECORD_QD + num_dofs;
constexpr int RECORD_FACTOR = RECORD_QDD + num_dofs;
constexpr int RECORD_DIAGONAL = RECORD_FACTOR + num_mass_entries;
constexpr int record_size = store_factor ? RECORD_DIAGONAL + num_dofs : RECORD_FACTOR;

INLINE void save_substep(const World& world, const Model& model, int lane, Real* record) {
    FOR_LANES(k, num_q) record[k] = world.joint_q[k];
    FOR_LANES(dof, num_dofs) {
        record[RECORD_QD + dof] = world.joint_qd[dof];
        record[RECORD_QDD + dof] = world.joint_qdd[dof];
        if (store_factor) record[RECORD_DIAGONAL + dof] = world.inverse_diagonal[dof];
    }
    if (store_factor)
        FOR_LANES(k, num_mass_entries) record[RECORD_FACTOR + k] = world.mass_matrix[model.mass_entry[k]];
    barrier();
}

// On CUDA, ask for a record while another is worked on.
INLINE void prefetch_substep(const Real* record, int lane) {
    constexpr int line = 128 / sizeof(Scalar);
    FOR_LANES(k, (record_size + line - 1) / line) prefetch(record + k * line);
}

INLINE void restore_substep(World& world, const Model& model, int lane, const Real* record) {
    FOR_LANES(k, num_q) world.joint_q[k] = record[k];
    FOR_LANES(dof, num_dofs) {
        world.joint_qd[dof] = record[RECORD_QD + dof];
        world.joint_qdd[dof] = record[RECORD_QDD + dof];
        if (store_factor) world.inverse_diagonal[dof] = record[RECORD_DIAGONAL + dof];
    }
    if (store_factor)
        FOR_LANES(k, num_mass_entries) world.mass_matrix[model.mass_entry[k]] = record[RECORD_FACTOR + k];
    barrier();
}
