// A tile of rows through a small perceptron and back: Linear, ELU and layer normalisation for each hidden layer, then
// Linear to one number; the gradient of the mean squared error by all parameters.
//
// It stands behind `block.h`. Numbers of a layer lie feature by feature: [feature][row]. The build defines WIDTHS of the
// inputs, the hidden layers and the output, LAYERS (linear ones, two or more) and ROWS of a tile.
#pragma once

#if defined(__CUDA_ARCH__)

// Between the blocks of a group: what one wrote, all may read. The count of arrivals only ever grows, by as many as
// there are blocks, so that a launch can begin where the last one ended; it may overflow, as that number is a power of
// two. It cannot wait for ever: blocks are launched for a quarter of the GPU's multiprocessors at most, each of these has
// room for one, and what else runs there ends by itself. Three more programs that fit critics on it find room beside.
INLINE void group_barrier(int* arrivals, int blocks, int thread) {
    barrier();
    if (blocks == 1) return;
    if (thread == 0) {
        __threadfence();
        const unsigned ticket = atomicAdd((unsigned*)arrivals, 1u);
        const unsigned all_here = (ticket / blocks + 1) * blocks;
        unsigned seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrivals) : "memory");
        } while ((int)(seen - all_here) < 0);
        __threadfence();
    }
    barrier();
}

#else

INLINE void group_barrier(int*, int, int) {}

#endif

constexpr int ARRIVALS_APART = 32;  // so that groups do not wait for each other's cache line

// Where the parameters and the results of a linear layer lie. Each begins at whole fours, and so does each row of a
// weight, with zeros behind it.
template <int LAYER>
struct Layer {
    using Before = Layer<LAYER - 1>;
    static constexpr int inputs = WIDTHS[LAYER], outputs = WIDTHS[LAYER + 1];
    static constexpr bool last = LAYER == LAYERS - 1;
    static constexpr int row = WHOLE_FOURS(inputs), column = WHOLE_FOURS(outputs);
    // Among the parameters: [output][input], and what is added, scales and shifts the outputs.
    static constexpr int weight = Before::end, bias = weight + outputs * row, scale = bias + column;
    static constexpr int shift = scale + column, end = last ? scale : shift + column;
    // Among the transposed weights: [input][output].
    static constexpr int across = Before::end_across, end_across = across + inputs * column;
    // In the tile. Features of the last hidden layer lie where its derivatives, and then all others', are to be.
    static constexpr int result = Before::end_result;
    static constexpr int end_result = LAYER < LAYERS - 2 ? result + outputs : result;
    static constexpr int widest = Before::widest > outputs ? Before::widest : outputs;
};
template <>
struct Layer<-1> {
    static constexpr int end = 0, end_across = 0, result = 0, end_result = WIDTHS[0], widest = 1;
};
constexpr int HIDDEN = LAYERS - 1;
constexpr int PARAMETERS = Layer<LAYERS - 1>::end, ACROSS = Layer<HIDDEN - 1>::end_across;

// The tile: features, and behind each feature's rows four places that belong to none. They keep neighbouring features
// in different banks of shared memory, and hold what is noted of the rows: mean and inverse deviation of each hidden
// layer, and the error.
constexpr int STRIDE = ROWS + 4;
constexpr int BAR = Layer<HIDDEN - 1>::result;
constexpr int NOTES = 2 * HIDDEN + 1, ERROR = NOTES - 1;
constexpr int FEATURES = BAR + Layer<HIDDEN - 1>::widest;
constexpr int TILE_FEATURES = FEATURES > NOTES * ROWS / 4 ? FEATURES : NOTES * ROWS / 4;
constexpr int TILE_NUMBERS = TILE_FEATURES * STRIDE;

// Threads that share what is summed over a row's features, and over a feature's rows.
constexpr int ROW_PARTS = THREADS > ROWS ? THREADS / ROWS : 1;
constexpr int FEATURE_PARTS = THREADS > 1 ? 4 : 1;
static_assert(ROWS % 4 == 0 && ROW_PARTS <= 32, "a warp takes whole rows");

struct Tile {
    Scalar* numbers;
    const Scalar *weights, *across;
    Scalar* gradient;
    int thread;
    bool add;  // to the gradient, or overwrite it

    INLINE Scalar* feature(int k) const { return numbers + k * STRIDE; }
    INLINE Scalar* note(int kind, int row) const {
        const int place = kind * ROWS + row;
        return numbers + place / 4 * STRIDE + ROWS + place % 4;
    }
    INLINE void put(int parameter, Scalar value) const {
        gradient[parameter] = add ? gradient[parameter] + value : value;
    }
};

// What goes into a layer, feature by feature: the inputs, or the normal numbers of the layer before, which are scaled and
// shifted only as they are taken.
template <int LAYER>
INLINE Four taken(const Tile& tile, int feature, int row, Scalar scale, Scalar shift) {
    const Four four = CONST_FOUR(tile.feature(Layer<LAYER - 1>::result + feature) + row);
    return LAYER == 0 ? four : scaled(four, scale, shift);
}
template <int LAYER>
INLINE Scalar scale_of(const Tile& tile, int input) {
    if constexpr (LAYER == 0) return 1;
    else return tile.weights[Layer<LAYER - 1>::scale + input];
}
template <int LAYER>
INLINE Scalar shift_of(const Tile& tile, int input) {
    if constexpr (LAYER == 0) return 0;
    else return tile.weights[Layer<LAYER - 1>::shift + input];
}
template <int LAYER>
INLINE Four scales_of(const Tile& tile, int input) {
    if constexpr (LAYER == 0) return uniform(1);
    else return CONST_FOUR(tile.weights + Layer<LAYER - 1>::scale + input);
}
template <int LAYER>
INLINE Four shifts_of(const Tile& tile, int input) {
    if constexpr (LAYER == 0) return uniform(0);
    else return CONST_FOUR(tile.weights + Layer<LAYER - 1>::shift + input);
}

// Rows and columns of a product are cut into fours, and a thread takes four by four. The lanes of a warp lie eight rows
// of such squares deep, so that they read few different numbers.
constexpr int ROW_FOURS = ROWS / 4, DEEP = ROW_FOURS < 8 ? ROW_FOURS : 8;
struct Square {
    int row, column;
    INLINE Square(int k, int column_fours) {
        const int rest = k / DEEP;
        column = rest % column_fours * 4;
        row = (k % DEEP + rest / column_fours * DEEP) * 4;
    }
};
// sum[c] += a over the rows, times b's number c.
INLINE void add_outer(Four a, Four b, Four* sum) {
    add_scaled(sum[0], b.x, a);
    add_scaled(sum[1], b.y, a);
    add_scaled(sum[2], b.z, a);
    add_scaled(sum[3], b.w, a);
}

// Results of a hidden layer before it is normalised.
template <int LAYER>
STAGE void activate(const Tile& tile) {
    using L = Layer<LAYER>;
    for (int k = tile.thread; k < ROW_FOURS * (L::column / 4); k += THREADS) {
        const Square at(k, L::column / 4);
        const Four bias = CONST_FOUR(tile.weights + L::bias + at.column);
        const Scalar* weights = tile.across + L::across + at.column;
        Four sum[4] = {uniform(bias.x), uniform(bias.y), uniform(bias.z), uniform(bias.w)};
        constexpr int fours = L::inputs / 4 * 4;
        UNROLL_SOME for (int input = 0; input < fours; input += 4) {
            const Four scale = scales_of<LAYER>(tile, input), shift = shifts_of<LAYER>(tile, input);
            const Scalar* weight = weights + input * L::column;
            add_outer(taken<LAYER>(tile, input, at.row, scale.x, shift.x), CONST_FOUR(weight), sum);
            add_outer(taken<LAYER>(tile, input + 1, at.row, scale.y, shift.y), CONST_FOUR(weight + L::column), sum);
            add_outer(taken<LAYER>(tile, input + 2, at.row, scale.z, shift.z), CONST_FOUR(weight + 2 * L::column), sum);
            add_outer(taken<LAYER>(tile, input + 3, at.row, scale.w, shift.w), CONST_FOUR(weight + 3 * L::column), sum);
        }
        UNROLL for (int input = fours; input < L::inputs; ++input) {
            const Four a = taken<LAYER>(tile, input, at.row, scale_of<LAYER>(tile, input), shift_of<LAYER>(tile, input));
            add_outer(a, CONST_FOUR(weights + input * L::column), sum);
        }
        UNROLL for (int c = 0; c < 4; ++c) {
            if (at.column + c >= L::outputs) break;
            FOUR(tile.feature(L::result + at.column + c) + at.row) = {elu(sum[c].x), elu(sum[c].y), elu(sum[c].z),
                                                                      elu(sum[c].w)};
        }
    }
}

// The threads of a row, and the features that each of them takes.
#define FOR_ROW_PARTS(tile, row, part)                                                                       \
    for (int item = tile.thread, row = item / ROW_PARTS, part = item % ROW_PARTS; item < ROWS * ROW_PARTS;   \
         item += THREADS, row = item / ROW_PARTS, part = item % ROW_PARTS)
#define FOR_SHARE(WIDTH, part, j, k) \
    UNROLL for (int j = 0, k = part; j < (WIDTH + ROW_PARTS - 1) / ROW_PARTS; ++j, k += ROW_PARTS) if (k < WIDTH)

// Each row's numbers to mean 0 and variance 1.
template <int LAYER>
STAGE void normalize(const Tile& tile, Scalar epsilon) {
    constexpr int width = Layer<LAYER>::outputs;
    FOR_ROW_PARTS(tile, row, part) {
        Scalar own[(width + ROW_PARTS - 1) / ROW_PARTS];
        Scalar sum = 0, squares = 0;
        FOR_SHARE(width, part, j, k) sum += own[j] = tile.feature(Layer<LAYER>::result + k)[row];
        const Scalar mean = sum_of_lanes<ROW_PARTS>(sum) / width;
        FOR_SHARE(width, part, j, k) squares += (own[j] - mean) * (own[j] - mean);
        const Scalar inverse = 1 / wp::sqrt(sum_of_lanes<ROW_PARTS>(squares) / width + epsilon);
        FOR_SHARE(width, part, j, k) tile.feature(Layer<LAYER>::result + k)[row] = (own[j] - mean) * inverse;
        if (part == 0) {
            *tile.note(2 * LAYER, row) = mean;
            *tile.note(2 * LAYER + 1, row) = inverse;
        }
    }
}

// From the last hidden layer's normal numbers, by the threads that wrote them: the loss's derivative by the value.
STAGE void judge(const Tile& tile, const Scalar* targets, int count, int rows) {
    using L = Layer<HIDDEN>;
    FOR_ROW_PARTS(tile, row, part) {
        Scalar value = 0;
        FOR_SHARE(L::inputs, part, j, k) {
            const Scalar normal = tile.feature(BAR + k)[row];
            value += tile.weights[L::weight + k] * (normal * scale_of<HIDDEN>(tile, k) + shift_of<HIDDEN>(tile, k));
        }
        value = sum_of_lanes<ROW_PARTS>(value) + tile.weights[L::bias];
        // Rows behind the last one have no error.
        if (part == 0) *tile.note(ERROR, row) = row < count ? (value - targets[row]) * (Scalar(2) / rows) : Scalar(0);
    }
}

// The threads of a feature; a warp's lanes stay together, those behind the last feature take that one.
#define FOR_FEATURE_PARTS(tile, WIDTH, k, part)                                                                    \
    for (int item = tile.thread; item < (WIDTH * FEATURE_PARTS + WARP - 1) / WARP * WARP; item += THREADS)         \
        for (int k = item / FEATURE_PARTS, part = item % FEATURE_PARTS, once = 1; once; once = 0)

// By the last layer's parameters and by the scale and shift before it, which all see the rows through their errors only.
STAGE void by_value(const Tile& tile, int rows) {
    using L = Layer<HIDDEN>;
    using Before = Layer<HIDDEN - 1>;
    FOR_FEATURE_PARTS(tile, L::inputs, item_feature, part) {
        const int k = item_feature < L::inputs ? item_feature : L::inputs - 1;
        Scalar of_normal = 0, of_error = 0, squares = 0;
        for (int row = part * 4; row < ROWS; row += FEATURE_PARTS * 4) {
            const Four error = CONST_FOUR(tile.note(ERROR, row));
            of_normal = dot(error, CONST_FOUR(tile.feature(BAR + k) + row), of_normal);
            of_error = dot(error, uniform(1), of_error);
            squares = dot(error, error, squares);
        }
        of_normal = sum_of_lanes<FEATURE_PARTS>(of_normal);
        of_error = sum_of_lanes<FEATURE_PARTS>(of_error);
        squares = sum_of_lanes<FEATURE_PARTS>(squares);
        if (part != 0 || item_feature >= L::inputs) continue;
        const Scalar weight = tile.weights[L::weight + k];
        tile.put(L::weight + k, of_normal * scale_of<HIDDEN>(tile, k) + of_error * shift_of<HIDDEN>(tile, k));
        tile.put(Before::scale + k, weight * of_normal);
        tile.put(Before::shift + k, weight * of_error);
        if (k == 0) {
            tile.put(L::bias, of_error);
            // The error carries the factor 2 / rows.
            tile.put(PARAMETERS, squares * (Scalar(rows) * rows / 4));
        }
    }
}

// By scale and shift of a hidden layer whose result's derivative stands in the tile.
template <int LAYER>
STAGE void by_scale(const Tile& tile) {
    using L = Layer<LAYER>;
    FOR_FEATURE_PARTS(tile, L::outputs, item_feature, part) {
        const int k = item_feature < L::outputs ? item_feature : L::outputs - 1;
        Scalar of_normal = 0, of_bar = 0;
        for (int row = part * 4; row < ROWS; row += FEATURE_PARTS * 4) {
            const Four bar = CONST_FOUR(tile.feature(BAR + k) + row);
            of_normal = dot(bar, CONST_FOUR(tile.feature(L::result + k) + row), of_normal);
            of_bar = dot(bar, uniform(1), of_bar);
        }
        of_normal = sum_of_lanes<FEATURE_PARTS>(of_normal);
        of_bar = sum_of_lanes<FEATURE_PARTS>(of_bar);
        if (part != 0 || item_feature >= L::outputs) continue;
        tile.put(L::scale + k, of_normal);
        tile.put(L::shift + k, of_bar);
    }
}

// From the derivative by a hidden layer's result, scaled and shifted, that by what its activation took.
template <int LAYER>
STAGE void activate_adjoint(const Tile& tile) {
    using L = Layer<LAYER>;
    constexpr int width = L::outputs, share = (width + ROW_PARTS - 1) / ROW_PARTS;
    FOR_ROW_PARTS(tile, row, part) {
        Scalar normal[share], bar[share];
        Scalar level = 0, slant = 0;
        FOR_SHARE(width, part, j, k) {
            normal[j] = tile.feature(L::result + k)[row];
            if constexpr (LAYER == HIDDEN - 1) bar[j] = tile.weights[Layer<HIDDEN>::weight + k] * *tile.note(ERROR, row);
            else bar[j] = tile.feature(BAR + k)[row];
            bar[j] *= tile.weights[L::scale + k];
            level += bar[j];
            slant += bar[j] * normal[j];
        }
        level = sum_of_lanes<ROW_PARTS>(level) / width;
        slant = sum_of_lanes<ROW_PARTS>(slant) / width;
        const Scalar mean = *tile.note(2 * LAYER, row), inverse = *tile.note(2 * LAYER + 1, row);
        const Scalar deviation = 1 / inverse;
        FOR_SHARE(width, part, j, k) {
            // ELU's slope is 1, or where it is negative its result + 1: a rounded 0 has the same on either side.
            const Scalar result = normal[j] * deviation + mean, slope = result > 0 ? Scalar(1) : result + 1;
            tile.feature(BAR + k)[row] = (bar[j] - level - normal[j] * slant) * inverse * slope;
        }
    }
}

template <int LAYER>
STAGE void by_bias(const Tile& tile) {
    using L = Layer<LAYER>;
    FOR_FEATURE_PARTS(tile, L::outputs, item_feature, part) {
        const int k = item_feature < L::outputs ? item_feature : L::outputs - 1;
        Scalar sum = 0;
        for (int row = part * 4; row < ROWS; row += FEATURE_PARTS * 4) {
            sum = dot(CONST_FOUR(tile.feature(BAR + k) + row), uniform(1), sum);
        }
        sum = sum_of_lanes<FEATURE_PARTS>(sum);
        if (part == 0 && item_feature < L::outputs) tile.put(L::bias + k, sum);
    }
}

// A thread takes four outputs by four inputs. Those of neighbouring lanes are neighbours, in different banks; a warp has
// 32 outputs by 16 inputs together.
template <int LAYER>
STAGE void by_weight(const Tile& tile) {
    using L = Layer<LAYER>;
    constexpr int wide = (L::inputs + 15) / 16, high = (L::outputs + 31) / 32;
    for (int item = tile.thread; item < wide * high * 32; item += THREADS) {
        const int first_output = item / 32 / wide * 32 + item % 8, first_input = item / 32 % wide * 16 + item / 8 % 4;
        const Scalar *bars[4], *inputs[4];
        Scalar scale[4], shift[4];
        UNROLL for (int j = 0; j < 4; ++j) {
            const int output = first_output + 8 * j, input = first_input + 4 * j;
            // What lies behind the last ones is computed, from these, and not kept.
            const int known = input < L::inputs ? input : L::inputs - 1;
            bars[j] = tile.feature(BAR + (output < L::outputs ? output : L::outputs - 1));
            inputs[j] = tile.feature(Layer<LAYER - 1>::result + known);
            scale[j] = scale_of<LAYER>(tile, known);
            shift[j] = shift_of<LAYER>(tile, known);
        }
        Scalar sum[4][4] = {};
        UNROLL_SOME for (int row = 0; row < ROWS; row += 4) {
            Four bar[4];
            UNROLL for (int j = 0; j < 4; ++j) bar[j] = CONST_FOUR(bars[j] + row);
            UNROLL for (int i = 0; i < 4; ++i) {
                Four input = CONST_FOUR(inputs[i] + row);
                if (LAYER > 0) input = scaled(input, scale[i], shift[i]);
                UNROLL for (int j = 0; j < 4; ++j) sum[j][i] = dot(bar[j], input, sum[j][i]);
            }
        }
        UNROLL for (int j = 0; j < 4; ++j) {
            UNROLL for (int i = 0; i < 4; ++i) {
                const int output = first_output + 8 * j, input = first_input + 4 * i;
                if (output < L::outputs && input < L::inputs) tile.put(L::weight + output * L::row + input, sum[j][i]);
            }
        }
    }
}

// The derivative by what went into a layer takes the place of that by what came out, when all threads have read this.
template <int LAYER>
STAGE void by_input(const Tile& tile) {
    using L = Layer<LAYER>;
    constexpr int squares = ROW_FOURS * (L::row / 4), held = (squares + THREADS - 1) / THREADS;
    Four sum[held][4];
    UNROLL for (int h = 0; h < held; ++h) {
        const int k = tile.thread + h * THREADS;
        if (k >= squares) break;
        const Square at(k, L::row / 4);
        const Scalar* weights = tile.weights + L::weight + at.column;
        UNROLL for (int c = 0; c < 4; ++c) sum[h][c] = uniform(0);
        UNROLL_SOME for (int output = 0; output < L::outputs; ++output) {
            add_outer(CONST_FOUR(tile.feature(BAR + output) + at.row), CONST_FOUR(weights + output * L::row), sum[h]);
        }
    }
    barrier();
    UNROLL for (int h = 0; h < held; ++h) {
        const int k = tile.thread + h * THREADS;
        if (k >= squares) break;
        const Square at(k, L::row / 4);
        UNROLL for (int c = 0; c < 4; ++c) {
            if (at.column + c < L::inputs) FOUR(tile.feature(BAR + at.column + c) + at.row) = sum[h][c];
        }
    }
    barrier();
}

template <int LAYER>
INLINE void forward(const Tile& tile, Scalar epsilon) {
    activate<LAYER>(tile);
    barrier();
    normalize<LAYER>(tile, epsilon);
    if constexpr (LAYER < HIDDEN - 1) {
        barrier();
        forward<LAYER + 1>(tile, epsilon);
    }
}
template <int LAYER>
INLINE void forward_adjoint(const Tile& tile) {
    barrier();
    activate_adjoint<LAYER>(tile);
    barrier();
    by_bias<LAYER>(tile);
    by_weight<LAYER>(tile);
    if constexpr (LAYER > 0) {
        by_input<LAYER>(tile);
        by_scale<LAYER - 1>(tile);
        forward_adjoint<LAYER - 1>(tile);
    }
}

// The gradient of some of a batch's rows, over the number of all of them.
INLINE void add_rows(const Tile& tile, const Scalar* inputs, const Scalar* targets, int count, int rows,
                     Scalar epsilon) {
    // The tile before may still be read.
    barrier();
    for (int k = tile.thread; k < ROWS * WIDTHS[0]; k += THREADS) {
        const int row = k / WIDTHS[0], feature = k % WIDTHS[0];
        tile.feature(feature)[row] = row < count ? inputs[k] : Scalar(0);
    }
    barrier();
    forward<0>(tile, epsilon);
    judge(tile, targets, count, rows);
    barrier();
    by_value(tile, rows);
    forward_adjoint<HIDDEN - 1>(tile);
}
