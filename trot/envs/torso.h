// What three-dimensional tasks measure of a robot whose first joint is free, and the adjoint of that.
//
// A row per world, as wide as joint_q and joint_qd together:
//   height 1, rotation 4 (w x y z), velocity 3, angular velocity in world axes 3, coordinates of all other joints, their
//   rates, up 1 (the world's z of the body's up axis), heading 1 (cosine between the body's forward axis and the way to
//   the target, which lies on the ground at x = target, y = 0)
// The struct Settings is written by the build: the widths of joint_q and joint_qd, and what torso.py lists.
#pragma once

constexpr int ROTATION = 1, VELOCITY = 5, ANGULAR_VELOCITY = 8, JOINTS = 11;

CUDA_CALLABLE inline int num_joints(const Settings& s) { return s.joint_q_width - 7; }
CUDA_CALLABLE inline int num_rates(const Settings& s) { return s.joint_qd_width - 6; }
CUDA_CALLABLE inline int up_column(const Settings& s) { return JOINTS + num_joints(s) + num_rates(s); }
CUDA_CALLABLE inline int heading_column(const Settings& s) { return up_column(s) + 1; }

// The world axes of a body with the unit quaternion w x y z.
CUDA_CALLABLE inline void rotation_matrix(const Scalar* quat, Scalar r[3][3]) {
    const Scalar w = quat[0], x = quat[1], y = quat[2], z = quat[3], two = 2;
    r[0][0] = w * w + x * x - y * y - z * z;
    r[1][1] = w * w - x * x + y * y - z * z;
    r[2][2] = w * w - x * x - y * y + z * z;
    r[0][1] = two * (x * y - w * z);
    r[1][0] = two * (x * y + w * z);
    r[0][2] = two * (x * z + w * y);
    r[2][0] = two * (x * z - w * y);
    r[1][2] = two * (y * z - w * x);
    r[2][1] = two * (y * z + w * x);
}
CUDA_CALLABLE inline void rotation_matrix_adjoint(const Scalar* quat, const Scalar r[3][3], Scalar* quat_bar) {
    const Scalar w = quat[0], x = quat[1], y = quat[2], z = quat[3], two = 2;
    const Scalar xy = r[0][1] + r[1][0], xz = r[0][2] + r[2][0], yz = r[1][2] + r[2][1];
    const Scalar wx = r[2][1] - r[1][2], wy = r[0][2] - r[2][0], wz = r[1][0] - r[0][1];
    quat_bar[0] += two * (w * (r[0][0] + r[1][1] + r[2][2]) + x * wx + y * wy + z * wz);
    quat_bar[1] += two * (x * (r[0][0] - r[1][1] - r[2][2]) + w * wx + y * xy + z * xz);
    quat_bar[2] += two * (y * (r[1][1] - r[0][0] - r[2][2]) + w * wy + x * xy + z * yz);
    quat_bar[3] += two * (z * (r[2][2] - r[0][0] - r[1][1]) + w * wz + x * xz + y * yz);
}

// Joints are copied by all lanes of a world, the rest is the work of the first.
CUDA_CALLABLE inline void measure(const Settings& s, const Scalar* q, const Scalar* qd, Scalar* row, int lane, int lanes) {
    for (int k = lane; k < num_joints(s); k += lanes) row[JOINTS + k] = q[7 + k];
    for (int k = lane; k < num_rates(s); k += lanes) row[JOINTS + num_joints(s) + k] = qd[6 + k];
    if (lane != 0) return;
    row[0] = q[2];
    for (int k = 0; k < 4; ++k) row[ROTATION + k] = q[3 + k];
    Scalar r[3][3];
    rotation_matrix(q + 3, r);
    for (int i = 0; i < 3; ++i) {
        row[VELOCITY + i] = qd[i];
        row[ANGULAR_VELOCITY + i] = r[i][0] * qd[3] + r[i][1] * qd[4] + r[i][2] * qd[5];
    }
    const Scalar x = s.target - q[0], y = -q[1];
    row[up_column(s)] = r[2][s.up_axis];
    row[heading_column(s)] = (r[0][s.forward_axis] * x + r[1][s.forward_axis] * y) / wp::sqrt(x * x + y * y);
}
CUDA_CALLABLE inline void measure_adjoint(const Settings& s, const Scalar* q, const Scalar* qd, const Scalar* row_bar,
                                          Scalar* q_bar, Scalar* qd_bar, int lane, int lanes) {
    for (int k = lane; k < num_joints(s); k += lanes) q_bar[7 + k] = row_bar[JOINTS + k];
    for (int k = lane; k < num_rates(s); k += lanes) qd_bar[6 + k] = row_bar[JOINTS + num_joints(s) + k];
    if (lane != 0) return;
    Scalar r[3][3], r_bar[3][3];
    rotation_matrix(q + 3, r);
    const Scalar* turning_bar = row_bar + ANGULAR_VELOCITY;
    for (int i = 0; i < 3; ++i) {
        qd_bar[i] = row_bar[VELOCITY + i];
        qd_bar[3 + i] = r[0][i] * turning_bar[0] + r[1][i] * turning_bar[1] + r[2][i] * turning_bar[2];
        for (int j = 0; j < 3; ++j) r_bar[i][j] = turning_bar[i] * qd[3 + j];
    }
    r_bar[2][s.up_axis] += row_bar[up_column(s)];

    const Scalar x = s.target - q[0], y = -q[1], distance = wp::sqrt(x * x + y * y);
    const Scalar unit_x = x / distance, unit_y = y / distance, heading_bar = row_bar[heading_column(s)];
    const Scalar forward_x = r[0][s.forward_axis], forward_y = r[1][s.forward_axis];
    const Scalar heading = forward_x * unit_x + forward_y * unit_y;
    r_bar[0][s.forward_axis] += heading_bar * unit_x;
    r_bar[1][s.forward_axis] += heading_bar * unit_y;
    q_bar[0] = -heading_bar * (forward_x - heading * unit_x) / distance;
    q_bar[1] = -heading_bar * (forward_y - heading * unit_y) / distance;
    q_bar[2] = row_bar[0];
    for (int k = 0; k < 4; ++k) q_bar[3 + k] = row_bar[ROTATION + k];
    rotation_matrix_adjoint(q + 3, r_bar, q_bar + 3);
}
