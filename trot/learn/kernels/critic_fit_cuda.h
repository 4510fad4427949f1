// The fit of critics in one launch for CUDA: passes over mini-batches of rows, and for each batch a step of Adam on the
// clipped gradient of the mean squared error. `critic_tile.h` takes a tile of rows through the network and back.
//
// A member is fitted by a group of thread blocks. Its batch is cut into tiles of rows, and these are dealt out to slots;
// each slot's gradient is summed by one block, tile after tile. Then every block adds up a part of the parameters over
// all slots, and moves it. Nothing depends on how many blocks there are, nor on which is first: the bits are the same.
#pragma once

// Parameters are moved in chunks, each by one block.
constexpr int CHUNK = 256, CHUNKS = (PARAMETERS + CHUNK - 1) / CHUNK;
static_assert(CHUNK % THREADS == 0, "a chunk is shared by whole blocks");
// A slot keeps its gradient, and the sum of squared errors behind it.
constexpr int SLOT = PARAMETERS + 4;
static_assert(TILE_NUMBERS == HOST_TILE && SLOT == HOST_SLOT && PARAMETERS + ACROSS == HOST_WEIGHTS &&
                  CHUNKS == HOST_CHUNKS && ARRIVALS_APART == HOST_ARRIVALS,
              "the host counts in another way");

// Where a number of the padded parameters lies outside: in which of PyTorch's parameters, and at which place there.
struct Place {
    int parameter, index;
    int across;  // its place among the transposed weights, or -1
};
// False where it is padding.
template <int LAYER>
INLINE bool locate(int number, Place& place) {
    using L = Layer<LAYER>;
    if constexpr (LAYER < LAYERS - 1) {
        if (number >= L::end) return locate<LAYER + 1>(number, place);
    }
    place.across = -1;
    if (number < L::bias) {
        const int output = (number - L::weight) / L::row, input = (number - L::weight) % L::row;
        place.parameter = 4 * LAYER;
        place.index = output * L::inputs + input;
        if (!L::last) place.across = L::across + input * L::column + output;
        return input < L::inputs;
    }
    const int behind = (number - L::bias) / L::column;
    place.parameter = 4 * LAYER + 1 + behind;
    place.index = (number - L::bias) % L::column;
    return number < L::end && place.index < L::outputs;
}

// What one block of threads knows of the member it fits.
struct Block {
    const Fit& fit;
    int member, blocks, number, thread;  // `number` is the block's own among the group's `blocks`
    Scalar *weights, *across;            // padded copies, as they lie and transposed
    Scalar* slots;
    Scalar* squares;  // sums of the gradient's squares, for each warp's part of a chunk
    int* arrivals;

    INLINE Block(const Fit& fit, int block, int thread) : fit(fit), blocks(fit.blocks), thread(thread) {
        const int group = block / blocks;
        number = block % blocks;
        member = group;
        weights = fit.weights + (long long)group * (PARAMETERS + ACROSS);
        across = weights + PARAMETERS;
        slots = fit.gradients + (long long)group * fit.slots * SLOT;
        squares = fit.squares_of_parts + (long long)group * CHUNKS * WARPS;
        arrivals = fit.arrivals + group * ARRIVALS_APART;
    }
    INLINE Scalar* parameter(const long long* addresses, const Place& place) const {
        return (Scalar*)addresses[place.parameter] + member * fit.strides[place.parameter] + place.index;
    }
    INLINE void set_weight(int k, const Place& place, Scalar weight) const {
        weights[k] = weight;
        if (place.across >= 0) across[place.across] = weight;
    }
    INLINE void meet() const { group_barrier(arrivals, blocks, thread); }
};

#define FOR_OWN_CHUNKS(block, chunk) for (int chunk = block.number; chunk < CHUNKS; chunk += block.blocks)
#define FOR_CHUNK(block, chunk, k)                                                                   \
    for (int k = chunk * CHUNK + block.thread, end_##k = (chunk + 1) * CHUNK; k < end_##k; k += THREADS)

STAGE void copy_weights(const Block& block) {
    FOR_OWN_CHUNKS(block, chunk) FOR_CHUNK(block, chunk, k) {
        Place place;
        if (k < PARAMETERS && locate<0>(k, place)) {
            block.set_weight(k, place, *block.parameter(block.fit.parameters, place));
        }
    }
}

// The gradient of this block's chunks, summed over the slots in their order, and its squares.
STAGE void add_slots(const Block& block) {
    FOR_OWN_CHUNKS(block, chunk) {
        Scalar squares = 0;
        FOR_CHUNK(block, chunk, k) {
            Scalar sum = 0;
            if (k < PARAMETERS) {
                UNROLL_SOME for (int slot = 0; slot < block.fit.slots; ++slot) {
                    sum += block.slots[(long long)slot * SLOT + k];
                }
                // Nobody else reads this number before the next batch.
                block.slots[k] = sum;
            }
            squares += sum * sum;
        }
        squares = sum_of_lanes<WARP>(squares);
        if (block.thread % WARP == 0) block.squares[chunk * WARPS + block.thread / WARP] = squares;
    }
}

// What Adam needs besides the gradient, of one step.
struct Rates {
    Scalar step_size, correction;
};

STAGE void clipped_adam(const Block& block, Scalar* warps, const Rates& rates) {
    const Fit& fit = block.fit;
    Scalar squares = 0;
    for (int k = block.thread; k < CHUNKS * WARPS; k += THREADS) squares += block.squares[k];
    const Scalar norm = wp::sqrt(sum_of_block(squares, warps, block.thread));
    const Scalar share = fit.largest[block.member] / (norm + Scalar(1e-6));
    // A gradient that is not finite leaves weights that are not: it is the learner who looks at them.
    const Scalar clipping = share > 1 ? Scalar(1) : share;
    const Scalar new_mean = 1 - fit.beta1, new_square = 1 - fit.beta2;
    FOR_OWN_CHUNKS(block, chunk) FOR_CHUNK(block, chunk, k) {
        Place place;
        if (k >= PARAMETERS || !locate<0>(k, place)) continue;
        Scalar *mean_place = block.parameter(fit.means, place), *square_place = block.parameter(fit.squares, place);
        const Scalar slope = block.slots[k] * clipping;
        Scalar mean = *mean_place, square = *square_place;
        mean += (slope - mean) * new_mean;
        square = square * fit.beta2 + slope * slope * new_square;
        const Scalar deviation = wp::sqrt(square) * rates.correction + Scalar(1e-8);
        const Scalar weight = block.weights[k] - mean / deviation * rates.step_size;
        *mean_place = mean;
        *square_place = square;
        *block.parameter(fit.parameters, place) = weight;
        block.set_weight(k, place, weight);
    }
}

// A member's whole fit, by its group of blocks.
STAGE void fit_member(const Block& block, Scalar* shared) {
    const Fit& fit = block.fit;
    const int rows = fit.batch_rows, tiles = (rows + ROWS - 1) / ROWS;
    const long long all = (long long)rows * fit.batches;
    Tile tile{shared, block.weights, block.across, nullptr, block.thread, false};
    double power1 = wp::pow(double(fit.beta1), double(fit.steps[block.member]));
    double power2 = wp::pow(double(fit.beta2), double(fit.steps[block.member]));
    Scalar loss = 0;
    copy_weights(block);
    block.meet();
    for (int step = 0; step < fit.passes * fit.batches; ++step) {
        const long long before = block.member * all + (long long)(step % fit.batches) * rows;
        for (int slot = block.number; slot < fit.slots; slot += block.blocks) {
            tile.gradient = block.slots + (long long)slot * SLOT;
            for (int k = slot; k < tiles; k += fit.slots) {
                const int first = k * ROWS, count = rows - first < ROWS ? rows - first : ROWS;
                tile.add = k != slot;
                add_rows(tile, fit.inputs + (before + first) * WIDTHS[0], fit.targets + before + first, count, rows,
                         fit.epsilon);
            }
        }
        block.meet();
        add_slots(block);
        if (block.number == 0 && block.thread == 0 && step >= (fit.passes - 1) * fit.batches) {
            for (int slot = 0; slot < fit.slots; ++slot) loss += block.slots[(long long)slot * SLOT + PARAMETERS];
        }
        power1 *= fit.beta1;
        power2 *= fit.beta2;
        const Rates rates{fit.rate[block.member] / Scalar(1 - power1), Scalar(1 / wp::sqrt(1 - power2))};
        block.meet();
        clipped_adam(block, shared, rates);
        block.meet();
    }
    if (block.number == 0 && block.thread == 0) fit.loss[block.member] = loss / Scalar(all);
}

// Where a launch enters. Groups take the members in turn, where there are more of these.
INLINE void fit_critic(const Fit& fit, int thread) {
    SHARED_MEMORY(shared, fit.scratch);
    Block block(fit, thread / THREADS, thread % THREADS);
    const int groups = fit.groups;
    for (; block.member < fit.members; block.member += groups) fit_member(block, shared);
}
