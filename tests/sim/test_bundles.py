"""Muscles' segments in bundles: each once, between the same two bodies, and no longer than lanes ask for."""

from __future__ import annotations

import numpy as np
import pytest

from trot.envs.registry import make_task
from trot.sim.layout import kernel_layout
from trot.sim.model import Model


def tables(model: Model, lanes: int) -> dict[str, np.ndarray]:
    return {field.name: field.values for field in kernel_layout(model, lanes).fields}


@pytest.mark.parametrize("lanes", [1, 2, 32])
def test_every_segment_is_in_one_bundle_with_both_its_ends(every_joint: Model, lanes: int) -> None:
    model, found = every_joint, tables(every_joint, lanes)
    first = found["bundle_segment_start"]
    ends = [
        (found["bundle_body_a"][bundle], tuple(found["segment_point_a"][k]), found["bundle_body_b"][bundle],
         tuple(found["segment_point_b"][k]), found["segment_peak_force"][k], found["segment_actuator"][k])
        for bundle in range(len(first) - 1)
        for k in range(first[bundle], first[bundle + 1])
    ]  # fmt: skip
    expected = []
    for muscle, (a, b), (point_a, point_b) in zip(
        model.segment_muscle, model.segment_body, model.segment_point, strict=True
    ):
        one, other = (a, tuple(point_a)), (b, tuple(point_b))
        first_end, second_end = (one, other) if a < b else (other, one)
        expected.append(
            (*first_end, *second_end, model.muscle_peak_force[muscle], model.muscle_actuator[muscle])
        )  # fmt: skip
    assert sorted(ends) == sorted(expected)


@pytest.mark.parametrize(("lanes", "bundles", "longest"), [(1, 10, 43), (32, 32, 7), (64, 52, 4)])
def test_lanes_share_the_segments_of_the_muscle_humanoid(lanes: int, bundles: int, longest: int) -> None:
    # 198 segments between 10 pairs of bodies: 43 from the pelvis to either femur, then 24, 20, 7 and 5 on each side.
    # By sevens that is 2 x (7 + 4 + 3 + 1 + 1) = 32, by sixes 2 x (8 + 4 + 4 + 2 + 1) = 38; by fours 52, by threes 68.
    found = tables(make_task("muscle_humanoid").model, lanes)
    lengths = np.diff(found["bundle_segment_start"])
    assert (len(lengths), lengths.max(), lengths.sum()) == (bundles, longest, 198)


def test_segments_of_a_muscle_are_found_wherever_they_lie(every_joint: Model) -> None:
    found = tables(every_joint, 32)
    for muscle, actuator in enumerate(every_joint.muscle_actuator):
        start, end = found["muscle_segment_start"][muscle : muscle + 2]
        assert end - start == (every_joint.segment_muscle == muscle).sum()
        assert (found["segment_actuator"][found["muscle_segment"][start:end]] == actuator).all()


@pytest.mark.parametrize(("lanes", "groups"), [(1, 10), (32, 10), (64, 10), (2, 10)])
def test_bundles_between_the_same_bodies_stand_side_by_side(lanes: int, groups: int) -> None:
    found = tables(make_task("muscle_humanoid").model, lanes)
    start, end = found["bundle_group_start"], found["bundle_group_end"]
    pairs = list(zip(found["bundle_body_a"], found["bundle_body_b"], strict=True))
    for bundle, pair in enumerate(pairs):
        same = [other for other, theirs in enumerate(pairs) if theirs == pair]
        assert same == list(range(start[bundle], end[bundle]))
    assert len(set(start)) == groups


@pytest.mark.parametrize(
    ("lanes", "of_the_pelvis"),
    [(1, [0, 2]), (32, [0, 14]), (2, [0, 2])],
)
def test_where_lanes_add_up_a_group_a_body_has_its_first_bundle_alone(lanes: int, of_the_pelvis: list[int]) -> None:
    # The pelvis is the first end, 2 * bundle, of those to either femur: by sevens 7 bundles each.
    found = tables(make_task("muscle_humanoid").model, lanes)
    first, end = found["body_bundle_start"][:2]
    assert found["body_bundle"][first:end].tolist() == of_the_pelvis
