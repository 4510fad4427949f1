// The fit of critics in one launch for CUDA: passes over mini-batches of rows, and for each batch a step of Adam on the
// clipped gradient of the mean squared error. `critic_tile.h` takes a tile of rows through the network and back.
//
// A member is fitted by a group of thread blocks. Its batch is cut into tiles of rows, and these are dealt out to slots;
// each slot's gradient is summed by one block, tile after tile. Then every block adds up a part of the parameters over
// all slots, and moves it. Nothing depends on how many blocks there are, nor on which is first: the bits are the same.
#pragma once

// Parameters are moved in chunks of fours, each by one block.
constexpr int CHUNK = CHUNK_FOURS * 4, CHUNKS = (PARAMETERS + CHUNK - 1) / CHUNK;
static_assert(CHUNK_FOURS % THREADS == 0, "a chunk is shared by whole blocks");
// A slot keeps its gradient, and the sum of squared errors behind it.
constexpr int SLOT = PARAMETERS + 4;
static_assert(TILE_NUMBERS == HOST_TILE && SLOT == HOST_SLOT && PARAMETERS + ACROSS == HOST_WEIGHTS &&
                  CHUNKS == HOST_CHUNKS && ARRIVALS_APART == HOST_ARRIVALS,
              "the host counts in another way");

// Where four of the padded parameters lie outside: in which of PyTorch's parameters, from which place on, and how many of
// them, as the others are padding.
struct Place {
    int parameter, index, count;
    int across, apart;  // where the first lies among the transposed weights, or -1, and how far behind it the next
};
template <int LAYER>
INLINE Place locate(int first) {
    using L = Layer<LAYER>;
    if constexpr (LAYER < LAYERS - 1) {
        if (first >= L::end) return locate<LAYER + 1>(first);
    }
    if (first < L::bias) {
        const int output = (first - L::weight) / L::row, input = (first - L::weight) % L::row;
        const int left = L::inputs - input, across = L::last ? -1 : L::across + input * L::column + output;
        return {4 * LAYER, output * L::inputs + input, left < 4 ? left : 4, across, L::column};
    }
    const int index = (first - L::bias) % L::column, left = L::outputs - index;
    return {4 * LAYER + 1 + (first - L::bias) / L::column, index, left < 4 ? left : 4, -1, 0};
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
    INLINE void set_weight(int first, const Place& place, int j, Scalar weight) const {
        weights[first + j] = weight;
        if (place.across >= 0) across[place.across + j * place.apart] = weight;
    }
    INLINE void meet() const { group_barrier(arrivals, blocks, thread); }
};

// A thread's fours of its block's chunks, by their first number. The last ones may lie behind the parameters.
#define FOR_OWN_CHUNKS(block, chunk) for (int chunk = block.number; chunk < CHUNKS; chunk += block.blocks)
#define FOR_CHUNK(block, chunk, first) \
    for (int first = chunk * CHUNK + block.thread * 4; first < (chunk + 1) * CHUNK; first += THREADS * 4)
#define FOR_PLACE(place, j) UNROLL for (int j = 0; j < 4; ++j) if (j < place.count)

STAGE void copy_weights(const Block& block) {
    FOR_OWN_CHUNKS(block, chunk) FOR_CHUNK(block, chunk, first) {
        if (first >= PARAMETERS) continue;
        const Place place = locate<0>(first);
        const Scalar* weights = block.parameter(block.fit.parameters, place);
        FOR_PLACE(place, j) block.set_weight(first, place, j, weights[j]);
    }
}

// The gradient of this block's chunks, summed over the slots in their order, and its squares.
STAGE void add_slots(const Block& block) {
    FOR_OWN_CHUNKS(block, chunk) {
        Scalar squares = 0;
        FOR_CHUNK(block, chunk, first) {
            if (first >= PARAMETERS) continue;
            Four sum = uniform(0);
            UNROLL_LOADS for (int slot = 0; slot < block.fit.slots; ++slot) {
                add_scaled(sum, 1, CONST_FOUR(block.slots + (long long)slot * SLOT + first));
            }
            // Nobody else reads these numbers before the next batch.
            FOUR(block.slots + first) = sum;
            squares = dot(sum, sum, squares);
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
    Scalar total = 0;
    for (int k = block.thread; k < CHUNKS * WARPS; k += THREADS) total += block.squares[k];
    const Scalar norm = wp::sqrt(sum_of_block(total, warps, block.thread));
    const Scalar share = fit.largest[block.member] / (norm + Scalar(1e-6));
    // A gradient that is not finite leaves weights that are not: it is the learner who looks at them.
    const Scalar clipping = share > 1 ? Scalar(1) : share;
    const Scalar new_mean = 1 - fit.beta1, new_square = 1 - fit.beta2;
    FOR_OWN_CHUNKS(block, chunk) FOR_CHUNK(block, chunk, first) {
        if (first >= PARAMETERS) continue;
        const Place place = locate<0>(first);
        Scalar *means = block.parameter(fit.means, place), *squares = block.parameter(fit.squares, place);
        Scalar* weights = block.parameter(fit.parameters, place);
        // All loads first, so that they travel together.
        Scalar mean[4], square[4], slope[4], weight[4];
        FOR_PLACE(place, j) {
            mean[j] = means[j];
            square[j] = squares[j];
            slope[j] = block.slots[first + j] * clipping;
            weight[j] = block.weights[first + j];
        }
        FOR_PLACE(place, j) {
            mean[j] += (slope[j] - mean[j]) * new_mean;
            square[j] = square[j] * fit.beta2 + slope[j] * slope[j] * new_square;
            const Scalar deviation = wp::sqrt(square[j]) * rates.correction + Scalar(1e-8);
            weight[j] -= mean[j] / deviation * rates.step_size;
            means[j] = mean[j];
            squares[j] = square[j];
            weights[j] = weight[j];
            block.set_weight(first, place, j, weight[j]);
        }
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
