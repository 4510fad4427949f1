"""Figures of simulators side by side, and the Markdown tables they are printed in."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from bench.peer_list import PEERS, TROT
from bench.report import markdown_table
from bench.robots import CONTROL_STEPS

OFF = 0.15
"""m from where MuJoCo has the robot: the ground does not hold it, or throws it. An Ant sunk in Brax is 0.16 low."""


@dataclass(frozen=True)
class Measured:
    """One simulator with one robot, so many worlds and substeps; what it did not come to is None."""

    peer: str
    robot: str
    worlds: int
    substeps: int
    version: str = ""
    settings: str = ""
    forward_ms: float | None = None
    forward_core_ms: float | None = None
    """Of all cores together."""
    gradient_ms: float | None = None
    """Forward and backward."""
    gradient_core_ms: float | None = None
    finite_worlds: int | None = None
    gradient_finite_worlds: int | None = None
    height: float | None = None
    """Of the root at the end, the median of finite worlds, m as joint_q counts it."""
    missing: tuple[str, ...] = ()
    """Modules that are not installed."""
    failure: str = ""
    """Why it ended before all was measured."""

    @property
    def case(self) -> str:
        return f"{self.peer}, {self.worlds:,} worlds, {self.substeps} substeps"


@dataclass(frozen=True)
class Checked:
    """A gradient beside differences."""

    peer: str
    robot: str
    settings: str = ""
    worlds: int = 0
    finite_worlds: int = 0
    smooth_worlds: int = 0
    """Whose differences agree among themselves, so that they tell a derivative."""
    median_error: float | None = None
    worst_error: float | None = None
    missing: tuple[str, ...] = ()
    failure: str = ""


def settings_table(measured: Sequence[Measured]) -> str:
    """What each was set to; the same for all its world counts but for the room it made for contacts."""
    seen = {one.peer: one for one in reversed(measured) if one.settings}
    rows = [[one.peer, one.version, one.settings] for one in reversed(seen.values())]
    return markdown_table(["peer", "version", "set to"], rows)


def speed_table(measured: Sequence[Measured], trot: Sequence[Measured], per_core: bool) -> str:
    """How many times as fast as each trot is, in control steps: by the clock, or by what both take of the cores."""
    head = ["peer", "worlds", "substeps", "forward ms", "control steps/s", "trot is faster by"]
    head += ["with gradient ms", "control steps/s", "trot is faster by", "root at m"]
    if per_core:
        head[4:4], head[8:8] = ["of a core"], ["of a core"]
    rows = []
    for one in measured:
        if one.forward_ms is None:
            continue
        ours = next((own for own in trot if own.peer == TROT and own.worlds == one.worlds), None)
        cells = [one.peer, f"{one.worlds:,}", str(one.substeps)]
        for kind in ("forward", "gradient"):
            key = f"{kind}_core_ms" if per_core else f"{kind}_ms"
            wall, core = getattr(one, f"{kind}_ms"), getattr(one, f"{kind}_core_ms")
            cells += [_ms(wall), *([_ms(core)] if per_core else []), _count(steps_per_second(one.worlds, wall))]
            cells.append("" if ours is None or one.peer == TROT else _ratio(getattr(one, key), getattr(ours, key)))
        rows.append([*cells, "" if one.height is None else f"{one.height:.2f}"])
    return markdown_table(head, rows)


def check_table(checked: Sequence[Checked]) -> str:
    """Of those that have a gradient."""
    head = ["robot", "peer", "set to", "finite", "differences agree", "median error", "worst error"]
    rows = []
    for one in checked:
        if one.worlds:
            errors = ["" if error is None else f"{error:.1e}" for error in (one.median_error, one.worst_error)]
            shares = [f"{count} of {one.worlds}" for count in (one.finite_worlds, one.smooth_worlds)]
            rows.append([one.robot, one.peer, one.settings, *shares, *errors])
    return markdown_table(head, rows)


def notes(measured: Sequence[Measured | Checked], mujoco_height: float | None = None) -> list[str]:
    """What a reader of the table must know: who is missing, who ended early, who is not to be trusted."""
    lines: dict[str, None] = {}
    for one in measured:
        if one.missing:
            lines[f"{one.peer}: not installed: pip install {shlex.join(PEERS[one.peer].packages)}"] = None
            continue
        case = one.case if isinstance(one, Measured) else f"{one.peer}, {one.robot}, its gradient"
        found = flaws(one, mujoco_height) if isinstance(one, Measured) else []
        for what in [*([one.failure] if one.failure else []), *found]:
            lines[f"{case}: {what}"] = None
    return [f"- {line}" for line in lines]


def flaws(one: Measured, mujoco_height: float | None) -> list[str]:
    """Why a row is not to be trusted."""
    found = []
    if one.finite_worlds is not None and one.finite_worlds < one.worlds:
        found.append(f"states are NOT FINITE in {one.worlds - one.finite_worlds:,} worlds")
    if one.gradient_finite_worlds is not None and one.gradient_finite_worlds < one.worlds:
        found.append(f"gradients are NOT FINITE in {one.worlds - one.gradient_finite_worlds:,} worlds")
    if one.height is not None and mujoco_height is not None and abs(one.height - mujoco_height) > OFF:
        does = "does NOT HOLD" if one.height < mujoco_height else "THROWS"
        found.append(f"the ground {does} it: at {one.height:.2f} m, where MuJoCo has it at {mujoco_height:.2f}")
    return found


def steps_per_second(worlds: int, window_ms: float | None) -> float | None:
    """Control steps of all worlds."""
    return None if window_ms is None else worlds * CONTROL_STEPS / window_ms * 1e3


def _ratio(theirs: float | None, ours: float | None) -> str:
    return "" if theirs is None or ours is None else f"{theirs / ours:.3g}"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
