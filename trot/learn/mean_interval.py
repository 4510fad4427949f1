"""How sure the mean over some seeds is: Student's interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def mean_interval(values: Sequence[float], share: float = 0.95) -> tuple[float, float]:
    """Bounds that hold the mean of the distribution which the values were drawn from in this share of cases.

    Exact where it is normal. At least two values.
    """
    count = len(values)
    half = student_quantile(share, count - 1) * statistics.stdev(values) / math.sqrt(count)
    mean = statistics.fmean(values)
    return mean - half, mean + half


def student_quantile(share: float, freedom: int) -> float:
    """How far from 0 this share of Student's distribution reaches, on both sides, with so many degrees of freedom."""
    low, high = 0.0, math.pi / 2
    # Halved until nothing lies between them.
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _share_within(middle, freedom) < share else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _share_within(angle: float, freedom: int) -> float:
    """Of Student's distribution, up to sqrt(freedom) tan(angle) on both sides: its finite series in sine and cosine."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2 == 1
    term = cosine if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for factor in range(2 if odd else 1, freedom - 2, 2):
        term *= factor / (factor + 1) * cosine * cosine
        total += term
    return (angle + sine * total) * 2 / math.pi if odd else sine * total
