"""What trot promises of its speed, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.places import CUDA_GRAPH, ONE_CORE
from bench.report import Report, markdown_table
from bench.robots import ANT, HUMANOID, ROBOTS

H200_MILLISECONDS = {HUMANOID.name: (25.0, 35.0), ANT.name: (6.0, 8.0)}
"""Forward and backward at 64 worlds."""


@dataclass(frozen=True)
class Requirement:
    """One promise, the figures it is held against, and whether it is kept."""

    what: str
    need: str
    measured: str
    ok: bool


def requirements(report: Report) -> list[Requirement]:
    """Those that this run measured."""
    return [*_one_core(report), *_h200(report), *_starts(report), *_finite(report)]


def requirement_table(rows: list[Requirement]) -> str:
    """Need, measured, ok."""
    return markdown_table(
        ["64 worlds, one window", "need", "measured", "ok"],
        [[row.what, row.need, row.measured, "yes" if row.ok else "NO"] for row in rows],
    )


def _one_core(report: Report) -> Iterator[Requirement]:
    for t in report.prototype:
        if t.place == ONE_CORE:
            _, kept, backward = t.ratios
            what = f"{t.robot}, one core: forward (kept) / backward, times the prototype's"
            yield Requirement(what, "≤ 1.3 / 1.3", f"{kept:.2f} / {backward:.2f}", max(kept, backward) <= 1.3)
    for rate in report.mujoco:
        ours = report.timing(rate.robot, ONE_CORE)
        if ours is not None:
            ratio = ours.substeps_per_second / rate.steps_per_second
            what = f"{rate.robot}, one core: physics steps per second, times mj_step's"
            yield Requirement(what, "≥ 20", f"{ratio:.1f}", ratio >= 20)
    for robot in ROBOTS:
        for place in (ONE_CORE, CUDA_GRAPH):
            ours = report.timing(robot.name, place)
            if ours is not None:
                ratio = ours.backward_ms / ours.kept_ms
                what = f"{robot.name}, {place}: backward, times forward (kept)"
                yield Requirement(what, "≤ 1.5", f"{ratio:.2f}", ratio <= 1.5)


def _h200(report: Report) -> Iterator[Requirement]:
    # These are promised for one kind of GPU; on another they would say nothing.
    if report.gpu is None or "H200" not in report.gpu:
        return
    for robot in ROBOTS:
        few, many = report.timing(robot.name, CUDA_GRAPH), report.timing(robot.name, CUDA_GRAPH, 1024)
        if few is not None and robot.name in H200_MILLISECONDS:
            forward, backward = H200_MILLISECONDS[robot.name]
            ok = few.kept_ms <= forward and few.backward_ms <= backward
            what = f"{robot.name}, H200: forward (kept) / backward, ms"
            yield Requirement(
                what, f"≤ {forward:.0f} / {backward:.0f}", f"{few.kept_ms:.1f} / {few.backward_ms:.1f}", ok
            )
        if few is not None and many is not None:
            ratio = (many.kept_ms + many.backward_ms) / (few.kept_ms + few.backward_ms)
            what = f"{robot.name}, H200: 1024 worlds, times the time of 64"
            yield Requirement(what, "≤ 1.3", f"{ratio:.2f}", ratio <= 1.3)


def _starts(report: Report) -> Iterator[Requirement]:
    for s in report.starts:
        build, cached = s.first_build_seconds, s.cached_start_seconds
        yield Requirement(f"{s.robot}, {s.place}: first build, s", "≤ 10", f"{build:.1f}", build <= 10)
        yield Requirement(f"{s.robot}, {s.place}: cached start, s", "≤ 1", f"{cached:.2f}", cached <= 1)


def _finite(report: Report) -> Iterator[Requirement]:
    if report.timings:
        finite = sum(t.finite_worlds for t in report.timings)
        worlds = sum(t.worlds for t in report.timings)
        what = "states and gradients finite, worlds of every row"
        yield Requirement(what, f"{worlds:,}", f"{finite:,}", finite == worlds)
