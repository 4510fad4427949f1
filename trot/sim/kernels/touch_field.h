// A ball against a height field that is fixed to the world: the surface below (or above) its centre, taken as flat. In
// a cell of the grid the height goes linearly along either side (bilinear), so the slope jumps from cell to cell.
//   height above it   phi = (z - h(x, y)) / sqrt(1 + h_x^2 + h_y^2)          normal   (-h_x, -h_y, 1), made unit
// It acts at the ball's deepest point, as on the ground. Beyond the edge of the field nothing is touched.
#pragma once
#include "memory.h"
#include "touch.h"

struct FieldTouch : Touch {
    Feeler a;
    Vec3 normal_in_field;
    Real slope_x, slope_y, twist, height, inverse_length;
};

INLINE Vec3 into_field(const Model& model, int field, Vec3 direction) {
    return row_times(direction, mat3(model.field_rotation[field]));
}

// The cell that x lies in, counted from the first sample, and how far into it x is, from 0 to 1.
INLINE Real cell_of(Real x, Scalar spacing, int samples, Real& part) {
    const Real place = x / real(spacing) + Scalar(0.5) * (samples - 1);
    const Real nearest = nearest_integer(place - Scalar(0.5));
    const Real cell = smaller(larger(nearest, zero()), real(Scalar(samples - 2)));
    part = place - cell;
    return cell;
}

INLINE FieldTouch touch_field(const World& world, const Model& model, const Feeler& a, int field) {
    const Vec3 y = into_field(model, field, a.centre - carried(world, -1, vec3(model.field_position[field])));
    const Scalar wide = model.field_spacing_x[field], deep = model.field_spacing_y[field];
    const int columns = model.field_columns[field], rows = model.field_rows[field];
    Real x_part, y_part;
    const Real column = cell_of(y.x, wide, columns, x_part), row = cell_of(y.y, deep, rows, y_part);
    const Real first = row * Scalar(columns) + column;
    const Scalar* heights = model.field_height + model.field_start[field];
    const Real h00 = gather(heights, first), h10 = gather(heights, first + Scalar(1));
    const Real h01 = gather(heights, first + Scalar(columns)), h11 = gather(heights, first + Scalar(columns + 1));
    const Real along_x = h10 - h00, along_y = h01 - h00, along_both = h11 - h10 - along_y;
    FieldTouch r;
    r.a = a;
    r.slope_x = (along_x + along_both * y_part) / real(wide);
    r.slope_y = (along_y + along_both * x_part) / real(deep);
    r.twist = along_both / real(wide * deep);
    r.inverse_length = one() / square_root(r.slope_x * r.slope_x + r.slope_y * r.slope_y + Scalar(1));
    r.height = (y.z - (h00 + along_x * x_part + along_y * y_part + along_both * x_part * y_part)) * r.inverse_length;
    r.normal_in_field = vec3(-r.slope_x, -r.slope_y, one()) * r.inverse_length;
    r.normal = mat3(model.field_rotation[field]) * r.normal_in_field;
    const Mask on_it = (x_part >= zero()) & (x_part <= one()) & (y_part >= zero()) & (y_part <= one());
    r.depth = select(on_it, a.radius - r.height, -one());
    r.point = a.centre - r.normal * real(a.radius);
    return r;
}

// Derivative by moving the first body.
INLINE Force touch_field_adjoint(const Model& model, const FieldTouch& r, int field, const Touch& bar) {
    const Vec3 normal_bar = into_field(model, field, bar.normal - bar.point * real(r.a.radius));
    const Vec3 n = r.normal_in_field;
    const Vec3 raw_bar = (normal_bar - n * dot(n, normal_bar)) * r.inverse_length;
    const Real bent = r.height * r.inverse_length * r.inverse_length * r.twist;  // how phi changes with a slope
    const Vec3 height_by_y = vec3(n.x - bent * r.slope_y, n.y - bent * r.slope_x, n.z);
    Vec3 y_bar = height_by_y * -bar.depth;
    y_bar.x -= raw_bar.y * r.twist;
    y_bar.y -= raw_bar.x * r.twist;
    return force_at(bar.point + mat3(model.field_rotation[field]) * y_bar, r.a.centre);
}
