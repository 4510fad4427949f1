// At the border to PyTorch a quaternion has four numbers, inside its derivative has three: a small rotation r in the
// body's axes changes the unit quaternion q by q (0, r) / 2. The four-number gradient given back is tangent to the
// sphere, divided by the length of the quaternion that came in, since the step starts by normalising it.
#pragma once
#include "spatial.h"

INLINE Vec3 to_tangent(const Quat& q, const Quat& q_bar) {
    return (q_bar.v * q.w - q.v * q_bar.w + cross(q_bar.v, q.v)) * real(Scalar(0.5));
}

INLINE Quat from_tangent(const Quat& q, Vec3 r_bar, Real length) {
    const Real scale = Scalar(2) / length;
    Quat result;
    result.w = -dot(q.v, r_bar) * scale;
    result.v = (r_bar * q.w + cross(q.v, r_bar)) * scale;
    return result;
}
