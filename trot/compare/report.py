"""A comparison in words and figures: tables as Markdown and CSV, and the learning curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trot.atomic import replacing
from trot.compare.levels import (
    Effort,
    Level,
    Reached,
    Spread,
    by_algorithm,
    choose_reference,
    default_levels,
    efforts,
    reached,
)
from trot.progress import short
from trot.runs.metrics_lines import table_text
from trot.view.plots.curves import LoadedRun
from trot.view.plots.plot import curves_figure, has_matplotlib, save_figure

TABLE, RETURNS, LEVELS, CURVES = "table.md", "returns.csv", "levels.csv", "curves"
EXPLANATION = (
    "Returns are means over about the last hundred finished training episodes, ± the standard deviation over seeds. "
    "Samples are environment steps; seconds are those of training."
)
NEVER = "never"

Cells = list[list[str]]


@dataclass(frozen=True)
class Report:
    """What a comparison came to."""

    title: str
    ends: list[Reached]
    reference: str
    efforts: list[Effort]
    notes: list[str]
    """What a reader must know, such as runs that are left out."""
    compared: str = "algorithm"
    """The noun for what is compared."""

    @property
    def text(self) -> str:
        """As Markdown, with columns that line up where it is printed."""
        return "\n\n".join([f"# {self.title}", EXPLANATION, *self.notes, *self.tables]) + "\n"

    @property
    def tables(self) -> list[str]:
        """How the runs ended, and what it takes to reach levels."""
        (label,) = (end.label for end in self.ends if end.algo == self.reference)
        return [
            markdown(_returns_cells(self.ends, self.compared)),
            "What it takes to reach a return for the first time, over the seeds that do; "
            f"x {label}: how many times as much.",
            markdown(_levels_cells(self.efforts, label, self.compared)),
        ]


def make_report(
    title: str,
    runs: Sequence[LoadedRun],
    thresholds: Sequence[float],
    notes: Sequence[str],
    compared: str = "algorithm",
) -> Report:
    """Of runs that have finished an episode each; without thresholds, those of default_levels()."""
    groups = by_algorithm(runs)
    reference = choose_reference(list(groups))
    ends = [reached(of_algo) for of_algo in groups.values()]
    levels = [Level(value, "given") for value in thresholds] or default_levels(ends, reference)
    return Report(title, ends, reference, efforts(groups, levels, reference), list(notes), compared)


def write_report(report: Report, runs: Sequence[LoadedRun], folder: Path) -> list[Path]:
    """The files that it has become: tables, then curves, those as PNG and SVG where there is Matplotlib."""
    tables = {RETURNS: returns_rows(report), LEVELS: levels_rows(report)}
    texts = {TABLE: report.text} | {name: table_text(rows) for name, rows in tables.items()}
    for name, text in texts.items():
        try:
            with replacing(folder / name) as file:
                file.write(text.encode())
        except OSError as error:
            raise ValueError(f"cannot write '{folder / name}': {error.strerror}") from None
    written = [folder / name for name in texts]
    if has_matplotlib("the curves need"):
        figure = curves_figure(runs, "algo", ("steps", "seconds"))
        for extension in (".png", ".svg"):
            written.append(folder / f"{CURVES}{extension}")
            save_figure(figure, written[-1])
    return written


def _returns_cells(ends: Iterable[Reached], compared: str) -> Cells:
    head = [compared, "seeds", "best return", "return at the end", "samples", "seconds"]
    return [head] + [
        [
            end.label,
            str(end.num_runs),
            shown(end.best, one_decimal),
            shown(end.final, one_decimal),
            shown(end.steps),
            shown(end.seconds),
        ]
        for end in ends
    ]


def _levels_cells(efforts: Iterable[Effort], reference: str, compared: str) -> Cells:
    head = ["return", "", compared, "seeds", "samples", f"x {reference}", "seconds", f"x {reference}"]
    return [head] + [
        [
            one_decimal(effort.level.value),
            effort.level.reason,
            effort.label,
            f"{effort.num_there} of {effort.num_runs}",
            shown(effort.steps),
            _times(effort.steps_ratio),
            shown(effort.seconds),
            _times(effort.seconds_ratio),
        ]
        for effort in efforts
    ]


def shown(spread: Spread | None, number: Callable[[float], str] = short) -> str:
    """Mean ± standard deviation; NEVER where there is none."""
    if spread is None:
        return NEVER
    return number(spread.mean) if spread.deviation is None else f"{number(spread.mean)} ± {number(spread.deviation)}"


def one_decimal(value: float) -> str:
    """As returns are shown."""
    return f"{value:.1f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3g}"


def markdown(cells: Cells) -> str:
    """A table, the head first, whose columns line up."""
    # A bar in a name would end its cell.
    cells = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *rows = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    rule = " | ".join("-" * max(width, 1) for width in widths)
    return "\n".join(f"| {line} |" for line in (head, rule, *rows))


def returns_rows(report: Report) -> Cells:
    """In full precision, the head first."""
    head = [report.compared, "seeds", *spread_columns("best_return", "final_return", "steps", "seconds")]
    return [head] + [
        [end.algo, str(end.num_runs), *spread_cells(end.best, end.final, end.steps, end.seconds)] for end in report.ends
    ]


def levels_rows(report: Report) -> Cells:
    """In full precision, the head first."""
    head = ["return", "reason", report.compared, "seeds", "seeds_there", *spread_columns("steps", "seconds")]
    rows = [
        [
            repr(effort.level.value),
            effort.level.reason,
            effort.algo,
            str(effort.num_runs),
            str(effort.num_there),
            *spread_cells(effort.steps, effort.seconds),
            *("" if ratio is None else repr(ratio) for ratio in (effort.steps_ratio, effort.seconds_ratio)),
        ]
        for effort in report.efforts
    ]
    return [[*head, "steps_ratio", "seconds_ratio"], *rows]


def spread_columns(*names: str) -> list[str]:
    """Names of the columns that spread_cells() fills."""
    return [f"{name}_{part}" for name in names for part in ("mean", "deviation")]


def spread_cells(*spreads: Spread | None) -> list[str]:
    """Means and deviations in full precision, empty where there is none."""
    pairs = [(None, None) if spread is None else (spread.mean, spread.deviation) for spread in spreads]
    return ["" if number is None else repr(number) for pair in pairs for number in pair]
