"""`trot study growth`: how the gradient by the state grows backward in time, and where chaos begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import tyro

from trot.command_line import WORLDS
from trot.envs.registry import TASKS
from trot.envs.task import Task
from trot.learn.gradient_health import STEEP
from trot.progress import Progress
from trot.study.adjoint_growth import Acting, Falls, Growth, Objective, PreparedWindow, prepare
from trot.study.adjoint_growth import growth as growth
from trot.study.one_study import Study, StudySettings
from trot.study.study_folder import StudyFolder
from trot.study.subject import find_subject

LEVELS = (STEEP, 1e6)
"""Norms whose crossing is reported."""


@dataclass(frozen=True, kw_only=True)
class GrowthSettings(StudySettings):
    """Tasks or runs, and substep counts."""

    subjects: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TASK_OR_RUN...")] = tuple(TASKS)
    """Tasks, path/to/file.py:Class, or run folders, one panel each; all of `trot tasks` unless given."""
    substeps: tuple[int, ...] = ()
    """Physics steps per action; half as many as the task's own, as many and twice as many unless given."""
    steps: int | None = None
    """Of the window; on CUDA an episode of up to 1000, on the CPU 256 unless given."""
    num_worlds: Annotated[int | None, WORLDS] = None
    """128 on CUDA, 32 on the CPU unless given."""
    acting: Acting = "auto"
    """policy: the run's, with its noise; mean: without; chance: random actions; nothing: none. auto: policy in a run,
    chance in a task."""
    objective: Objective = "last"
    """What is differentiated: the reward of the last step, or the sum of all rewards."""
    falls: Falls = "auto"
    """end: a fall ends an episode, and the gradient with it; ignore: the robot goes on where it lies. auto: end where
    a policy acts."""
    checkpoint: str = "best"
    """Of runs."""
    seed: int = 0
    """Of starts and noise."""
    double: bool = False
    """In double precision."""

    @property
    def subject(self) -> str:
        names = [find_subject(each).name for each in self.subjects]
        return "tasks" if self.subjects == tuple(TASKS) else "-".join(dict.fromkeys(names))

    def prepare(self) -> list[PreparedWindow]:
        """A window for each subject and substep count."""
        names = [find_subject(each).name for each in self.subjects]
        if len(set(names)) < len(names):
            twice = max(names, key=names.count)
            raise ValueError(f"two of the subjects are called '{twice}': leave one out, or rename its folder")
        return [
            prepare(
                each,
                count,
                self.steps,
                self.num_worlds,
                self.acting,
                self.falls,
                self.checkpoint,
                self.device,
                self.seed,
                torch.float64 if self.double else torch.float32,
            )
            for each in self.subjects
            for count in self.substeps or _around(find_subject(each).task)
        ]


def _around(task: Task[object]) -> list[int]:
    return sorted({max(1, task.substeps // 2), task.substeps, 2 * task.substeps})


def run(settings: GrowthSettings, folder: StudyFolder) -> str:
    """Measure every case; write norms, curves, a table and a figure."""
    from trot.study.draw_growth import draw_growth

    # All before the first is measured: what is wrong with the last one is told at once.
    windows = settings.prepare()
    found: list[Growth] = []
    with Progress(len(windows)) as progress:
        for window in windows:
            progress.update(len(found), {window.name: f"{window.env.task.substeps} substeps"})
            found.append(window.measure(settings.objective))
        progress.update(len(found), {})
    folder.write_arrays("norms.npz", {f"{case.name}-{case.substeps}": case.norms for case in found})
    folder.write_table("curves.csv", _curves(found))
    folder.write_table("growth.csv", _table(found))
    folder.write_figure("growth", draw_growth(found))
    return summary(found)


def _curves(found: Sequence[Growth]) -> dict[str, list[object]]:
    """Quantiles over the worlds, step by step."""
    names = ("subject", "substeps", "steps_back", "worlds", "median", "lower_quartile", "upper_quartile", "share_90")
    columns: dict[str, list[object]] = {name: [] for name in names}
    for case in found:
        curves = [case.quantile(share) for share in (0.5, 0.25, 0.75, 0.9)]
        worlds = (~np.isnan(case.norms)).sum(axis=1)
        for back in range(case.reach + 1):
            row = (case.name, case.substeps, back, worlds[back], *(curve[back] for curve in curves))
            for name, value in zip(names, row, strict=True):
                columns[name].append(value)
    return columns


def _table(found: Sequence[Growth]) -> dict[str, list[object]]:
    columns: dict[str, list[object]] = {
        "subject": [case.name for case in found],
        "substeps": [case.substeps for case in found],
        "growth_per_second": [case.per_second for case in found],
    }
    for level in LEVELS:
        crossings = [case.first_above(level) for case in found]
        columns[f"steps_back_to_{level:.0e}"] = ["" if steps is None else steps for steps in crossings]
    columns["reach"] = [case.reach for case in found]
    columns["worlds"] = [case.norms.shape[1] for case in found]
    columns["blown_up"] = [case.blown_up for case in found]
    return columns


def summary(found: Sequence[Growth]) -> str:
    """One line per case."""
    width = max(len("subject"), *(len(case.name) for case in found)) + 2
    levels = "".join(f"{f'to {level:.0e}':>10}" for level in LEVELS)
    lines = [
        f"{'subject':<{width}}{'substeps':>8}{'per second':>12}{'farthest':>14}{levels}{'reach':>7}{'blown up':>10}"
    ]
    for case in found:
        crossings = "".join(f"{'-' if (steps := case.first_above(level)) is None else steps:>10}" for level in LEVELS)
        lines.append(
            f"{case.name:<{width}}{case.substeps:>8}{case.per_second:>12.2f}{case.farthest:>14.3g}"
            f"{crossings}{case.reach:>7}{f'{case.blown_up}/{case.norms.shape[1]}':>10}"
        )
    lines.append(
        "Growth is the slope of the logarithm of the median norm, backward; then its value at the farthest step,"
    )
    lines.append("steps backward until it exceeds a level, and the steps that half of the worlds' episodes reach back.")
    return "\n".join(lines)


GROWTH = Study(
    name="growth",
    summary="how the gradient by the state grows backward in time, by task and substeps: where chaos begins",
    settings=GrowthSettings,
    run=run,
)
