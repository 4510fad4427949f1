// What a cart and the pole on it are measured by, and the adjoint of that. A row per world: the cart's position and
// velocity, sine and cosine of the pole's angle, and its rate. joint_q is position and angle, joint_qd their rates.
#pragma once

CUDA_CALLABLE inline void measure(const Settings& s, const Scalar* q, const Scalar* qd, Scalar* row, int lane, int lanes) {
    if (lane != 0) return;
    row[0] = q[0];
    row[1] = qd[0];
    row[2] = wp::sin(q[1]);
    row[3] = wp::cos(q[1]);
    row[4] = qd[1];
}
CUDA_CALLABLE inline void measure_adjoint(const Settings& s, const Scalar* q, const Scalar* qd, const Scalar* row_bar,
                                          Scalar* q_bar, Scalar* qd_bar, int lane, int lanes) {
    if (lane != 0) return;
    q_bar[0] = row_bar[0];
    q_bar[1] = row_bar[2] * wp::cos(q[1]) - row_bar[3] * wp::sin(q[1]);
    qd_bar[0] = row_bar[1];
    qd_bar[1] = row_bar[4];
}
