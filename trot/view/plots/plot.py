"""`trot plot`: learning curves, gradient health and speed of runs, as figures for papers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import tyro

from trot.atomic import replacing
from trot.command_line import parse
from trot.view.plots.curves import (
    CURVE_COLUMNS,
    HEALTH_COLUMNS,
    HEALTH_COLUMNS_OF_SOME,
    TIMING_COLUMNS,
    Axis,
    Curve,
    GroupKey,
    LoadedRun,
    NoCommonStretchError,
    Timing,
    learning_curves,
    load_runs,
    timing,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES: dict[str, tuple[Axis, ...]] = {"steps": ("steps",), "time": ("seconds",), "both": ("steps", "seconds")}


@dataclass
class PlotSettings:
    """What to draw, of which runs, and where to."""

    runs: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...", help_behavior_hint="(required)")
    ]
    """Run folders, or folders that hold some. Tasks are drawn in this order."""
    by: Annotated[str, tyro.conf.arg(metavar="{algo,label,task,seed,name}")] = "algo"
    """What the runs of one curve have in common; label is the algorithm's in papers, name the run folder's."""
    x: Annotated[str, tyro.conf.arg(metavar="{steps,time,both}")] = "both"
    """Return against samples, against wall clock, or both side by side."""
    health: tyro.conf.FlagCreatePairsOff[bool] = False
    """Instead of curves, the health of every run's gradient: norm, adjoint, steep worlds, faults."""
    timing: tyro.conf.FlagCreatePairsOff[bool] = False
    """Instead of curves, the speed of every run: milliseconds per iteration, steps per second."""
    out: Path | None = None
    """A .png, .svg or .pdf file; curves.png, health.png or timing.png unless given."""


def plot_command(arguments: list[str]) -> int:
    """Draw learning curves: mean and standard deviation over seeds, one row of panels per task."""
    settings = parse(PlotSettings, "trot plot", plot_command.__doc__, arguments)
    if not has_matplotlib("trot plot needs"):
        return 2
    from trot.view.plots.figures import EXTENSIONS

    if settings.health and settings.timing:
        raise ValueError("--health and --timing are two figures: ask for one at a time")
    by = _group_key(settings.by)
    if settings.x not in AXES:
        raise ValueError(f"--x takes {', '.join(AXES)}, not '{settings.x}'")
    out = settings.out or Path("health.png" if settings.health else "timing.png" if settings.timing else "curves.png")
    if out.suffix.lower() not in EXTENSIONS:
        raise ValueError(f"--out takes a file that ends in {', '.join(EXTENSIONS)}, not '{out}'")
    save_figure(_figure(settings, by), out)
    print(out)
    return 0


def has_matplotlib(who_needs: str) -> bool:
    """Whether there is one; where not, stderr says who needs it and how to get it."""
    try:
        # An extra; and heavy, so that help does not wait for it.
        importlib.import_module("matplotlib")
    except ImportError as error:
        print(f'{who_needs} Matplotlib: pip install "trot[plot]" ({error})', file=sys.stderr)
        return False
    return True


def save_figure(figure: Figure, out: Path) -> None:
    """Write it as what the file's name ends in, one of EXTENSIONS."""
    from trot.view.plots.figures import write_figure

    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as file:
            write_figure(figure, file, out.suffix.lower())
    except OSError as error:
        raise ValueError(f"cannot write '{out}': {error.strerror}") from None


def _group_key(by: str) -> GroupKey:
    # Left to tyro, a misspelt key would take a box of six lines to say.
    keys: tuple[GroupKey, ...] = get_args(GroupKey)
    for key in keys:
        if key == by:
            return key
    raise ValueError(f"--by takes {', '.join(keys)}, not '{by}'")


def _figure(settings: PlotSettings, by: GroupKey) -> Figure:
    from trot.view.plots.figures import draw_health, draw_timing

    if settings.health:
        return draw_health(_with_rows(load_runs(settings.runs, HEALTH_COLUMNS, HEALTH_COLUMNS_OF_SOME)))
    if settings.timing:
        return draw_timing(_timings(load_runs(settings.runs, TIMING_COLUMNS)))
    return curves_figure(with_episodes(load_runs(settings.runs, CURVE_COLUMNS)), by, AXES[settings.x])


def curves_figure(runs: Sequence[LoadedRun], by: GroupKey, axes: Sequence[Axis]) -> Figure:
    """Learning curves of runs that have finished an episode each.

    An axis on which runs of one mean have no stretch in common is left out, and stderr says so: the first episodes of
    very short runs end at the same step, and hardly ever in the same second.
    """
    from trot.view.plots.figures import draw_curves

    curves: dict[Axis, dict[str, list[Curve]]] = {}
    gaps: dict[Axis, NoCommonStretchError] = {}
    for axis in axes:
        try:
            curves[axis] = learning_curves(runs, by, axis)
        except NoCommonStretchError as gap:
            gaps[axis] = gap
    if not curves:
        raise next(iter(gaps.values()))
    for axis, reason in gaps.items():
        print(f"no curves over {axis}: {reason}", file=sys.stderr)
    _note_shortened(next(iter(curves.values())))
    return draw_curves(curves, by)


def with_episodes(runs: Sequence[LoadedRun]) -> list[LoadedRun]:
    """Those of the runs that have finished an episode; stderr names the others."""
    return _kept(runs, [run.has_finished_episode for run in runs], "no finished episode")


def _with_rows(runs: Sequence[LoadedRun]) -> list[LoadedRun]:
    return _kept(runs, [run.columns["iteration"].size > 0 for run in runs], "no finished iteration")


def _timings(runs: Sequence[LoadedRun]) -> dict[str, Timing]:
    timings = [timing(run) for run in runs]
    kept = _kept(runs, [found is not None for found in timings], "too few iterations to tell the speed")
    names = [run.name for run in kept]
    # Two folders may hold runs of the same name.
    labels = [run.name if names.count(run.name) == 1 else str(run.folder) for run in kept]
    return dict(zip(labels, [found for found in timings if found is not None], strict=True))


def _kept(runs: Sequence[LoadedRun], usable: Sequence[bool], lack: str) -> list[LoadedRun]:
    """The usable runs; the others are named, so that no one takes a mean for one over more seeds than it is."""
    if not any(usable):
        others = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        raise ValueError(f"{lack} in any run: '{runs[0].folder}'{others}")
    for run, use in zip(runs, usable, strict=True):
        if not use:
            print(f"left out: '{run.folder}', {lack}", file=sys.stderr)
    return [run for run, use in zip(runs, usable, strict=True) if use]


def _note_shortened(curves: Mapping[str, Sequence[Curve]]) -> None:
    for task, of_task in curves.items():
        for curve in of_task:
            if curve.x[-1] < 0.9 * curve.longest:
                share = curve.x[-1] / curve.longest
                note = f"{task}, {curve.group}: drawn up to {share:.0%} of the longest run, where the shortest ends"
                print(note, file=sys.stderr)
