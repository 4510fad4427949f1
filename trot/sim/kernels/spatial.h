// Vectors, rotations and spatial (six-dimensional) vectors, in world axes unless a name says otherwise.
// A Motion is (angular velocity, velocity of the reference point); a Force is (moment about that point, force).
#pragma once
#include "real.h"

// Constants of the model, the same in every world.
struct Constant3 { Scalar x, y, z; };
struct Constant33 { Constant3 row[3]; };

struct Vec3 { Real x, y, z; };

INLINE Vec3 vec3(Real x, Real y, Real z) { Vec3 r; r.x = x; r.y = y; r.z = z; return r; }
INLINE Vec3 vec3(Constant3 a) { return vec3(real(a.x), real(a.y), real(a.z)); }
INLINE Vec3 zero3() { return vec3(zero(), zero(), zero()); }
INLINE Vec3 operator+(Vec3 a, Vec3 b) { return vec3(a.x + b.x, a.y + b.y, a.z + b.z); }
INLINE Vec3 operator-(Vec3 a, Vec3 b) { return vec3(a.x - b.x, a.y - b.y, a.z - b.z); }
INLINE Vec3 operator-(Vec3 a) { return vec3(-a.x, -a.y, -a.z); }
INLINE Vec3 operator*(Vec3 a, Real s) { return vec3(a.x * s, a.y * s, a.z * s); }
INLINE void operator+=(Vec3& a, Vec3 b) { a = a + b; }
INLINE void operator-=(Vec3& a, Vec3 b) { a = a - b; }
INLINE Real dot(Vec3 a, Vec3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
INLINE Vec3 cross(Vec3 a, Vec3 b) { return vec3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x); }
INLINE Vec3 select(Mask m, Vec3 a, Vec3 b) {
    return vec3(select(m, a.x, b.x), select(m, a.y, b.y), select(m, a.z, b.z));
}

struct Mat3 { Vec3 row[3]; };

INLINE Mat3 identity() {
    Mat3 r;
    for (int i = 0; i < 3; ++i) r.row[i] = vec3(real(i == 0), real(i == 1), real(i == 2));
    return r;
}
INLINE Mat3 mat3(const Constant33& a) {
    Mat3 r;
    for (int i = 0; i < 3; ++i) r.row[i] = vec3(a.row[i]);
    return r;
}
INLINE Vec3 operator*(const Mat3& a, Vec3 b) { return vec3(dot(a.row[0], b), dot(a.row[1], b), dot(a.row[2], b)); }
INLINE Real dot(Vec3 a, Constant3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
INLINE Vec3 operator*(const Mat3& a, Constant3 b) { return vec3(dot(a.row[0], b), dot(a.row[1], b), dot(a.row[2], b)); }
INLINE Vec3 row_times(Vec3 row, const Mat3& b) { return b.row[0] * row.x + b.row[1] * row.y + b.row[2] * row.z; }
INLINE Mat3 operator*(const Mat3& a, const Mat3& b) {
    Mat3 r;
    for (int i = 0; i < 3; ++i) r.row[i] = row_times(a.row[i], b);
    return r;
}
INLINE Vec3 column(const Mat3& a, int j) {
    if (j == 0) return vec3(a.row[0].x, a.row[1].x, a.row[2].x);
    if (j == 1) return vec3(a.row[0].y, a.row[1].y, a.row[2].y);
    return vec3(a.row[0].z, a.row[1].z, a.row[2].z);
}

// Where a frame is in another.
struct Pose { Mat3 rotation; Vec3 position; };

INLINE Pose pose(const Mat3& rotation, Vec3 position) { Pose r; r.rotation = rotation; r.position = position; return r; }
INLINE Vec3 operator*(const Pose& a, Constant3 point) { return a.rotation * point + a.position; }

// Rotation by an angle about a unit axis (Rodrigues).
INLINE Mat3 rotation_about(Constant3 axis, Real angle) {
    Real s, c;
    sine_cosine(angle, s, c);
    const Real t = one() - c;
    const Scalar x = axis.x, y = axis.y, z = axis.z;
    Mat3 r;
    r.row[0] = vec3(t * (x * x) + c, t * (x * y) - s * z, t * (x * z) + s * y);
    r.row[1] = vec3(t * (x * y) + s * z, t * (y * y) + c, t * (y * z) - s * x);
    r.row[2] = vec3(t * (x * z) - s * y, t * (y * z) + s * x, t * (z * z) + c);
    return r;
}

struct Quat { Real w; Vec3 v; };

INLINE Quat load_quat(const Real* q) { Quat r; r.w = q[0]; r.v = vec3(q[1], q[2], q[3]); return r; }
INLINE void store_quat(Real* q, const Quat& a) { q[0] = a.w; q[1] = a.v.x; q[2] = a.v.y; q[3] = a.v.z; }
INLINE Quat operator*(const Quat& a, const Quat& b) {
    Quat r;
    r.w = a.w * b.w - dot(a.v, b.v);
    r.v = b.v * a.w + a.v * b.w + cross(a.v, b.v);
    return r;
}
INLINE Real norm(const Quat& a) { return square_root(a.w * a.w + dot(a.v, a.v)); }
INLINE Quat normalised(const Quat& a) {
    const Real s = one() / norm(a);
    Quat r;
    r.w = a.w * s;
    r.v = a.v * s;
    return r;
}
INLINE Mat3 rotation(const Quat& a) {
    const Scalar two = 2;
    const Real w = a.w, x = a.v.x, y = a.v.y, z = a.v.z;
    Mat3 r;
    r.row[0] = vec3(one() - (y * y + z * z) * two, (x * y - w * z) * two, (x * z + w * y) * two);
    r.row[1] = vec3((x * y + w * z) * two, one() - (x * x + z * z) * two, (y * z - w * x) * two);
    r.row[2] = vec3((x * z - w * y) * two, (y * z + w * x) * two, one() - (x * x + y * y) * two);
    return r;
}

struct Motion { Vec3 angular, linear; };
struct Force { Vec3 angular, linear; };

INLINE Motion motion(Vec3 angular, Vec3 linear) { Motion r; r.angular = angular; r.linear = linear; return r; }
INLINE Force force(Vec3 angular, Vec3 linear) { Force r; r.angular = angular; r.linear = linear; return r; }
INLINE Motion zero_motion() { return motion(zero3(), zero3()); }
INLINE Force zero_force() { return force(zero3(), zero3()); }
INLINE Motion operator+(const Motion& a, const Motion& b) { return motion(a.angular + b.angular, a.linear + b.linear); }
INLINE Motion operator-(const Motion& a, const Motion& b) { return motion(a.angular - b.angular, a.linear - b.linear); }
INLINE Motion operator*(const Motion& a, Real s) { return motion(a.angular * s, a.linear * s); }
INLINE Force operator+(const Force& a, const Force& b) { return force(a.angular + b.angular, a.linear + b.linear); }
INLINE Force operator-(const Force& a, const Force& b) { return force(a.angular - b.angular, a.linear - b.linear); }
INLINE Force operator-(const Force& a) { return force(-a.angular, -a.linear); }
INLINE Force operator*(const Force& a, Real s) { return force(a.angular * s, a.linear * s); }
INLINE void operator+=(Force& a, const Force& b) { a = a + b; }
INLINE void operator-=(Force& a, const Force& b) { a = a - b; }
INLINE void operator-=(Motion& a, const Motion& b) { a = a - b; }
INLINE Force select(Mask m, const Force& a, const Force& b) {
    return force(select(m, a.angular, b.angular), select(m, a.linear, b.linear));
}

// Power, the pairing of the two kinds.
INLINE Real dot(const Motion& a, const Force& b) { return dot(a.angular, b.angular) + dot(a.linear, b.linear); }
// Rate of change of a motion b carried along by a.
INLINE Motion cross(const Motion& a, const Motion& b) {
    return motion(cross(a.angular, b.angular), cross(a.angular, b.linear) + cross(a.linear, b.angular));
}
// Rate of change of a force carried along by a. dot(b, cross(a, f)) = -dot(cross(a, b), f).
INLINE Force cross(const Motion& a, const Force& f) {
    return force(cross(a.angular, f.angular) + cross(a.linear, f.linear), cross(a.angular, f.linear));
}
// Velocity of a body's point, and the wrench of a force that acts there.
INLINE Vec3 velocity_at(const Motion& a, Vec3 point) { return a.linear + cross(a.angular, point); }
INLINE Force force_at(Vec3 f, Vec3 point) { return force(cross(point, f), f); }

// Spatial inertia about the reference point: mass, mass times centre of mass, rotational inertia.
struct Inertia { Real mass; Vec3 moment; Real xx, yy, zz, xy, xz, yz; };

INLINE Force operator*(const Inertia& i, const Motion& a) {
    const Vec3 w = a.angular;
    const Vec3 rotational = vec3(i.xx * w.x + i.xy * w.y + i.xz * w.z, i.xy * w.x + i.yy * w.y + i.yz * w.z,
                                 i.xz * w.x + i.yz * w.y + i.zz * w.z);
    return force(rotational + cross(i.moment, a.linear), a.linear * i.mass + cross(w, i.moment));
}

// What another lane holds.
INLINE Vec3 from_lane(Vec3 a, int other) {
    return vec3(from_lane(a.x, other), from_lane(a.y, other), from_lane(a.z, other));
}
INLINE Motion from_lane(const Motion& a, int other) {
    return motion(from_lane(a.angular, other), from_lane(a.linear, other));
}
INLINE Force from_lane(const Force& a, int other) {
    return force(from_lane(a.angular, other), from_lane(a.linear, other));
}

// A spatial vector or an inertia as its plain numbers, for loops that give each number a lane.
template <typename Spatial>
INLINE Real* numbers(Spatial* a) { return reinterpret_cast<Real*>(a); }
template <typename Spatial>
INLINE const Real* numbers(const Spatial* a) { return reinterpret_cast<const Real*>(a); }
