"""The time of a learning episode by its parts, and the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trot.compare.plan import task_title
from trot.compare.report import Cells

BASE_WORLDS, BASE_HORIZON = 64, 32
"""Of the paper's table; along one of the two the other is varied."""
PARTS = {"forward": "rollout", "backward": "backward", "critic": "critic", "other": "other"}
"""As the paper calls them, to the phases of SHAC."""
PAPER_GPU = "TITAN X"
PAPER_MS = {
    "cartpole": {"forward": 150.0, "backward": 230.0, "critic": 340.0},
    "ant": {"forward": 250.0, "backward": 370.0, "critic": 320.0},
    "humanoid": {"forward": 910.0, "backward": 1970.0, "critic": 320.0},
    "muscle_humanoid": {"forward": 820.0, "backward": 1660.0, "critic": 330.0},
}
"""Table 12 of the SHAC paper."""


@dataclass(frozen=True)
class EpisodeTime:
    """One learning episode of a task: a window in every world, and what is learned from it."""

    task: str
    num_worlds: int
    horizon: int
    milliseconds: dict[str, float]
    """Of the PARTS, medians."""

    @property
    def total(self) -> float:
        return sum(self.milliseconds.values())

    @property
    def steps_per_second(self) -> float:
        return self.num_worlds * self.horizon / self.total * 1e3


def all_cells(times: Sequence[EpisodeTime]) -> Cells:
    """A table to read, the head first."""
    head = ["task", "worlds", "h", *PARTS, "sum", "steps/s"]
    return [head] + [
        [
            task_title(time.task),
            str(time.num_worlds),
            str(time.horizon),
            *(f"{time.milliseconds[part]:.1f}" for part in PARTS),
            f"{time.total:.1f}",
            f"{time.steps_per_second:,.0f}",
        ]
        for time in times
    ]


def paper_cells(times: Sequence[EpisodeTime]) -> Cells:
    """What was measured at the paper's size beside what it says, the head first."""
    told = ["forward", "backward", "critic"]
    head = [
        "task",
        *told,
        "sum",
        "backward / forward",
        *(f"paper: {part}" for part in told),
        "sum",
        "backward / forward",
    ]
    rows = []
    for time in times:
        if time.task in PAPER_MS and (time.num_worlds, time.horizon) == (BASE_WORLDS, BASE_HORIZON):
            ours, paper = time.milliseconds, PAPER_MS[time.task]
            row = [time.task, *(f"{ours[part]:.1f}" for part in told), f"{time.total:.1f}"]
            row += [f"{ours['backward'] / ours['forward']:.2f}", *(f"{paper[part]:.0f}" for part in told)]
            rows.append([*row, f"{sum(paper.values()):.0f}", f"{paper['backward'] / paper['forward']:.2f}"])
    return [head, *rows]
