// A policy by blocks of rows: from observations through its network to the tanh of a sample, and the derivative by the
// observations. With a mirror the mean is that of what the network says and of the mirror image of what it says in the
// mirror. Behind shared_network.h.
#pragma once

// tanh x = -e / (e + 2) with e = e^(-2x) - 1, for x > 0; of small x e is Taylor's series, which loses no digits.
INLINE Rows hyperbolic_tangent(Rows x) {
    constexpr bool single = sizeof(Scalar) == 4;
    constexpr int terms = single ? 9 : 16;
    const Rows zero = Rows(Scalar(0)), y = (x > zero ? -x : x) * Scalar(2);
    Rows series = Rows(Scalar(1)) / Scalar(terms);
    _Pragma("unroll") for (int k = terms - 1; k >= 1; --k) {
        series = multiply_add(series * y, Rows(Scalar(1)), Rows(Scalar(1))) / Scalar(k);
    }
    const Rows e = y > Rows(Scalar(-0.5)) ? series * y : exponential(y) - Scalar(1);
    const Rows result = -e / (e + Scalar(2));
    return x < zero ? -result : result;
}

// A number's place in a mirrored vector: where it comes from is counted from 1, and below 0 its sign changes.
INLINE int place_of(int mirrored) { return (mirrored < 0 ? -mirrored : mirrored) - 1; }
INLINE Scalar sign_of(int mirrored) { return mirrored < 0 ? Scalar(-1) : Scalar(1); }

// What a block of a policy is worked on with, besides its network's workspace.
struct PolicyBlock {
    Block block;
    Workspace work;
    Rows *first, *second, *third;  // as wide as the widest layer
    int inputs, outputs;

    INLINE PolicyBlock(const Shape& shape, Scalar* scratch, int member_rows, int index)
        : block(shape, member_rows, index), work(block.net, scratch) {
        const int widest = padded(block.net.widest()) * VECTORS;
        first = work.layer(block.net, block.net.layers - 1);
        second = first + widest;
        third = second + widest;
        inputs = shape.widths[0], outputs = shape.widths[shape.layers];
    }
    INLINE void load_normalized(const Scalar* observations, const Scalar* shift, const Scalar* scale) {
        block.load(observations, inputs, work, work.inputs);
        for (int k = 0; k < inputs; ++k) {
            const Scalar shifted = shift[block.member * inputs + k], scaled = scale[block.member * inputs + k];
            FOR_VECTORS(c) work.inputs[k * VECTORS + c] = (work.inputs[k * VECTORS + c] - shifted) * scaled;
        }
    }
};

INLINE void mirror_rows(const Rows* rows, const int* mirrored, int width, Rows* image) {
    for (int k = 0; k < width; ++k) {
        FOR_VECTORS(c) image[k * VECTORS + c] = rows[place_of(mirrored[k]) * VECTORS + c] * sign_of(mirrored[k]);
    }
}
// From the derivative by the image to that by the rows, added to it.
INLINE void mirror_rows_adjoint(const Rows* image_bar, const int* mirrored, int width, Rows* rows_bar) {
    for (int k = 0; k < width; ++k) {
        FOR_VECTORS(c) {
            rows_bar[place_of(mirrored[k]) * VECTORS + c] += image_bar[k * VECTORS + c] * sign_of(mirrored[k]);
        }
    }
}

inline void run_policy(const Shape& shape, const Act& act, int thread) {
    PolicyBlock here(shape, act.scratch, act.member_rows, act.first + thread);
    Workspace& work = here.work;
    here.load_normalized(act.observations, act.shift, act.scale);
    Rows *mean = here.first, *image = here.second, *noise = here.third;
    forward(here.block.net, work, mean);
    if (act.mirrored_observation) {
        mirror_rows(work.inputs, act.mirrored_observation, here.inputs, image);
        work.inputs = image;
        forward(here.block.net, work, work.bar);
        for (int k = 0; k < here.outputs; ++k) {
            const int mirrored = act.mirrored_action[k];
            FOR_VECTORS(c) {
                const Rows across = work.bar[place_of(mirrored) * VECTORS + c] * sign_of(mirrored);
                mean[k * VECTORS + c] = (mean[k * VECTORS + c] + across) * Scalar(0.5);
            }
        }
    }
    here.block.load(act.noise, here.outputs, work, noise);
    for (int k = 0; k < here.outputs; ++k) {
        const Rows deviation = Rows(act.deviation[here.block.member * here.outputs + k]);
        FOR_VECTORS(c) {
            const int place = k * VECTORS + c;
            mean[place] = hyperbolic_tangent(multiply_add(deviation, noise[place], mean[place]));
        }
    }
    here.block.store(mean, here.outputs, work, act.actions);
}

// Takes the rows through the network again, as run_rows_adjoint() does.
inline void run_policy_adjoint(const Shape& shape, const ActAdjoint& act, int thread) {
    PolicyBlock here(shape, act.scratch, act.member_rows, act.first + thread);
    Workspace& work = here.work;
    const int inputs = here.inputs * VECTORS, outputs = here.outputs * VECTORS;
    Rows *mean_bar = here.first, *action = here.second;
    here.block.load(act.actions, here.outputs, work, action);
    here.block.load(act.actions_bar, here.outputs, work, mean_bar);
    for (int k = 0; k < outputs; ++k) mean_bar[k] *= Scalar(1) - action[k] * action[k];
    here.load_normalized(act.observations, act.shift, act.scale);
    Rows *straight = work.inputs, *image = here.second, *image_bar = here.third;
    if (act.mirrored_observation) {
        for (int k = 0; k < outputs; ++k) mean_bar[k] *= Scalar(0.5);
        mirror_rows(straight, act.mirrored_observation, here.inputs, image);
        work.inputs = image;
        forward(here.block.net, work, work.bar);
        for (int k = 0; k < outputs; ++k) work.bar[k] = Rows(Scalar(0));
        mirror_rows_adjoint(mean_bar, act.mirrored_action, here.outputs, work.bar);
        forward_adjoint(here.block.net, work, nullptr);
        for (int k = 0; k < inputs; ++k) image_bar[k] = work.bar[k];
        work.inputs = straight;
    }
    forward(here.block.net, work, work.bar);
    for (int k = 0; k < outputs; ++k) work.bar[k] = mean_bar[k];
    forward_adjoint(here.block.net, work, nullptr);
    if (act.mirrored_observation) mirror_rows_adjoint(image_bar, act.mirrored_observation, here.inputs, work.bar);
    for (int k = 0; k < here.inputs; ++k) {
        FOR_VECTORS(c) work.bar[k * VECTORS + c] *= act.scale[here.block.member * here.inputs + k];
    }
    here.block.store(work.bar, here.inputs, work, act.observations_bar);
}
