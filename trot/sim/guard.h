// A world that blows up is set aside: at the nominal pose and at rest, its muscles not activated, its action zero, and
// no gradient by what it began from. Others stay as they are, and are not written.
#pragma once

// Not so for a NaN.
CUDA_CALLABLE inline bool within(const Guarding& g, const Scalar* numbers, int count, int lane, int lanes) {
    bool holds = true;
    for (int k = lane; k < count; k += lanes) holds = holds && wp::abs(numbers[k]) <= g.bound;
    return holds;
}
// The lanes of a row are a whole warp.
CUDA_CALLABLE inline bool in_all_lanes(bool holds) {
#if defined(__CUDA_ARCH__)
    return __all_sync(0xffffffffu, holds);
#else
    return holds;
#endif
}
CUDA_CALLABLE inline void put_zeros(Scalar* numbers, long long row, int width, int lane, int lanes) {
    for (int k = lane; numbers && k < width; k += lanes) numbers[row * width + k] = 0;
}
CUDA_CALLABLE inline void pass_where(bool sound, const Scalar* from, Scalar* to, long long row, int width, int lane,
                                     int lanes) {
    for (int k = lane; to && k < width; k += lanes) to[row * width + k] = sound ? from[row * width + k] : Scalar(0);
}

CUDA_CALLABLE inline void set_aside(const Guarding& g, const Moved& m, long long row, int lane, int lanes) {
    Scalar* q = m.joint_q + row * g.q_width;
    Scalar* qd = m.joint_qd + row * g.qd_width;
    bool holds = within(g, q, g.q_width, lane, lanes) && within(g, qd, g.qd_width, lane, lanes);
    if (m.activation) {
        holds = holds && within(g, m.activation + row * g.activation_width, g.activation_width, lane, lanes);
    }
    const bool sound = in_all_lanes(holds);
    if (lane == 0) m.sound[row] = sound;
    pass_where(sound, m.action, m.action_taken, row, g.action_width, lane, lanes);
    if (sound) return;
    for (int k = lane; k < g.q_width; k += lanes) q[k] = m.nominal_q[k];
    put_zeros(m.joint_qd, row, g.qd_width, lane, lanes);
    put_zeros(m.activation, row, g.activation_width, lane, lanes);
}

CUDA_CALLABLE inline void silence(const Guarding& g, const Silenced& s, long long row, int lane, int lanes) {
    const bool sound = s.sound[row];
    pass_where(sound, s.action_taken_bar, s.action_bar, row, g.action_width, lane, lanes);
    if (sound) return;
    put_zeros(s.joint_q_bar, row, g.q_width, lane, lanes);
    put_zeros(s.joint_qd_bar, row, g.qd_width, lane, lanes);
    put_zeros(s.activation_bar, row, g.activation_width, lane, lanes);
    put_zeros(s.control_bar, row, g.control_width, lane, lanes);
    put_zeros(s.parameter_bar, row, g.parameter_width, lane, lanes);
}
