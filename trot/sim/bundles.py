"""Muscles' segments in bundles: those between the same two bodies, as many as one lane of a kernel takes (muscle.h)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trot.sim.cpp_struct import Field
from trot.sim.dof_tables import grouped, starts
from trot.sim.model import WORLD, Model

Ints = NDArray[np.int32]


def bundle_sizes(model: Model, lanes: int) -> dict[str, int]:
    """How many there are of each, where so many lanes share a world."""
    _, lengths, group = _bundles(model, lanes)
    return {
        "num_muscles": model.num_muscles,
        "num_segments": model.num_segments,
        "num_bundles": len(lengths),
        "longest_bundle": int(lengths.max(initial=0)),
        "longest_group": int(np.bincount(group).max(initial=0)),
        "bundles_in_lanes": int(_in_lanes(lengths, lanes)),
    }


def _in_lanes(lengths: Ints, lanes: int) -> bool:
    """Whether every bundle has a lane of its own. Those of a group, between the same two bodies, then become one."""
    return lanes > 1 and 0 < len(lengths) <= lanes


def _bundles(model: Model, lanes: int) -> tuple[Ints, Ints, Ints]:
    """The segments in the order of their bundles; how many each bundle has; and its group."""
    ends = np.sort(model.segment_body.reshape(-1, 2), axis=1)
    pairs, pair, count = np.unique(ends, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(pair.ravel(), kind="stable").astype(np.int32)
    # The longest bundle is what lanes wait for: as short as rounds of lanes allow that all pairs need at least.
    room = lanes * -(-len(pairs) // lanes)
    longest = next((size for size in range(1, model.num_segments + 1) if (-(-count // size)).sum() <= room), 1)
    pieces = [(group, min(longest, n - first)) for group, n in enumerate(count) for first in range(0, n, longest)]
    group, lengths = np.array(pieces, np.int32).reshape(-1, 2).T
    return order, lengths, group


def bundle_fields(model: Model, lanes: int) -> list[Field]:
    """The tables that muscle.h reads. Both ends of a bundle's segments are in one order, whichever way muscles run."""
    order, lengths, group = _bundles(model, lanes)
    first = starts(lengths)
    group_start = starts(np.bincount(group))
    muscle = model.segment_muscle[order]
    turned = np.argsort(model.segment_body.reshape(-1, 2)[order], axis=1, kind="stable")
    body = np.take_along_axis(model.segment_body.reshape(-1, 2)[order], turned, axis=1)
    point = np.take_along_axis(model.segment_point.reshape(-1, 2, 3)[order], turned[:, :, None], axis=1)
    bundle_body = body[first[:-1]]
    ends = bundle_body.ravel()
    counts = np.ones(len(lengths), bool)
    if _in_lanes(lengths, lanes):
        # The first of a group stands for all.
        counts[:] = False
        counts[group_start[:-1]] = True
    on_body = np.flatnonzero((ends != WORLD) & counts.repeat(2)).astype(np.int32)
    by_body, body_start = grouped(ends[on_body], model.num_bodies)
    by_muscle, muscle_start = grouped(muscle, model.num_muscles)
    actuator_muscle = np.full(model.num_controls, -1, np.int32)
    actuator_muscle[model.muscle_actuator] = np.arange(model.num_muscles)
    return [
        Field("actuator_muscle", actuator_muscle, "-1 for a motor"),
        Field("muscle_segment", by_muscle, "segments by muscle"),
        Field("muscle_segment_start", muscle_start, "first segment of a muscle in muscle_segment"),
        Field("segment_actuator", model.muscle_actuator[muscle], "control that activates its muscle"),
        Field("bundle_segment_start", first, "first segment of a bundle"),
        Field("bundle_group_start", group_start[:-1][group], "first bundle between the same bodies"),
        Field("bundle_group_end", group_start[1:][group], "past the last bundle between the same bodies"),
        Field("bundle_body_a", bundle_body[:, 0].copy(), "body of one end, -1 for the world"),
        Field("bundle_body_b", bundle_body[:, 1].copy(), "body of the other"),
        Field("body_bundle", on_body[by_body], "2 * bundle + end, by body; of a group in lanes the first bundle's"),
        Field("body_bundle_start", body_start, "first bundle end of a body"),
        Field("segment_peak_force", model.muscle_peak_force[muscle], "tension at activation 1, N"),
        Field("segment_point_a", point[:, 0].copy(), "end in the frame of body a, m"),
        Field("segment_point_b", point[:, 1].copy(), "end in the frame of body b, m"),
    ]
