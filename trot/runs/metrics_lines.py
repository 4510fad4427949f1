"""The lines of metrics.csv: read one by one, and mended where something damaged them."""

from __future__ import annotations

import bisect
import contextlib
import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Mended:
    """Header and rows, those that are kept to the letter; and what was wrong, in words, None where nothing was."""

    lines: list[str]
    fault: str | None


def cells(line: str) -> list[str]:
    """Of one line. Raises ValueError where it is none of a table."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error as error:
        raise ValueError(str(error)) from None


def parse_row(columns: Sequence[str], line: str) -> dict[str, float]:
    """A line's numbers. Raises ValueError where it has not one for each column."""
    return dict(zip(columns, map(float, cells(line)), strict=True))


def table_text(rows: Iterable[Iterable[str]]) -> str:
    """Lines of these cells."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def mend(lines: Sequence[str], columns: Sequence[str], last_iteration: int) -> Mended:
    """The rows up to this iteration that can be read, under a header of these columns."""
    found = _columns(lines)
    intact = sorted(found) == sorted(columns)
    header, columns = (lines[0], found) if intact else (table_text([columns]).rstrip("\n"), columns)
    # The first line, too: where the header is lost it is a row. A header is none in any case.
    numbered = [(_iteration(line, columns), line) for line in lines]
    rising = _longest_rising([(iteration, line) for iteration, line in numbered if iteration is not None])
    broken = len(lines) - len(rising) - intact
    kept = [(iteration, line) for iteration, line in rising if iteration <= last_iteration]
    iterations = [0, *(iteration for iteration, _ in kept)]
    fault = None
    if broken or (lines and not intact) or iterations[-1] < last_iteration:
        gaps = _gaps([*iterations, last_iteration + 1])
        lost = f"the rows of iterations {', '.join(gaps)} are lost" if gaps else "no row is lost"
        fault = f"lines that cannot be read: {broken}; {lost}"
    return Mended([header, *(line for _, line in kept)], fault)


def _columns(lines: Sequence[str]) -> list[str]:
    with contextlib.suppress(ValueError):
        return cells(lines[0]) if lines else []
    return []


def _iteration(line: str, columns: Sequence[str]) -> int | None:
    """The row's, None where the line is no row."""
    with contextlib.suppress(ValueError):
        iteration = parse_row(columns, line)["iteration"]
        return int(iteration) if iteration.is_integer() else None
    return None


def _longest_rising(rows: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """As many of the rows as can be kept with iterations that rise: what was changed or written twice drops out."""
    ends: list[int] = []
    """The smallest iteration that a rising sequence of each length ends with."""
    lengths = []
    for iteration, _ in rows:
        length = bisect.bisect_left(ends, iteration)
        ends[length : length + 1] = [iteration]
        lengths.append(length)
    kept: list[tuple[int, str]] = []
    wanted = len(ends) - 1
    for row, length in zip(reversed(rows), reversed(lengths), strict=True):
        if length == wanted and (not kept or row[0] < kept[-1][0]):
            kept.append(row)
            wanted -= 1
    return kept[::-1]


def _gaps(iterations: Sequence[int]) -> list[str]:
    """What is missing between them, in words."""
    bounds = [(first + 1, second - 1) for first, second in pairwise(iterations) if second - first > 1]
    return [str(first) if first == last else f"{first} to {last}" for first, last in bounds]
