"""Student's interval, against the tables that statistics books print."""

import math

import pytest

from trot.learn.mean_interval import mean_interval, student_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.70620), (2, 4.30265), (3, 3.18245), (4, 2.77645), (5, 2.57058), (10, 2.22814), (15, 2.13145), (30, 2.04227),
     (120, 1.97993)],
)  # fmt: skip
def test_within_which_95_of_100_lie(freedom, expected):
    assert student_quantile(0.95, freedom) == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize(("share", "freedom", "expected"), [(0.99, 4, 4.60409), (0.90, 7, 1.89458), (0.5, 1, 1.0)])
def test_within_which_other_shares_lie(share, freedom, expected):
    assert student_quantile(share, freedom) == pytest.approx(expected, abs=5e-6)


def test_an_interval_by_hand():
    # Mean 3, variance 10 / 4, standard error sqrt(2.5 / 5).
    half = 2.776445 * math.sqrt(0.5)
    assert mean_interval([1, 2, 3, 4, 5]) == pytest.approx((3 - half, 3 + half), rel=1e-6)
