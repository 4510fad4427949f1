// The fit of critics: passes over mini-batches of rows, and for each batch a step of Adam on the clipped gradient of the
// mean squared error. Blocks of rows are added up in their order, so that it does not matter which threads took them.
#pragma once

// One critic's parameters, Adam's moments, and the gradient.
struct Fitted {
    Scalar* weights[MOST_PARAMETERS];
    Scalar* means[MOST_PARAMETERS];
    Scalar* squares[MOST_PARAMETERS];
    Scalar* gradient[MOST_PARAMETERS];
    Network net;
    long long numbers;  // in the gradient, each parameter's part at a whole vector

    INLINE Fitted(const Shape& shape, const Fit& fit, int member)
        : net{shape.layers, shape.widths, shape.epsilon, weights} {
        numbers = 0;
        for (int p = 0; p < net.num_parameters(); ++p) {
            weights[p] = (Scalar*)shape.parameters[p] + member * shape.strides[p];
            means[p] = (Scalar*)fit.means[p] + member * shape.strides[p];
            squares[p] = (Scalar*)fit.squares[p] + member * shape.strides[p];
            numbers += padded(net.size(p));
        }
    }
    INLINE void gradient_at(Scalar* place) {
        for (int p = 0; p < net.num_parameters(); ++p) {
            gradient[p] = place;
            place += padded(net.size(p));
        }
    }
};

INLINE void clear(Scalar* place, long long numbers) {
    for (long long k = 0; k < numbers; k += LANES) *(Rows*)(place + k) = Rows(Scalar(0));
}

// The sum of squared errors of a block of a batch's rows; its gradient, over the batch's number of rows, is added.
inline __attribute__((noinline)) Scalar add_block(const Fitted& fitted, Scalar* scratch, const Scalar* inputs,
                                                  const Scalar* targets, int first, int rows) {
    const Network& net = fitted.net;
    const int width = net.widths[0], count = rows - first < BLOCK_ROWS ? rows - first : BLOCK_ROWS;
    Workspace work(net, scratch);
    load_rows(inputs + (long long)first * width, count, width, work.across);
    by_feature(work.across, width, work.inputs);
    forward(net, work, work.bar);
    Rows squares = Rows(Scalar(0));
    for (int c = 0; c < VECTORS; ++c) {
        // Rows behind the last one have no error.
        Scalar value[LANES] = {};
        const int left = count - c * LANES;
        store_some(work.bar[c], left, value);
        const Rows error = load_some(value, left) - load_some(targets + first + c * LANES, left);
        squares = multiply_add(error, error, squares);
        work.bar[c] = error * (Scalar(2) / Scalar(rows));
    }
    forward_adjoint(net, work, fitted.gradient);
    return sum_of_lanes(squares);
}

// Follow the gradient, scaled down to the norm `largest`; `step` counts this one already.
inline __attribute__((noinline)) void clipped_adam(const Fitted& fitted, const Fit& fit, Scalar largest, Scalar rate,
                                                   double step) {
    const Network& net = fitted.net;
    Rows total = Rows(Scalar(0));
    for (int p = 0; p < net.num_parameters(); ++p) {
        for (int k = 0; k < net.size(p); k += LANES) {
            const Rows some = *(const Rows*)(fitted.gradient[p] + k);
            total = multiply_add(some, some, total);
        }
    }
    const Scalar norm = wp::sqrt(sum_of_lanes(total)), share = largest / (norm + Scalar(1e-6));
    // A gradient that is not finite leaves weights that are not: it is the learner who looks at them.
    const Scalar clipping = share > 1 ? Scalar(1) : share;
    const Scalar step_size = rate / Scalar(1 - wp::pow(double(fit.beta1), step));
    const Scalar correction = Scalar(1 / wp::sqrt(1 - wp::pow(double(fit.beta2), step)));
    const Scalar new_mean = 1 - fit.beta1, new_square = 1 - fit.beta2;
    for (int p = 0; p < net.num_parameters(); ++p) {
        for (int k = 0; k < net.size(p); k += LANES) {
            const int left = net.size(p) - k;
            const Rows slope = *(const Rows*)(fitted.gradient[p] + k) * clipping;
            Rows mean = load_some(fitted.means[p] + k, left), square = load_some(fitted.squares[p] + k, left);
            mean += (slope - mean) * new_mean;
            square = square * fit.beta2 + slope * slope * new_square;
            const Rows deviation = __builtin_elementwise_sqrt(square) * correction + Scalar(1e-8);
            const Rows weight = load_some(fitted.weights[p] + k, left) - mean / deviation * step_size;
            store_some(mean, left, fitted.means[p] + k);
            store_some(square, left, fitted.squares[p] + k);
            store_some(weight, left, fitted.weights[p] + k);
        }
    }
}

// A member's whole fit, by one thread. Its loss is the last pass's.
inline void fit_critic(const Shape& shape, const Fit& fit, int thread) {
    const int member = fit.first + thread;
    Fitted fitted(shape, fit, member);
    const long long width = shape.widths[0], rows = fit.batch_rows, all = rows * fit.batches;
    Scalar *gradient = fit.scratch, *scratch = gradient + fitted.numbers;
    fitted.gradient_at(gradient);
    const Scalar *inputs = fit.inputs + member * all * width, *targets = fit.targets + member * all;
    double step = fit.steps[member];
    Scalar loss = 0;
    for (int pass = 0; pass < fit.passes; ++pass) {
        loss = 0;
        for (int k = 0; k < fit.batches; ++k) {
            clear(gradient, fitted.numbers);
            Scalar error = 0;
            for (int first = 0; first < rows; first += BLOCK_ROWS) {
                error += add_block(fitted, scratch, inputs + k * rows * width, targets + k * rows, first, (int)rows);
            }
            loss += error;
            clipped_adam(fitted, fit, fit.largest[member], fit.rate[member], ++step);
        }
    }
    fit.loss[member] = loss / Scalar(all);
}

// The same in parts, for a critic whose batches are worth several threads. The gradient and the error of a block of rows
// are written, not added to others':
inline void fit_block(const Shape& shape, const Fit& fit, int thread) {
    const int block = fit.first + thread;
    Fitted fitted(shape, fit, 0);
    const long long rows = fit.batch_rows, before = fit.batch * rows;
    Scalar* gradient = fit.blocks + block * (fitted.numbers + LANES);
    fitted.gradient_at(gradient);
    clear(gradient, fitted.numbers);
    gradient[fitted.numbers] = add_block(fitted, fit.scratch, fit.inputs + before * shape.widths[0],
                                         fit.targets + before, block * BLOCK_ROWS, (int)rows);
}
// Those of all blocks are added up in their order, into the first one's place, one part of the numbers by each thread,
constexpr int SUMS = 16;
inline void fit_sum(const Shape& shape, const Fit& fit, int thread) {
    Fitted fitted(shape, fit, 0);
    // The error stands behind the gradient.
    const long long stride = fitted.numbers + LANES, vectors = stride / LANES;
    const int part = fit.first + thread;
    for (long long k = vectors * part / SUMS * LANES; k < vectors * (part + 1) / SUMS * LANES; k += LANES) {
        Rows sum = *(const Rows*)(fit.blocks + k);
        for (int block = 1; block < fit.parts; ++block) sum += *(const Rows*)(fit.blocks + block * stride + k);
        *(Rows*)(fit.blocks + k) = sum;
    }
}
// and a step follows the sum.
inline void fit_step(const Shape& shape, const Fit& fit, int) {
    Fitted fitted(shape, fit, 0);
    fitted.gradient_at(fit.blocks);
    if (fit.batch == 0) fit.loss[0] = 0;
    fit.loss[0] += fit.blocks[fitted.numbers];
    clipped_adam(fitted, fit, fit.largest[0], fit.rate[0], double(fit.steps[0]) + fit.taken + 1);
    if (fit.batch == fit.batches - 1) fit.loss[0] /= Scalar((long long)fit.batch_rows * fit.batches);
}
