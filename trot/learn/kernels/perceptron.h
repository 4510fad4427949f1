// Small perceptrons on the CPU: Linear, ELU and layer normalisation for each hidden layer, then Linear; and the adjoint.
//
// A block of rows goes through all layers and back before the next one, so that it never leaves the cache. Numbers of
// a layer lie feature by feature, and 16 rows to a vector: what is done to one row is done to 16 at once, and sums over
// features need no sum across a vector. The build defines Scalar as float or double, and VECTORS of 16 rows to a block.
#pragma once

#define INLINE inline __attribute__((always_inline))

constexpr int LANES = 16, BLOCK_ROWS = LANES * VECTORS;
typedef Scalar Rows __attribute__((ext_vector_type(16), aligned(64)));
typedef Scalar AnyRows __attribute__((ext_vector_type(16), aligned(sizeof(Scalar))));
typedef decltype(Rows() < Rows()) Bits;  // whole numbers of the same size

// Outputs and vectors whose sums a product keeps in registers.
#if defined(__AVX512F__)
constexpr int TILE = 8, TILE_VECTORS = 2;
#else
constexpr int TILE = 6, TILE_VECTORS = 1;
#endif

constexpr int MOST_PARAMETERS = 64;

INLINE int padded(int width) { return (width + LANES - 1) / LANES * LANES; }
INLINE Rows multiply_add(Rows a, Rows b, Rows c) { return __builtin_elementwise_fma(a, b, c); }
INLINE Scalar sum_of_lanes(Rows a) {
    const auto eight = a.lo + a.hi;
    const auto four = eight.lo + eight.hi;
    const auto two = four.lo + four.hi;
    return two.x + two.y;
}

// As many of 16 numbers as are left, at any address; zeros stand for the others.
INLINE Rows load_some(const Scalar* from, int left) {
    if (left >= LANES) return *(const AnyRows*)from;
    Scalar taken[LANES] = {};
    for (int k = 0; k < left; ++k) taken[k] = from[k];
    return *(const AnyRows*)taken;
}
INLINE void store_some(Rows numbers, int left, Scalar* to) {
    if (left >= LANES) {
        *(AnyRows*)to = numbers;
        return;
    }
    Scalar kept[LANES];
    *(AnyRows*)kept = numbers;
    for (int k = 0; k < left; ++k) to[k] = kept[k];
}

// e^x to some units in the last place: 2^n times Taylor's series of the rest. A NaN stays one.
INLINE Rows exponential(Rows x) {
    constexpr bool single = sizeof(Scalar) == 4;
    constexpr Scalar lowest = single ? -87 : -708, highest = single ? 88 : 709;
    const Rows given = x;
    x = x < Rows(lowest) ? Rows(lowest) : (x > Rows(highest) ? Rows(highest) : x);
    // Adding 1.5 * 2^23 (or 52) rounds to a whole number, which then stands in the last bits.
    constexpr Scalar shift = single ? 12582912.0 : 6755399441055744.0;
    const Rows shifted = x * Scalar(1.4426950408889634) + shift;
    const Rows n = shifted - shift;
    // log 2 in two parts, so that the subtraction loses little.
    Rows r = multiply_add(n, Rows(Scalar(single ? -0.693359375 : -0.6931471803691238)), x);
    r = multiply_add(n, Rows(Scalar(single ? 2.1219444005469058e-4 : -1.9082149292705877e-10)), r);
    constexpr double inverse_factorial[] = {
        1.0, 1.0, 0.5, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800,
        1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
    constexpr int terms = single ? 7 : 13;
    Rows sum = Rows(Scalar(inverse_factorial[terms]));
    _Pragma("unroll") for (int k = terms - 1; k >= 0; --k) {
        sum = multiply_add(sum, r, Rows(Scalar(inverse_factorial[k])));
    }
    const Bits exponent = __builtin_bit_cast(Bits, shifted) << (single ? 23 : 52);
    const Rows power = __builtin_bit_cast(Rows, __builtin_bit_cast(Bits, sum) + exponent);
    return given == given ? power : given;
}

// y[o] = start[o] + sum over i of w[o * to_output + i * to_input] x[i], for some outputs and vectors of rows.
template <int OUTPUTS, int COLUMNS>
INLINE void product_tile(const Scalar* w, long long to_output, long long to_input, const Rows* x, int inputs,
                         const Scalar* start, Rows* y) {
    Rows sum[OUTPUTS][COLUMNS];
    _Pragma("unroll") for (int o = 0; o < OUTPUTS; ++o) {
        _Pragma("unroll") for (int c = 0; c < COLUMNS; ++c) sum[o][c] = Rows(start ? start[o] : Scalar(0));
    }
    for (int i = 0; i < inputs; ++i) {
        Rows taken[COLUMNS];
        _Pragma("unroll") for (int c = 0; c < COLUMNS; ++c) taken[c] = x[i * VECTORS + c];
        _Pragma("unroll") for (int o = 0; o < OUTPUTS; ++o) {
            const Rows weight = Rows(w[o * to_output + i * to_input]);
            _Pragma("unroll") for (int c = 0; c < COLUMNS; ++c) sum[o][c] = multiply_add(weight, taken[c], sum[o][c]);
        }
    }
    _Pragma("unroll") for (int o = 0; o < OUTPUTS; ++o) {
        _Pragma("unroll") for (int c = 0; c < COLUMNS; ++c) y[o * VECTORS + c] = sum[o][c];
    }
}
inline __attribute__((noinline)) void product(const Scalar* w, long long to_output, long long to_input, const Rows* x,
                                              int inputs, int outputs, const Scalar* start, Rows* y) {
    int o = 0;
    for (; o + TILE <= outputs; o += TILE) {
        for (int c = 0; c < VECTORS; c += TILE_VECTORS) {
            product_tile<TILE, TILE_VECTORS>(w + o * to_output, to_output, to_input, x + c, inputs,
                                             start ? start + o : nullptr, y + o * VECTORS + c);
        }
    }
    for (; o < outputs; ++o) {
        product_tile<1, VECTORS>(w + o * to_output, to_output, to_input, x, inputs, start ? start + o : nullptr,
                                 y + o * VECTORS);
    }
}

// by_weight[o][i] += sum over the block's rows of bar[o] x[i], where `across` holds x row by row, zeros behind its width.
template <int OUTPUTS, int COLUMNS>
INLINE void by_weight_tile(const Scalar* bar, const Scalar* across, int stride, int inputs, int first,
                           Scalar* by_weight) {
    Rows sum[OUTPUTS][COLUMNS];
    _Pragma("unroll") for (int o = 0; o < OUTPUTS; ++o) {
        _Pragma("unroll") for (int c = 0; c < COLUMNS; ++c) sum[o][c] = Rows(Scalar(0));
    }
    for (int row = 0; row < BLOCK_ROWS; ++row) {
        Rows taken[COLUMNS];
        _Pragma("unroll") for (int c = 0; c < COLUMNS; ++c) {
            taken[c] = *(const Rows*)(across + row * stride + first + c * LANES);
        }
        _Pragma("unroll") for (int o = 0; o < OUTPUTS; ++o) {
            const Rows factor = Rows(bar[o * BLOCK_ROWS + row]);
            _Pragma("unroll") for (int c = 0; c < COLUMNS; ++c) sum[o][c] = multiply_add(factor, taken[c], sum[o][c]);
        }
    }
    _Pragma("unroll") for (int o = 0; o < OUTPUTS; ++o) {
        _Pragma("unroll") for (int c = 0; c < COLUMNS; ++c) {
            Scalar* place = by_weight + (long long)o * inputs + first + c * LANES;
            const int left = inputs - first - c * LANES;
            store_some(load_some(place, left) + sum[o][c], left, place);
        }
    }
}
inline __attribute__((noinline)) void add_by_weight(const Rows* bar, const Scalar* across, int inputs, int outputs,
                                                    Scalar* by_weight) {
    const int stride = padded(inputs);
    int o = 0;
    for (; o + TILE <= outputs; o += TILE) {
        const Scalar* rows = (const Scalar*)(bar + o * VECTORS);
        int first = 0;
        for (; first + TILE_VECTORS * LANES <= stride; first += TILE_VECTORS * LANES) {
            by_weight_tile<TILE, TILE_VECTORS>(rows, across, stride, inputs, first, by_weight + (long long)o * inputs);
        }
        for (; first < stride; first += LANES) {
            by_weight_tile<TILE, 1>(rows, across, stride, inputs, first, by_weight + (long long)o * inputs);
        }
    }
    for (; o < outputs; ++o) {
        const Scalar* rows = (const Scalar*)(bar + o * VECTORS);
        for (int first = 0; first < stride; first += LANES) {
            by_weight_tile<1, 1>(rows, across, stride, inputs, first, by_weight + (long long)o * inputs);
        }
    }
}

// 16 vectors become what stands in the same lane of each of them.
template <int DISTANCE>
INLINE void exchange(Rows* tile) {
#define FROM(k) ((k & DISTANCE) ? LANES + k - DISTANCE : k)
#define TO(k) ((k & DISTANCE) ? LANES + k : k + DISTANCE)
    _Pragma("unroll") for (int k = 0; k < LANES; ++k) {
        if (k & DISTANCE) continue;
        const Rows a = tile[k], b = tile[k + DISTANCE];
        tile[k] = __builtin_shufflevector(a, b, FROM(0), FROM(1), FROM(2), FROM(3), FROM(4), FROM(5), FROM(6), FROM(7),
                                          FROM(8), FROM(9), FROM(10), FROM(11), FROM(12), FROM(13), FROM(14), FROM(15));
        tile[k + DISTANCE] = __builtin_shufflevector(a, b, TO(0), TO(1), TO(2), TO(3), TO(4), TO(5), TO(6), TO(7), TO(8),
                                                     TO(9), TO(10), TO(11), TO(12), TO(13), TO(14), TO(15));
    }
#undef FROM
#undef TO
}
INLINE void transpose(Rows* tile) {
    exchange<1>(tile);
    exchange<2>(tile);
    exchange<4>(tile);
    exchange<8>(tile);
}

// From row by row, `width` numbers and zeros up to a whole vector, to feature by feature, and back.
inline __attribute__((noinline)) void by_feature(const Scalar* across, int width, Rows* x) {
    const int stride = padded(width);
    for (int c = 0; c < VECTORS; ++c) {
        for (int first = 0; first < width; first += LANES) {
            Rows tile[LANES];
            _Pragma("unroll") for (int k = 0; k < LANES; ++k) {
                tile[k] = *(const Rows*)(across + (c * LANES + k) * stride + first);
            }
            transpose(tile);
            for (int k = 0; k < LANES && first + k < width; ++k) x[(first + k) * VECTORS + c] = tile[k];
        }
    }
}
inline __attribute__((noinline)) void by_row(const Rows* x, int width, Scalar* across) {
    const int stride = padded(width);
    for (int c = 0; c < VECTORS; ++c) {
        for (int first = 0; first < width; first += LANES) {
            Rows tile[LANES];
            for (int k = 0; k < LANES; ++k) tile[k] = first + k < width ? x[(first + k) * VECTORS + c] : Rows(Scalar(0));
            transpose(tile);
            _Pragma("unroll") for (int k = 0; k < LANES; ++k) {
                *(Rows*)(across + (c * LANES + k) * stride + first) = tile[k];
            }
        }
    }
}

// A network: widths of its inputs, hidden layers and outputs, and where its parameters lie, in the order of PyTorch's:
// weight and bias of each layer, and of its normalisation behind them.
struct Network {
    int layers;  // linear ones
    const int* widths;
    Scalar epsilon;  // of the normalisation
    const Scalar* const* parameters;

    INLINE int first_parameter(int layer) const { return 4 * layer; }
    INLINE int num_parameters() const { return 4 * (layers - 1) + 2; }
    INLINE int widest() const {
        int width = 0;
        for (int k = 0; k <= layers; ++k) width = widths[k] > width ? widths[k] : width;
        return width;
    }
    // Numbers in a parameter.
    INLINE int size(int parameter) const {
        const int layer = parameter / 4, inputs = widths[layer], outputs = widths[layer + 1];
        return parameter % 4 == 0 ? inputs * outputs : outputs;
    }
};

// Where a block of rows is worked on.
struct Workspace {
    Scalar* across;  // what goes into a layer, row by row
    Rows* inputs;
    Rows* bar;  // the loss's derivative by what a layer gives, and by what it takes
    Rows* other_bar;
    Rows* hidden;  // of each layer: its result, its normal numbers, the activation's slope, and 1 / deviation

    INLINE Workspace(const Network& net, Scalar* scratch) {
        const int widest = padded(net.widest());
        across = scratch;
        inputs = (Rows*)(across + widest * BLOCK_ROWS);
        bar = inputs + widest * VECTORS;
        other_bar = bar + widest * VECTORS;
        hidden = other_bar + widest * VECTORS;
    }
    INLINE Rows* layer(const Network& net, int layer) {
        Rows* place = hidden;
        for (int k = 1; k <= layer; ++k) place += (3 * net.widths[k] + 1) * VECTORS;
        return place;
    }
};

// Numbers of `count` rows, as PyTorch keeps them, into a block; those behind them are zeros.
INLINE void load_rows(const Scalar* rows, int count, int width, Scalar* across) {
    const int stride = padded(width);
    for (int row = 0; row < BLOCK_ROWS; ++row) {
        for (int k = 0; k < stride; k += LANES) {
            *(Rows*)(across + row * stride + k) = load_some(rows + row * width + k, row < count ? width - k : 0);
        }
    }
}

// ELU: x, or e^x - 1 where x is negative; and its slope.
INLINE void activate(Rows* result, Rows* slope, int numbers) {
    const Rows one = Rows(Scalar(1)), zero = Rows(Scalar(0));
    for (int k = 0; k < numbers; ++k) {
        const Rows x = result[k], power = exponential(x > zero ? zero : x);
        slope[k] = x > zero ? one : power;
        result[k] = x > zero ? x : power - one;
    }
}

#define FOR_VECTORS(c) _Pragma("unroll") for (int c = 0; c < VECTORS; ++c)

// Layer normalisation of each row's numbers: to mean 0 and variance 1, then scaled and shifted.
inline __attribute__((noinline)) void normalize(const Scalar* scale, const Scalar* shift, int width, Scalar epsilon,
                                                Rows* result, Rows* normal, Rows* by_deviation) {
    Rows mean[VECTORS], inverse[VECTORS];
    FOR_VECTORS(c) mean[c] = inverse[c] = Rows(Scalar(0));
    for (int k = 0; k < width; ++k) FOR_VECTORS(c) mean[c] += result[k * VECTORS + c];
    FOR_VECTORS(c) mean[c] /= Scalar(width);
    for (int k = 0; k < width; ++k) {
        FOR_VECTORS(c) {
            const Rows apart = result[k * VECTORS + c] - mean[c];
            inverse[c] = multiply_add(apart, apart, inverse[c]);
        }
    }
    FOR_VECTORS(c) {
        inverse[c] = Scalar(1) / __builtin_elementwise_sqrt(inverse[c] / Scalar(width) + epsilon);
        by_deviation[c] = inverse[c];
    }
    for (int k = 0; k < width; ++k) {
        FOR_VECTORS(c) {
            const Rows number = (result[k * VECTORS + c] - mean[c]) * inverse[c];
            normal[k * VECTORS + c] = number;
            result[k * VECTORS + c] = multiply_add(number, Rows(scale[k]), Rows(shift[k]));
        }
    }
}
// bar, by the result, becomes that by what was normalised. Those by scale and shift are added to, unless they are null.
inline __attribute__((noinline)) void normalize_adjoint(const Scalar* scale, int width, const Rows* normal,
                                                        const Rows* by_deviation, Rows* bar, Scalar* scale_bar,
                                                        Scalar* shift_bar) {
    Rows mean[VECTORS], slant[VECTORS];
    FOR_VECTORS(c) mean[c] = slant[c] = Rows(Scalar(0));
    for (int k = 0; k < width; ++k) {
        Rows of_scale = Rows(Scalar(0)), of_shift = Rows(Scalar(0));
        FOR_VECTORS(c) {
            const Rows given = bar[k * VECTORS + c], number = normal[k * VECTORS + c], scaled = given * scale[k];
            of_scale = multiply_add(given, number, of_scale);
            of_shift += given;
            mean[c] += scaled;
            slant[c] = multiply_add(scaled, number, slant[c]);
            bar[k * VECTORS + c] = scaled;
        }
        if (!scale_bar) continue;
        scale_bar[k] += sum_of_lanes(of_scale);
        shift_bar[k] += sum_of_lanes(of_shift);
    }
    FOR_VECTORS(c) {
        mean[c] /= Scalar(width);
        slant[c] /= Scalar(width);
    }
    for (int k = 0; k < width; ++k) {
        FOR_VECTORS(c) {
            const Rows level = bar[k * VECTORS + c] - mean[c];
            bar[k * VECTORS + c] = (level - normal[k * VECTORS + c] * slant[c]) * by_deviation[c];
        }
    }
}

// The block in `inputs` through the network: its outputs, feature by feature.
inline __attribute__((noinline)) void forward(const Network& net, Workspace& work, Rows* outputs) {
    const Rows* x = work.inputs;
    for (int layer = 0; layer < net.layers; ++layer) {
        const int width = net.widths[layer + 1];
        const Scalar* const* own = net.parameters + net.first_parameter(layer);
        const bool last = layer == net.layers - 1;
        Rows* result = last ? outputs : work.layer(net, layer);
        product(own[0], net.widths[layer], 1, x, net.widths[layer], width, own[1], result);
        if (last) return;
        Rows *normal = result + width * VECTORS, *slope = normal + width * VECTORS;
        activate(result, slope, width * VECTORS);
        normalize(own[2], own[3], width, net.epsilon, result, normal, slope + width * VECTORS);
        x = result;
    }
}
// After forward(), from the loss's derivative by the outputs, in work.bar: that by the parameters is added to
// `parameters_bar`; where that is null, work.bar becomes the one by the inputs.
inline __attribute__((noinline)) void forward_adjoint(const Network& net, Workspace& work,
                                                      Scalar* const* parameters_bar) {
    for (int layer = net.layers - 1; layer >= 0; --layer) {
        const int inputs = net.widths[layer], outputs = net.widths[layer + 1];
        const Scalar* const* own = net.parameters + net.first_parameter(layer);
        Scalar* const* own_bar = parameters_bar ? parameters_bar + net.first_parameter(layer) : nullptr;
        if (layer < net.layers - 1) {
            const Rows *normal = work.layer(net, layer) + outputs * VECTORS, *slope = normal + outputs * VECTORS;
            normalize_adjoint(own[2], outputs, normal, slope + outputs * VECTORS, work.bar, own_bar ? own_bar[2] : nullptr,
                              own_bar ? own_bar[3] : nullptr);
            for (int k = 0; k < outputs * VECTORS; ++k) work.bar[k] *= slope[k];
        }
        if (own_bar) {
            by_row(layer > 0 ? work.layer(net, layer - 1) : work.inputs, inputs, work.across);
            add_by_weight(work.bar, work.across, inputs, outputs, own_bar[0]);
            for (int o = 0; o < outputs; ++o) {
                Rows sum = work.bar[o * VECTORS];
                for (int c = 1; c < VECTORS; ++c) sum += work.bar[o * VECTORS + c];
                own_bar[1][o] += sum_of_lanes(sum);
            }
            if (layer == 0) return;
        }
        product(own[0], 1, inputs, work.bar, outputs, inputs, nullptr, work.other_bar);
        Rows* swapped = work.bar;
        work.bar = work.other_bar;
        work.other_bar = swapped;
    }
}
