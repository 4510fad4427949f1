// A perceptron by blocks of rows: their outputs, the derivative by their inputs, and that by the weights.
#pragma once

// A block's place among the rows of all members, and its member's parameters.
struct Block {
    const Scalar* parameters[MOST_PARAMETERS];
    Network net;
    int member;
    long long first;
    int count;

    INLINE Block(const Shape& shape, int member_rows, int index)
        : net{shape.layers, shape.widths, shape.epsilon, parameters} {
        const int of_member = (member_rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
        member = index / of_member;
        const int row = index % of_member * BLOCK_ROWS;
        for (int p = 0; p < net.num_parameters(); ++p) {
            parameters[p] = (const Scalar*)shape.parameters[p] + member * shape.strides[p];
        }
        first = (long long)member * member_rows + row;
        count = member_rows - row < BLOCK_ROWS ? member_rows - row : BLOCK_ROWS;
    }
    INLINE void load(const Scalar* rows, int width, Workspace& work, Rows* x) const {
        load_rows(rows + first * width, count, width, work.across);
        by_feature(work.across, width, x);
    }
    INLINE void store(const Rows* x, int width, Workspace& work, Scalar* rows) const {
        by_row(x, width, work.across);
        const int stride = padded(width);
        for (int row = 0; row < count; ++row) {
            for (int k = 0; k < width; k += LANES) {
                store_some(*(const Rows*)(work.across + row * stride + k), width - k, rows + (first + row) * width + k);
            }
        }
    }
};

inline void run_rows(const Shape& shape, const Forward& run, int thread) {
    const Block block(shape, run.member_rows, run.first + thread);
    Workspace work(block.net, run.scratch);
    block.load(run.inputs, shape.widths[0], work, work.inputs);
    forward(block.net, work, work.bar);
    block.store(work.bar, shape.widths[shape.layers], work, run.outputs);
}

// Takes the rows through the network again: to keep all that it needs would take more memory than time.
inline void run_rows_adjoint(const Shape& shape, const Adjoint& run, int thread) {
    const Block block(shape, run.member_rows, run.first + thread);
    Workspace work(block.net, run.scratch);
    block.load(run.inputs, shape.widths[0], work, work.inputs);
    forward(block.net, work, work.bar);
    block.load(run.outputs_bar, shape.widths[shape.layers], work, work.bar);
    forward_adjoint(block.net, work, nullptr);
    block.store(work.bar, shape.widths[0], work, run.inputs_bar);
}

// By the parameters of a member, added up over one of the parts that its rows are taken in, block after block.
inline void run_rows_by_weights(const Shape& shape, const ByWeights& run, int thread) {
    const int part = run.first + thread, member = part / run.member_parts;
    const int member_blocks = (run.member_rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const int first = part % run.member_parts * run.part_blocks, end = first + run.part_blocks;
    Scalar* sums = run.sums + (long long)part * run.part_numbers;
    for (int k = 0; k < run.part_numbers; ++k) sums[k] = 0;
    for (int k = first; k < end && k < member_blocks; ++k) {
        const Block block(shape, run.member_rows, member * member_blocks + k);
        Scalar* parameters_bar[MOST_PARAMETERS];
        long long place = 0;
        for (int p = 0; p < block.net.num_parameters(); ++p) {
            parameters_bar[p] = sums + place;
            place += block.net.size(p);
        }
        Workspace work(block.net, run.scratch);
        block.load(run.inputs, shape.widths[0], work, work.inputs);
        forward(block.net, work, work.bar);
        block.load(run.outputs_bar, shape.widths[shape.layers], work, work.bar);
        forward_adjoint(block.net, work, parameters_bar);
    }
}
