// A perceptron whose weights stay as they are: a tile of rows through it, and the derivative by these rows on the way
// back. Linear, an activation and perhaps layer normalisation for each hidden layer, then Linear.
//
// A block of threads takes a tile through all layers. It stands behind `block.h`. The build defines WIDTHS of the inputs,
// the hidden layers and the outputs, LAYERS (linear ones), ROWS of a tile (4, 8, 16 or 32), NORMALIZED and ACTIVATION.
//
// What goes into a layer lies in the tile feature by feature: [feature][row]. Forward writes down two numbers for each
// row of a hidden feature, from which the adjoint goes back without knowing the activation:
//
//   normal   its result with mean 0 and variance 1
//   factor   slope of the activation / deviation
#pragma once

constexpr int HIDDEN = LAYERS - 1, ROW_FOURS = ROWS / 4;
constexpr int MOST_SLICES = 16, MOST_AHEAD = 8;
constexpr int ELU = 0, RELU = 1, SILU = 2;

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define WHOLE_PARTS(n, part) (((n) + (part) - 1) / (part))

// The product of a tile with a matrix [factor][column]. Columns are taken by fours, and so are rows: a thread has a
// square of them. Where that leaves threads idle, the sum over the factors is cut into slices, which are added up by
// whoever takes the result.
//
// The four columns of a square are a quarter of the width apart, and the matrix is stored in that order: lanes read it,
// and write the tile, without gaps.
template <int FACTORS, int WIDTH>
struct Product {
    static constexpr int factors = FACTORS, width = WIDTH;
    static constexpr int columns = WHOLE_PARTS(WIDTH, 4), row = columns * 4, matrix = FACTORS * row;
    static constexpr int squares = columns * ROW_FOURS;
    // By the number of CUDA's threads, also where one thread does it all.
    static constexpr int share = SMALLER(BLOCK_THREADS / squares, MOST_SLICES);
    static constexpr int slices = LARGER(SMALLER(share, FACTORS), 1);
    static constexpr int items = squares * slices, held = WHOLE_PARTS(items, THREADS);
    static constexpr int turns = FACTORS / slices, left = FACTORS % slices;
    // Weights that a thread reads before it needs them. One that has several squares has enough to do meanwhile.
    static constexpr int ahead = held > 1 ? 0 : SMALLER(turns, MOST_AHEAD);
    static constexpr int slice = row * ROWS;
    static constexpr int numbers = LARGER(FACTORS * ROWS, slices * slice);
};

// Where a layer's numbers lie in the copy of the weights: by what its outputs and its inputs are products of.
template <int LAYER>
struct Layer {
    using Before = Layer<LAYER - 1>;
    static constexpr int inputs = WIDTHS[LAYER], outputs = WIDTHS[LAYER + 1];
    static constexpr bool last = LAYER == LAYERS - 1;
    using Forward = Product<inputs, outputs>;
    using Adjoint = Product<outputs, inputs>;
    static constexpr int forward = Before::end, adjoint = forward + Forward::matrix;
    static constexpr int bias = adjoint + Adjoint::matrix, scale = bias + WHOLE_FOURS(outputs);
    static constexpr bool normalized = NORMALIZED && !last;
    static constexpr int shift = scale + WHOLE_FOURS(outputs);
    static constexpr int end = normalized ? shift + WHOLE_FOURS(outputs) : scale;
    // Among the rows that forward keeps.
    static constexpr int normal = Before::end_kept, factor = normal + (normalized ? outputs : 0);
    static constexpr int end_kept = last ? normal : factor + outputs;
    static constexpr int tile = LARGER(Before::tile, LARGER(Forward::numbers, Adjoint::numbers));
};
template <>
struct Layer<-1> {
    static constexpr int end = 0, end_kept = 0, tile = 0;
};
constexpr int PACKED = Layer<LAYERS - 1>::end, KEPT = Layer<LAYERS - 1>::end_kept;

// Threads that share a row lie ROWS apart, so that those of a warp read neighbouring numbers.
constexpr int ROW_PARTS = THREADS > 1 ? THREADS / ROWS : 1, ROWS_AT_ONCE = THREADS > 1 ? ROWS : 1;
constexpr int SUMS = 2 * BLOCK_THREADS / 32 * ROWS;  // of each warp, two for each row
constexpr int TILE_NUMBERS = Layer<LAYERS - 1>::tile + SUMS;
static_assert(ROWS % 4 == 0 && ROWS <= 32 && 32 % ROWS == 0 && BLOCK_THREADS % 32 == 0, "a warp takes whole rows");
static_assert(PACKED == HOST_PACKED && KEPT == HOST_KEPT && TILE_NUMBERS == HOST_TILE, "the host counts in another way");

struct Tile {
    Scalar *numbers, *sums;
    const Scalar* weights;  // of this member
    Scalar* kept;           // of this tile, or null
    int thread, count;      // rows of it that there are
};

// The rows that a thread has a part of, and the features of its part.
#define FOR_ROWS(tile, row, part)                                                                  \
    const int part = tile.thread / ROWS_AT_ONCE;                                                   \
    for (int row = tile.thread % ROWS_AT_ONCE; row < ROWS; row += ROWS_AT_ONCE)
#define SHARE(WIDTH) WHOLE_PARTS(WIDTH, ROW_PARTS)
#define FOR_SHARE(WIDTH, part, j, k) \
    UNROLL for (int j = 0, k = part; j < SHARE(WIDTH); ++j, k += ROW_PARTS) if (k < WIDTH)

// Over all threads of a row, in a fixed order. All threads of the block call it; FIRST is the first place for sums that
// it takes, as those of the last call may still be read.
template <int FIRST, int COUNT>
INLINE void add_up_row(const Tile& tile, Scalar (&values)[COUNT]) {
#if defined(__CUDA_ARCH__)
    Scalar* sums = tile.sums + FIRST * WARPS * ROWS;
    const int warp = tile.thread / WARP, lane = tile.thread % WARP;
    UNROLL for (int n = 0; n < COUNT; ++n) {
        UNROLL for (int distance = ROWS; distance < WARP; distance *= 2) {
            values[n] += __shfl_xor_sync(0xffffffffu, values[n], distance);
        }
        if (lane < ROWS) sums[(n * WARPS + warp) * ROWS + lane] = values[n];
    }
    barrier();
    UNROLL for (int n = 0; n < COUNT; ++n) {
        values[n] = 0;
        UNROLL for (int k = 0; k < WARPS; ++k) values[n] += sums[(n * WARPS + k) * ROWS + tile.thread % ROWS];
    }
#endif
}

// A thread's square of a product and its slice of the sum. Neighbouring lanes have up to four squares below each other:
// so a warp needs few different numbers of the matrix and of the tile.
template <class P>
struct Item {
    static constexpr int deep = SMALLER(ROW_FOURS, 4);
    int column, row, slice;
    INLINE explicit Item(int k) {
        const int square = k % P::squares, rest = square / deep;
        slice = k / P::squares;
        column = rest % P::columns;
        row = (square % deep + rest / P::columns * deep) * 4;
    }
    INLINE int factor(int turn) const { return turn * P::slices + slice; }
    // Some slices have a factor more than the others.
    INLINE bool has_last() const { return P::left > 0 && slice < P::left; }
    INLINE Four weights(const Scalar* matrix, int turn) const {
        return CONST_FOUR(matrix + factor(turn) * P::row + column * 4);
    }
};

// The first weights of a product, and the last. They are on their way while the layer before is finished.
template <class P>
struct Ahead {
    Four weights[LARGER(P::ahead, 1)], last;
    INLINE Ahead(const Scalar* matrix, int thread) {
        if (P::ahead == 0 || thread >= P::items) return;
        const Item<P> item(thread);
        UNROLL for (int turn = 0; turn < P::ahead; ++turn) weights[turn] = item.weights(matrix, turn);
        if (item.has_last()) last = item.weights(matrix, P::turns);
    }
};

// sum[c] += a over the rows, times b's number c.
INLINE void add_outer(Four a, Four b, Four* sum) {
    add_scaled(sum[0], b.x, a);
    add_scaled(sum[1], b.y, a);
    add_scaled(sum[2], b.z, a);
    add_scaled(sum[3], b.w, a);
}

// What stands in the tile becomes its product with the matrix, slice by slice, when all threads have read it.
template <class P>
STAGE void multiply(const Tile& tile, const Scalar* matrix, const Ahead<P>& ahead) {
    Four sum[P::held][4];
    UNROLL for (int h = 0; h < P::held; ++h) {
        const int k = tile.thread + h * THREADS;
        if (k >= P::items) break;
        const Item<P> item(k);
        const Scalar* numbers = tile.numbers + item.row;
        UNROLL for (int c = 0; c < 4; ++c) sum[h][c] = uniform(0);
        UNROLL for (int turn = 0; turn < P::ahead; ++turn) {
            add_outer(CONST_FOUR(numbers + item.factor(turn) * ROWS), ahead.weights[turn], sum[h]);
        }
        UNROLL_LOADS for (int turn = P::ahead; turn < P::turns; ++turn) {
            add_outer(CONST_FOUR(numbers + item.factor(turn) * ROWS), item.weights(matrix, turn), sum[h]);
        }
        if (item.has_last()) {
            const Four last = P::ahead > 0 ? ahead.last : item.weights(matrix, P::turns);
            add_outer(CONST_FOUR(numbers + item.factor(P::turns) * ROWS), last, sum[h]);
        }
    }
    barrier();
    UNROLL for (int h = 0; h < P::held; ++h) {
        const int k = tile.thread + h * THREADS;
        if (k >= P::items) break;
        const Item<P> item(k);
        Scalar* results = tile.numbers + item.slice * P::slice + item.row;
        UNROLL for (int c = 0; c < 4; ++c) FOUR(results + (c * P::columns + item.column) * ROWS) = sum[h][c];
    }
    barrier();
}
// A number of it. Who reads it may write there: it is in nobody else's hands.
template <class P>
INLINE Scalar result(const Tile& tile, int feature, int row) {
    const Scalar* first = tile.numbers + feature * ROWS + row;
    Scalar sum = first[0];
    UNROLL for (int slice = 1; slice < P::slices; ++slice) sum += first[slice * P::slice];
    return sum;
}

// Of a hidden layer's sum, and its derivative. A sum that is not a number shows.
INLINE void activate(Scalar x, Scalar& value, Scalar& slope) {
    if (ACTIVATION == ELU) {
        value = elu(x);
        // Of a rounded 0 it is the same on either side.
        slope = x > 0 ? Scalar(1) : value + 1;
    } else if (ACTIVATION == RELU) {
        value = x <= 0 ? Scalar(0) : x;
        slope = x <= 0 ? Scalar(0) : Scalar(1);
    } else {
        const Scalar share = 1 / (1 + wp::exp(-x));
        value = x * share;
        slope = share * (1 + x * (1 - share));
    }
}

// What finishing a layer takes besides its product, of the features of a thread: read before the product where it is
// little, so that nobody waits for it.
template <int LAYER>
struct Constants {
    using L = Layer<LAYER>;
    static constexpr int share = SHARE(L::outputs);
    static constexpr bool early = THREADS > 1 && share <= MOST_AHEAD;
    Scalar bias[share], scale[share], shift[share];
    INLINE void read(const Tile& tile) {
        FOR_SHARE(L::outputs, tile.thread / ROWS_AT_ONCE, j, k) {
            bias[j] = tile.weights[L::bias + k];
            if constexpr (NORMALIZED) scale[j] = tile.weights[L::scale + k], shift[j] = tile.weights[L::shift + k];
        }
    }
};
template <int LAYER>
struct Kept {
    using L = Layer<LAYER>;
    static constexpr int share = SHARE(L::outputs);
    static constexpr bool early = THREADS > 1 && share <= MOST_AHEAD;
    Scalar normal[share], factor[share], scale[share];
    INLINE void read(const Tile& tile, int row) {
        FOR_SHARE(L::outputs, tile.thread / ROWS_AT_ONCE, j, k) {
            factor[j] = tile.kept[(L::factor + k) * ROWS + row];
            if constexpr (NORMALIZED) {
                normal[j] = tile.kept[(L::normal + k) * ROWS + row];
                scale[j] = tile.weights[L::scale + k];
            }
        }
    }
};

// From a product to what goes into the next layer.
template <int LAYER>
STAGE void finish(const Tile& tile, Constants<LAYER>& constants, Scalar epsilon) {
    using L = Layer<LAYER>;
    if constexpr (!Constants<LAYER>::early) constants.read(tile);
    FOR_ROWS(tile, row, part) {
        Scalar own[SHARE(L::outputs)], slope[SHARE(L::outputs)];
        Scalar sum[1] = {0}, squares[1] = {0};
        FOR_SHARE(L::outputs, part, j, k) {
            activate(result<typename L::Forward>(tile, k, row) + constants.bias[j], own[j], slope[j]);
            sum[0] += own[j];
        }
        Scalar mean = 0, inverse = 1;
        if constexpr (NORMALIZED) {
            add_up_row<0>(tile, sum);
            mean = sum[0] / L::outputs;
            FOR_SHARE(L::outputs, part, j, k) squares[0] += (own[j] - mean) * (own[j] - mean);
            add_up_row<1>(tile, squares);
            inverse = 1 / wp::sqrt(squares[0] / L::outputs + epsilon);
        }
        FOR_SHARE(L::outputs, part, j, k) {
            const Scalar normal = (own[j] - mean) * inverse;
            if constexpr (NORMALIZED) {
                tile.numbers[k * ROWS + row] = normal * constants.scale[j] + constants.shift[j];
                if (tile.kept) tile.kept[(L::normal + k) * ROWS + row] = normal;
            } else {
                tile.numbers[k * ROWS + row] = own[j];
            }
            if (tile.kept) tile.kept[(L::factor + k) * ROWS + row] = slope[j] * inverse;
        }
    }
    barrier();
}
// From the derivative by what goes into the next layer to that by the product.
template <int LAYER>
STAGE void finish_adjoint(const Tile& tile, Kept<LAYER>& kept) {
    using L = Layer<LAYER>;
    FOR_ROWS(tile, row, part) {
        if constexpr (!Kept<LAYER>::early) kept.read(tile, row);
        Scalar bar[SHARE(L::outputs)];
        Scalar sums[2] = {0, 0};
        FOR_SHARE(L::outputs, part, j, k) {
            bar[j] = result<typename Layer<LAYER + 1>::Adjoint>(tile, k, row);
            if constexpr (NORMALIZED) {
                bar[j] *= kept.scale[j];
                sums[0] += bar[j];
                sums[1] += bar[j] * kept.normal[j];
            }
        }
        Scalar level = 0, slant = 0;
        if constexpr (NORMALIZED) {
            add_up_row<0>(tile, sums);
            level = sums[0] / L::outputs, slant = sums[1] / L::outputs;
        }
        FOR_SHARE(L::outputs, part, j, k) {
            if constexpr (NORMALIZED) bar[j] -= level + kept.normal[j] * slant;
            tile.numbers[k * ROWS + row] = bar[j] * kept.factor[j];
        }
    }
    barrier();
}

// Rows from where they lie one after the other, and to there, through what stands before and behind a network.
// What a policy sees of an observation, and the derivative by that.
struct Normalized {
    const Scalar *shift, *scale;  // null: as it is
    INLINE Scalar operator()(Scalar number, int feature, int place) const {
        return shift ? (number - shift[feature]) * scale[feature] : number;
    }
};
struct NormalizedAdjoint {
    const Scalar* scale;
    INLINE Scalar operator()(Scalar bar, int feature, int place) const { return scale ? bar * scale[feature] : bar; }
};
// The action of a mean and of noise around it, and the derivative by the mean.
struct Sampled {
    const Scalar *bias, *deviation, *noise;  // no deviation: the mean itself
    INLINE Scalar operator()(Scalar number, int feature, int place) const {
        const Scalar mean = number + bias[feature];
        return deviation ? wp::tanh(mean + deviation[feature] * noise[place]) : mean;
    }
};
struct SampledAdjoint {
    const Scalar* actions;
    INLINE Scalar operator()(Scalar bar, int feature, int place) const {
        return actions ? bar * (1 - actions[place] * actions[place]) : bar;
    }
};
template <int WIDTH, class Change>
INLINE void read_rows(const Tile& tile, const Scalar* rows, Change change) {
    for (int k = tile.thread; k < ROWS * WIDTH; k += THREADS) {
        const int row = k / WIDTH, feature = k % WIDTH;
        tile.numbers[feature * ROWS + row] = row < tile.count ? change(rows[k], feature, k) : Scalar(0);
    }
    barrier();
}
template <class P, class Change>
INLINE void write_rows(const Tile& tile, Scalar* rows, Change change) {
    for (int k = tile.thread; k < tile.count * P::width; k += THREADS) {
        const int row = k / P::width, feature = k % P::width;
        rows[k] = change(result<P>(tile, feature, row), feature, k);
    }
}

template <int LAYER, class P>
STAGE void run_from(const Tile& tile, const Ahead<P>& ahead, Scalar epsilon, Sampled sampled, Scalar* outputs) {
    using L = Layer<LAYER>;
    if constexpr (L::last) {
        multiply<P>(tile, tile.weights + L::forward, ahead);
        sampled.bias = tile.weights + L::bias;
        write_rows<P>(tile, outputs, sampled);
    } else {
        using Next = Layer<LAYER + 1>;
        Constants<LAYER> constants;
        if constexpr (Constants<LAYER>::early) constants.read(tile);
        multiply<P>(tile, tile.weights + L::forward, ahead);
        const Ahead<typename Next::Forward> next(tile.weights + Next::forward, tile.thread);
        finish<LAYER>(tile, constants, epsilon);
        run_from<LAYER + 1>(tile, next, epsilon, sampled, outputs);
    }
}
template <int LAYER, class P>
STAGE void run_back_from(const Tile& tile, const Ahead<P>& ahead, NormalizedAdjoint normalized, Scalar* inputs_bar) {
    using L = Layer<LAYER>;
    if constexpr (LAYER == 0) {
        multiply<P>(tile, tile.weights + L::adjoint, ahead);
        write_rows<P>(tile, inputs_bar, normalized);
    } else {
        using Before = Layer<LAYER - 1>;
        Kept<LAYER - 1> kept;
        if constexpr (Kept<LAYER - 1>::early) kept.read(tile, tile.thread % ROWS);
        multiply<P>(tile, tile.weights + L::adjoint, ahead);
        const Ahead<typename Before::Adjoint> next(tile.weights + Before::adjoint, tile.thread);
        finish_adjoint<LAYER - 1>(tile, kept);
        run_back_from<LAYER - 1>(tile, next, normalized, inputs_bar);
    }
}

// Where launches enter, with a block for each tile of rows. Tiles do not reach from one member into the next.
template <class Call>
INLINE Tile tile_of(const Call& call, Scalar* shared, int thread, long long& first) {
    const int block = thread / THREADS, tiles = WHOLE_PARTS(call.member_rows, ROWS);
    const int member = block / tiles, before = block % tiles * ROWS, left = call.member_rows - before;
    first = (long long)member * call.member_rows + before;
    Scalar* kept = call.kept ? (Scalar*)call.kept + (long long)block * KEPT * ROWS : nullptr;
    return {shared, shared + TILE_NUMBERS - SUMS, call.packed + (long long)member * PACKED, kept, thread % THREADS,
            SMALLER(left, ROWS)};
}
INLINE void run_network(const Run& run, int thread) {
    SHARED_MEMORY(shared, run.scratch);
    long long first;
    const Tile tile = tile_of(run, shared, thread, first);
    const Ahead<Layer<0>::Forward> ahead(tile.weights + Layer<0>::forward, tile.thread);
    const long long member = first / run.member_rows, of_inputs = member * WIDTHS[0], place = first * WIDTHS[LAYERS];
    const Normalized normalized = {run.shift ? run.shift + of_inputs : nullptr,
                                   run.shift ? run.scale + of_inputs : nullptr};
    read_rows<WIDTHS[0]>(tile, run.inputs + first * WIDTHS[0], normalized);
    const Sampled sampled = {nullptr, run.deviation ? run.deviation + member * WIDTHS[LAYERS] : nullptr,
                             run.deviation ? run.noise + place : nullptr};
    run_from<0>(tile, ahead, run.epsilon, sampled, run.outputs + place);
}
INLINE void run_network_adjoint(const Back& back, int thread) {
    SHARED_MEMORY(shared, back.scratch);
    long long first;
    const Tile tile = tile_of(back, shared, thread, first);
    const Ahead<Layer<HIDDEN>::Adjoint> ahead(tile.weights + Layer<HIDDEN>::adjoint, tile.thread);
    const long long member = first / back.member_rows, place = first * WIDTHS[LAYERS];
    const SampledAdjoint sampled = {back.actions ? back.actions + place : nullptr};
    read_rows<WIDTHS[LAYERS]>(tile, back.outputs_bar + place, sampled);
    const NormalizedAdjoint normalized = {back.scale ? back.scale + member * WIDTHS[0] : nullptr};
    run_back_from<HIDDEN>(tile, ahead, normalized, back.inputs_bar + first * WIDTHS[0]);
}

// The copy of the weights, a thread for each number of it. `place` counts from the layer's first.
template <int LAYER>
INLINE Scalar weight_at(const Pack& pack, int member, int place) {
    using L = Layer<LAYER>;
    if constexpr (!L::last) {
        if (place >= L::end) return weight_at<LAYER + 1>(pack, member, place);
    }
    const int parameter = LAYER * (NORMALIZED ? 4 : 2);
    int kind, index, known;
    if (place < L::bias) {
        const bool adjoint = place >= L::adjoint;
        const int row = adjoint ? L::Adjoint::row : L::Forward::row, columns = row / 4;
        const int from = place - (adjoint ? L::adjoint : L::forward), factor = from / row, at = from % row;
        const int column = at % 4 * columns + at / 4;
        kind = 0;
        known = column < (adjoint ? L::inputs : L::outputs);
        index = adjoint ? factor * L::inputs + column : column * L::inputs + factor;
    } else {
        kind = 1 + (place - L::bias) / WHOLE_FOURS(L::outputs);
        index = (place - L::bias) % WHOLE_FOURS(L::outputs);
        known = index < L::outputs;
    }
    const Scalar* weights = (const Scalar*)pack.parameters[parameter + kind];
    return known ? weights[member * pack.strides[parameter + kind] + index] : Scalar(0);
}
INLINE void pack_weights(const Pack& pack, int thread) {
    pack.packed[thread] = weight_at<0>(pack, thread / PACKED, thread % PACKED);
}
