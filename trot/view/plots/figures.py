"""The figures of `trot plot`, drawn with Matplotlib from the numbers of trot.view.plots.curves.

Figures are made without Matplotlib's global state, so that no display and no backend is asked for.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Literal

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray
from PIL import Image

from trot.learn.algorithms import ALGORITHMS
from trot.learn.gradient_health import STEEP
from trot.view.plots.curves import Axis, Curve, GroupKey, LoadedRun, Timing

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, which colour-blind readers can tell apart; without yellow, which is faint on white."""
DASHES = ("-", "--", "-.", ":", (0, (8, 2)), (0, (4, 1, 1, 1, 1, 1)), (0, (2, 1)), (0, (8, 2, 2, 2)))
"""So that lines differ in black and white, too. Their number shares no factor with that of the colours."""

EXTENSIONS: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""What a figure can be written as. Without a date the same runs give the same file."""

VERY_UNEQUAL = 10
"""How many times as far one curve must go as another for a logarithmic axis."""

LETTER_WIDTH, LEGEND_HANDLE_WIDTH, LEGEND_LINE_HEIGHT = 0.068, 0.5, 0.18
"""Inches, about, in the legend's font."""

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.xmargin": 0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "legend.handlelength": 2.4,
    "figure.constrained_layout.w_pad": 0.08,
    "savefig.dpi": 222,
    # Random names of SVG elements would make two files of the same figure differ.
    "svg.hashsalt": "trot",
    # Journals refuse the other kind of font.
    "pdf.fonttype": 42,
}


@matplotlib.rc_context(STYLE)
def draw_curves(curves: Mapping[Axis, Mapping[str, Sequence[Curve]]], by: GroupKey) -> Figure:
    """One row of panels per task, one column per axis; for each axis what learning_curves() made."""
    every = [curve for of_axis in curves.values() for of_task in of_axis.values() for curve in of_task]
    slots = style_slots((curve.group for curve in every), by)
    labels = {group: _curve_label(group, [curve for curve in every if curve.group == group], by) for group in slots}
    tasks = list(next(iter(curves.values())))
    figure, panels = _panels(
        len(tasks), len(curves), width=7.2 if len(curves) > 1 else 4.5, row_height=1.6, share_y="row"
    )
    for column, (axis, of_axis) in enumerate(curves.items()):
        scale, label = _axis_scale(axis, max(curve.longest for of_task in of_axis.values() for curve in of_task))
        logarithmic = _very_unequal(of_axis)
        for panel, task in zip(panels[:, column], tasks, strict=True):
            for curve in of_axis[task]:
                x, style = curve.x / scale, line_style(slots[curve.group])
                panel.plot(x, curve.mean, **style, marker="." if len(x) == 1 else None)
                if curve.deviation is not None:
                    below, above = curve.mean - curve.deviation, curve.mean + curve.deviation
                    panel.fill_between(x, below, above, color=style["color"], alpha=0.22, linewidth=0)
            if logarithmic:
                panel.set_xscale("log")
            else:
                panel.set_xlim(left=0)
        panels[-1, column].set_xlabel(label)
    for row, task in zip(panels, tasks, strict=True):
        row[0].set_ylabel("Episode return")
        row[0].set_title(task_heading(task), loc="left", fontweight="bold")
    figure.align_ylabels(panels[:, 0])
    banded = any(curve.deviation is not None for curve in every)
    _add_legend(figure, slots, labels, "Mean over runs, shaded: ± one standard deviation" if banded else None)
    return figure


@matplotlib.rc_context(STYLE)
def draw_health(runs: Sequence[LoadedRun]) -> Figure:
    """One row of panels per run: gradient norm, adjoint, shares of steep worlds and of saturated actions, faults."""
    figure, panels = _panels(len(runs), 5, width=13.5, row_height=1.9)
    for run, (norm, adjoint, steep, saturated, faults) in zip(runs, panels, strict=True):
        _draw_norm(norm, run)
        _draw_adjoint(adjoint, run)
        iteration = run.columns["iteration"]
        _draw_share(steep, run, "steep_worlds", "Steep worlds (%)")
        _draw_share(saturated, run, "saturated", "Saturated actions (%)")
        faults.set_ylabel("Faults so far")
        faults.plot(iteration, run.columns["faults"], color=COLOURS[0], drawstyle="steps-post")
        faults.set_ylim(0, max(4.0, 1.1 * float(run.columns["faults"].max())))
    for panel in panels[-1]:
        panel.set_xlabel("Iteration")
    drawn = [panel.get_legend_handles_labels() for panel in panels[:, 1]]
    handles, labels = max(drawn, key=lambda legend: len(legend[0]))
    if handles:
        title = "Adjoint: of the window's first step, median over its steps, of its last step"
        figure.legend(handles, labels, title=title, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _draw_share(panel: Any, run: LoadedRun, column: str, label: str) -> None:
    panel.set_ylabel(label)
    if column in run.columns:
        panel.plot(run.columns["iteration"], 100 * run.columns[column], color=COLOURS[0], linewidth=0.8)
    else:
        _note_absence(panel, run)
    panel.set_ylim(0, 100)


def _draw_norm(panel: Any, run: LoadedRun) -> None:
    panel.set_ylabel("Gradient norm\nbefore clipping")
    note = ""
    if "gradient_norm" in run.columns:
        iteration, norm = run.columns["iteration"], run.columns["gradient_norm"]
        panel.plot(iteration, norm, color=COLOURS[0], linewidth=0.8)
        finite = np.isfinite(norm)
        # Matplotlib warns of a logarithmic axis with nothing on it, as in a run that failed at once.
        panel.set_yscale("log" if np.any(norm[finite] > 0) else "linear")
        # No line shows a number that is not finite, and it is what one looks for.
        note = "" if finite.all() else f": not finite in iteration {iteration[~finite][0]:,.0f}"
    else:
        _note_absence(panel, run)
    panel.set_title(run.name + note, loc="left", fontweight="bold")


def _draw_adjoint(panel: Any, run: LoadedRun) -> None:
    panel.set_ylabel("Adjoint norm")
    if not {"adjoint_first", "adjoint_median", "adjoint_last"} <= run.columns.keys():
        _note_absence(panel, run)
        return
    for slot, step in enumerate(("first", "median", "last")):
        adjoint = run.columns[f"adjoint_{step}"]
        panel.plot(run.columns["iteration"], adjoint, color=COLOURS[slot], linewidth=0.7, label=step)
    panel.axhline(STEEP, color="black", linestyle="--", linewidth=1, label="steep from here")
    panel.set_yscale("log")


def _note_absence(panel: Any, run: LoadedRun) -> None:
    text = f"{run.label} does not measure this"
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", color="#777777")


@matplotlib.rc_context(STYLE)
def draw_timing(timings: Mapping[str, Timing]) -> Figure:
    """Milliseconds per iteration and steps per second, one line per run; the legend has each run's medians."""
    slots = style_slots(timings, "name")
    figure, panels = _panels(1, 2, width=7.2, row_height=2.4)
    for name, run in timings.items():
        for panel, values in zip(panels[0], (run.milliseconds, run.steps_per_second), strict=True):
            panel.plot(run.iteration, values, **line_style(slots[name]), marker="." if len(values) == 1 else None)
    for panel, label in zip(panels[0], ("Time per iteration (ms)", "Steps per second"), strict=True):
        panel.set(xlabel="Iteration", ylabel=label, xlim=(0, None), ylim=(0, None))
    medians = {name: (run.overall_milliseconds, run.overall_steps_per_second) for name, run in timings.items()}
    labels = {name: f"{name}: {time:,.3g} ms, {speed:,.0f}/s" for name, (time, speed) in medians.items()}
    _add_legend(figure, slots, labels, "Medians over the run: time per iteration, steps per second")
    return figure


def style_slots(groups: Iterable[str], by: GroupKey) -> dict[str, int]:
    """The number of each group's style: an algorithm has the same in every figure, other groups go by their order."""
    slots: dict[str, int] = {}
    for group in dict.fromkeys(groups):
        choices = list(range(len(COLOURS) * len(DASHES)))
        if by == "algo" and group in ALGORITHMS:
            choices = [list(ALGORITHMS).index(group)]
        elif by == "algo":
            # The name of an algorithm that is not ours chooses among the next styles, whatever else is drawn.
            others = choices[len(ALGORITHMS) : len(ALGORITHMS) + len(COLOURS)]
            turn = zlib.crc32(group.encode()) % len(others)
            choices = others[turn:] + others[:turn] + choices[len(ALGORITHMS) + len(COLOURS) :]
        slots[group] = next((slot for slot in choices if slot not in slots.values()), choices[-1])
    return slots


def line_style(slot: int) -> dict[str, Any]:
    """Colour and dashes; both differ from slot to slot."""
    return {"color": COLOURS[slot % len(COLOURS)], "linestyle": DASHES[slot % len(DASHES)]}


@matplotlib.rc_context(STYLE)
def write_figure(figure: Figure, file: BinaryIO, extension: str) -> None:
    """Write it as one of EXTENSIONS."""
    if extension != ".png":
        figure.savefig(file, format=extension.removeprefix("."), metadata=EXTENSIONS[extension])
        return
    pixels = io.BytesIO()
    figure.savefig(pixels, format="png")
    with Image.open(pixels) as image:
        # A palette: lines on white have few colours, and the file is less than half as large.
        palette = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        palette.save(file, format="PNG", optimize=True, dpi=image.info["dpi"])


def _panels(
    rows: int, columns: int, width: float, row_height: float, share_y: Literal["row", "none"] = "none"
) -> tuple[Figure, NDArray[Any]]:
    """An array of panels, all with thousands separators."""
    figure = Figure(figsize=(width, 0.25 + rows * row_height), layout="constrained")
    panels: NDArray[Any] = figure.subplots(rows, columns, squeeze=False, sharey=share_y)
    for panel in panels.flat:
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    return figure, panels


def _very_unequal(curves: Mapping[str, Sequence[Curve]]) -> bool:
    """Whether a curve of a task would vanish at the left edge beside another: then the axis is logarithmic."""
    lengths = [[curve.longest for curve in of_task] for of_task in curves.values()]
    begins = [curve.x[0] for of_task in curves.values() for curve in of_task]
    return min(begins) > 0 and any(max(of_task) > VERY_UNEQUAL * min(of_task) for of_task in lengths)


def _axis_scale(axis: Axis, longest: float) -> tuple[float, str]:
    """What to divide by, and the label with the unit."""
    if axis == "steps":
        return 1.0, "Samples (environment steps)"
    scale, unit = (1.0, "s") if longest <= 600 else (60.0, "min") if longest <= 3 * 3600 else (3600.0, "h")
    return scale, f"Wall clock ({unit})"


def task_heading(task: str) -> str:
    """As a panel's title."""
    # A task of one's own is named file.py:Class.
    title = task.rpartition(":")[2].replace("_", " ")
    return title[:1].upper() + title[1:]


def _curve_label(group: str, curves: Sequence[Curve], by: GroupKey) -> str:
    names = {"algo": curves[0].algo_label, "task": task_heading(group), "seed": f"Seed {group}"}
    name = names.get(by, group)
    noun = "seed" if all(curve.num_runs == curve.num_seeds for curve in curves) else "run"
    fewest, most = min(curve.num_runs for curve in curves), max(curve.num_runs for curve in curves)
    count = f"{most}" if fewest == most else f"{fewest} to {most}"
    return name if by == "name" and most == 1 else f"{name} ({count} {noun}{'' if most == 1 else 's'})"


def _add_legend(figure: Figure, slots: Mapping[str, int], labels: Mapping[str, str], title: str | None) -> None:
    """Above all panels, with room of its own: it does not squeeze them."""
    handles = [Line2D([], [], **line_style(slot), label=labels[group]) for group, slot in slots.items()]
    widest = LEGEND_HANDLE_WIDTH + LETTER_WIDTH * max(map(len, labels.values()))
    columns = min(len(handles), max(1, int(figure.get_figwidth() / widest)))
    lines = -(-len(handles) // columns) + (title is not None)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE_HEIGHT * lines)
    figure.legend(handles=handles, title=title, loc="outside upper center", ncols=columns, frameon=False)
