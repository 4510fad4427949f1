"""What a search came to: a table of all its trials, and the command that trains the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trot.atomic import replacing
from trot.compare.report import markdown
from trot.progress import short
from trot.runs.folder import RunFolder
from trot.runs.metrics_lines import table_text
from trot.tune.population import Population, Trial
from trot.tune.search import Group, group_folder

TABLE = "trials.csv"
SHOWN = 16
"""Rows of the table that is printed; the file has all."""

Cells = list[list[str]]
Entry = tuple[Group, Trial, int, float | None]
"""With its last round, counted from 0, and its score there."""


def ended_text(folder: Path, groups: Sequence[Group], populations: Mapping[str, Population]) -> str:
    """The best trials in a table, and how to go on with the best one of all."""
    entries = _ordered(groups, populations)
    group, trial, _, score = entries[0]
    path = group_folder(folder, group) / trial.name
    lines = [markdown(_cells(folder, entries[:SHOWN], short))]
    if len(entries) > SHOWN:
        lines.append(f"and {len(entries) - SHOWN} more.")
    lines.append(f"\nBest: {path}, return {short(score or 0.0)}.{_lineage(group, populations[group.name], trial)}")
    lines.append(f"Train with its settings from the beginning:\n  {group.command(trial)}")
    return "\n".join(lines)


def write_table(folder: Path, groups: Sequence[Group], populations: Mapping[str, Population]) -> Path:
    """All trials in a file, the best first."""
    path = folder / TABLE
    try:
        with replacing(path) as file:
            file.write(table_text(_cells(folder, _ordered(groups, populations), repr)).encode())
    except OSError as error:
        raise ValueError(f"cannot write '{path}': {error.strerror}") from None
    return path


def _ordered(groups: Sequence[Group], populations: Mapping[str, Population]) -> list[Entry]:
    """Those that came furthest first, and of these the ones with the highest return."""
    entries: list[Entry] = [
        (group, trial, *populations[group.name].last_score(trial))
        for group in groups
        for trial in populations[group.name].trials
    ]
    return sorted(entries, key=lambda entry: (-entry[2], float("inf") if entry[3] is None else -entry[3]))


def _cells(folder: Path, entries: Sequence[Entry], number: Callable[[float], str]) -> Cells:
    names = [one.name for one in entries[0][0].ranges]
    head = ["trial", "from", "rounds", *names, "return", "best return"]
    rows = []
    for group, trial, last_round, score in entries:
        root = group_folder(folder, group)
        best = RunFolder.open(root / trial.name).best_return()
        begun = trial.first_round + 1
        rows.append(
            [
                str((root / trial.name).relative_to(folder)),
                _origin(group, trial),
                f"{begun}" if last_round + 1 == begun else f"{begun} to {last_round + 1}",
                *(f"{trial.values[name]:.10g}" for name in names),
                "none" if score is None else number(score),
                "none" if best is None else number(best),
            ]
        )
    return [head, *rows]


def _origin(group: Group, trial: Trial) -> str:
    if trial.parent is not None:
        return f"trial-{trial.parent:02d}"
    return "preset" if trial.values == group.present else ""


def _lineage(group: Group, population: Population, trial: Trial) -> str:
    """What it learned by before its own settings, where it took over from others."""
    told = []
    while trial.parent is not None:
        begun, trial = trial.first_round * group.iterations, population.trials[trial.parent]
        values = ", ".join(f"{name} {value:g}" for name, value in trial.values.items())
        told.append(f"up to iteration {begun} by those of {trial.name}: {values}")
    return f" It learned {'; and before, '.join(told)}." if told else ""
