"""Ranges of settings to search: how they are written, how they are drawn from, and steps inside them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SCALES = ("linear", "log", "log1m")
"""log1m: by the logarithm of what is missing to 1, for a discount or another share close to it."""
REACH = 0.2
"""Of a range: how far a restarted trial's settings lie from those it restarts with, at most."""
HOW = "NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=log1m:LOW:HIGH"


@dataclass(frozen=True)
class Range:
    """Where a setting is searched for."""

    name: str
    scale: str
    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> Range:
        """As the command line has it."""
        name, equals, rest = text.partition("=")
        *scale, low, high = rest.split(":") if ":" in rest else ("", "")
        try:
            found = cls(name.replace("-", "_"), ":".join(scale) or "linear", float(low), float(high))
        except ValueError:
            raise ValueError(f"--over takes {HOW}, not '{text}'") from None
        if not name or not equals:
            raise ValueError(f"--over takes {HOW}, not '{text}'")
        found._check(text)
        return found

    def _check(self, text: str) -> None:
        if self.scale not in SCALES:
            raise ValueError(f"--over {text}: the scale must be one of {', '.join(SCALES)}, not '{self.scale}'")
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"--over {text}: the two ends must be finite, the smaller one first")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"--over {text}: on a log scale both ends must be above 0")
        if self.scale == "log1m" and self.high >= 1:
            raise ValueError(f"--over {text}: on a log1m scale both ends must be below 1")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def at(self, place: float) -> float:
        """The value at a place from 0, the low end, to 1; in four digits, so that it is short to write."""
        low, high = self._unbent(self.low), self._unbent(self.high)
        value = self._bent(low + (high - low) * place)
        # Of what is missing to 1 where that is what counts: 0.9995 must not become 1.
        rounded = 1 - float(f"{1 - value:.4g}") if self.scale == "log1m" else float(f"{value:.4g}")
        return min(max(round(rounded, 12), self.low), self.high)

    def place(self, value: float) -> float:
        """The way back from at()."""
        low, high = self._unbent(self.low), self._unbent(self.high)
        return (self._unbent(value) - low) / (high - low)

    def _unbent(self, value: float) -> float:
        """On the scale on which steps are even."""
        if self.scale == "linear":
            return value
        return math.log(value) if self.scale == "log" else -math.log1p(-value)

    def _bent(self, value: float) -> float:
        if self.scale == "linear":
            return value
        return math.exp(value) if self.scale == "log" else -math.expm1(-value)


def parse_ranges(texts: Sequence[str], allowed: Sequence[str]) -> list[Range]:
    """One for each setting. Raises, with the list of those that can be searched for, where one cannot."""
    ranges = [Range.parse(text) for text in texts]
    if not ranges:
        raise ValueError(f"--over names no setting to search for; there are {', '.join(allowed)}")
    for index, one in enumerate(ranges):
        if one.name not in allowed:
            raise ValueError(
                f"--over cannot search for {one.name}: members of one batch differ in {', '.join(allowed)} alone. "
                f"Others are tried one after the other: --groups {one.name}=A,B"
            )
        if one.name in [other.name for other in ranges[:index]]:
            raise ValueError(f"--over names {one.name} twice")
    return ranges


def first_draws(ranges: Sequence[Range], count: int, draw: random.Random) -> list[dict[str, float]]:
    """Spread out: each range is cut into as many parts as there are draws, and every part is drawn from once."""
    places = []
    for _ in ranges:
        parts = list(range(count))
        draw.shuffle(parts)
        places.append([(part + draw.random()) / count for part in parts])
    return [
        {one.name: one.at(place[index]) for one, place in zip(ranges, places, strict=True)} for index in range(count)
    ]


def stepped(ranges: Sequence[Range], values: Mapping[str, float], draw: random.Random) -> dict[str, float]:
    """Values near these, each moved by up to REACH of its range; what would leave the range is thrown back."""
    moved = {}
    for one in ranges:
        place = one.place(values[one.name]) + draw.uniform(-REACH, REACH)
        moved[one.name] = one.at(min(abs(place), 2 - abs(place)))
    return moved
