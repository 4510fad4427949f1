"""All figures of one run, and the Markdown tables they are printed in."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field

import mujoco
import torch
import warp as wp

from bench.mujoco_rate import MujocoRate
from bench.places import CUDA, CUDA_GRAPH, ONE_CORE
from bench.robots import CONTROL_STEPS
from bench.stages import KeptMemory, StageCycles
from bench.start import StartTime
from bench.window import Timing
from trot.machine import processor_name

REFERENCE_WORLDS = 64
"""The world count that comparisons are stated for."""
MANY_WORLDS = 1024


@dataclass
class Report:
    """What was measured; a list stays empty where this machine or the settings left it out."""

    machine: str
    gpu: str | None
    timings: list[Timing] = field(default_factory=list)
    mujoco: list[MujocoRate] = field(default_factory=list)
    stages: list[StageCycles] = field(default_factory=list)
    memory: list[KeptMemory] = field(default_factory=list)
    starts: list[StartTime] = field(default_factory=list)

    def timing(self, robot: str, place: str, worlds: int = REFERENCE_WORLDS) -> Timing | None:
        """The timing of a robot at a place, if it was measured."""
        wanted = (robot, place, worlds)
        return next((t for t in self.timings if (t.robot, t.place, t.worlds) == wanted), None)


def describe_machine(gpu: str | None) -> str:
    """Processor, GPU and versions in one line."""
    versions = f"torch {torch.__version__}, warp {wp.__version__}, mujoco {mujoco.__version__}"
    parts = [f"{processor_name()}, {os.cpu_count()} cores", gpu, f"Python {platform.python_version()}", versions]
    return "; ".join(part for part in parts if part is not None)


def gpu_name() -> str | None:
    """The name of the first GPU, None without one."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """Columns padded so that the table reads as well in a terminal; numbers lean right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    right = [i > 0 and all(row[i][:1].isdigit() or row[i] == "" for row in rows) for i in range(len(head))]

    def line(cells: list[str]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True)]
        return f"| {' | '.join(padded)} |"

    rule = [("-" * (w - 1) + ":") if r else "-" * w for w, r in zip(widths, right, strict=True)]
    return "\n".join([line(head), line(rule), *(line(row) for row in rows)])


def timing_table(timings: list[Timing]) -> str:
    """Every window that was measured."""
    head = ["robot", "where", "worlds", "forward ms", "kept ms", "backward ms", "substeps/s", "with gradient"]
    rows = [
        [
            t.robot, t.place, str(t.worlds), _ms(t.forward_ms), _ms(t.kept_ms), _ms(t.backward_ms),
            _count(t.substeps_per_second), _count(t.gradient_substeps_per_second),
        ]
        for t in timings
    ]  # fmt: skip
    note = (
        f"One window of {CONTROL_STEPS} control steps. Forward: without gradient. Kept: forward, keeping the\n"
        "trajectory for the backward pass. Substeps/s: physics substeps of all worlds, forward without\n"
        "gradient; with gradient: forward (kept) and backward."
    )
    return f"{note}\n\n{markdown_table(head, rows)}\n\n{_finite(timings)}"


def mujoco_table(report: Report) -> str:
    """mj_step on one core against ours."""
    rows = []
    for rate in report.mujoco:
        peer = rate.steps_per_second
        measured = [report.timing(rate.robot, place) for place in (ONE_CORE, CUDA, CUDA_GRAPH)]
        compared = [
            [ours.place, _count(ours.substeps_per_second), f"{ours.substeps_per_second / peer:.1f}"]
            for ours in measured
            if ours is not None
        ]
        rows += [[rate.robot, _count(peer), *cells] for cells in compared or [["", "", ""]]]
    head = ["robot", "mj_step steps/s, one core", "ours", f"substeps/s, {REFERENCE_WORLDS} worlds", "ratio"]
    return markdown_table(head, rows)


def ratio_table(report: Report) -> str:
    """What the backward pass costs beside the forward one, and many worlds beside few."""
    rows = []
    for few in (t for t in report.timings if t.worlds == REFERENCE_WORLDS):
        many = report.timing(few.robot, few.place, MANY_WORLDS)
        more = "" if many is None else f"{many.gradient_ms / few.gradient_ms:.2f}"
        rows.append([few.robot, few.place, f"{few.backward_ms / few.kept_ms:.2f}", more])
    head = [
        "robot", "where", f"backward / kept, {REFERENCE_WORLDS} worlds",
        f"{MANY_WORLDS} worlds / {REFERENCE_WORLDS}, kept + backward",
    ]  # fmt: skip
    return markdown_table(head, rows)


def stage_table(stages: list[StageCycles]) -> str:
    """Stages down, robots across, for one place."""
    head = ["stage", *(name for s in stages for name in (f"{s.robot} cycles", "%"))]
    rows: list[list[str]] = []
    for direction in ("forward", "backward"):
        columns: list[dict[str, float]] = [getattr(s, direction) for s in stages]
        totals = [sum(column.values()) for column in columns]
        for name in dict.fromkeys(name for column in columns for name in column):
            row = [name.lower().replace("_", " ")]
            for column, total in zip(columns, totals, strict=True):
                row += [f"{column[name]:.0f}", f"{100 * column[name] / total:.0f}"] if name in column else ["", ""]
            rows.append(row)
        rows.append([f"{direction}, all", *(cell for total in totals for cell in (f"{total:.0f}", "100"))])
    block = stages[0].worlds_per_block
    note = f"{stages[0].place}: cycles per substep and block ({block} {'world' if block == 1 else 'worlds'})."
    return f"{note}\n\n{markdown_table(head, rows)}"


def memory_table(memory: list[KeptMemory]) -> str:
    """Memory for the backward pass."""
    head = ["robot", "where", "kept beside the state", "numbers per substep", "bytes per world and control step"]
    return markdown_table(
        head,
        [
            [m.robot, m.place, m.beside_state, str(m.numbers_per_substep), _count(m.bytes_per_control_step)]
            for m in memory
        ],
    )


def start_table(starts: list[StartTime]) -> str:
    """Waiting for kernels."""
    head = ["robot", "where", "import s", "first build s", "cached start s"]
    seconds = [(s.import_seconds, s.first_build_seconds, s.cached_start_seconds) for s in starts]
    return markdown_table(
        head, [[s.robot, s.place, *(f"{x:.2f}" for x in times)] for s, times in zip(starts, seconds, strict=True)]
    )


def _finite(timings: list[Timing]) -> str:
    worlds, finite = sum(t.worlds for t in timings), sum(t.finite_worlds for t in timings)
    if finite == worlds:
        return "States and gradients were finite in every world of every row."
    return f"States or gradients were NOT FINITE in {worlds - finite:,} of {worlds:,} worlds, all rows together."


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"
