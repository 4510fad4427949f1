"""`trot study timing`: time of a learning episode, forward, backward and critic, against worlds and horizon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
import tyro

from trot.compare.plan import task_title
from trot.compare.report import markdown
from trot.envs.device import existing_device
from trot.envs.registry import make_task
from trot.learn.algorithms.shac import SHAC
from trot.learn.algorithms.shac_settings import ShacSettings
from trot.learn.iteration_time import measure_iterations
from trot.learn.train import choose_device
from trot.progress import Progress
from trot.study.episode_time import (
    BASE_HORIZON,
    BASE_WORLDS,
    PAPER_GPU,
    PAPER_MS,
    PARTS,
    EpisodeTime,
    all_cells,
    paper_cells,
)
from trot.study.one_study import Study, StudySettings
from trot.study.study_folder import StudyFolder

NAME, TABLE, DATA = "timing", "table.md", "timing.csv"
CPU_TASKS, CPU_WORLDS, CPU_HORIZONS, CPU_ITERATIONS = ("cartpole",), (16, 64, 256), (8, 32, 128), 5
GPU_WORLDS, GPU_HORIZONS, GPU_ITERATIONS = (16, 64, 256, 1024, 4096), (4, 8, 16, 32, 64, 128), 12


@dataclass(frozen=True, kw_only=True)
class TimingSettings(StudySettings):
    """What to measure. Without options it is small on the CPU, and has the paper's tasks on a GPU."""

    task: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")] = None
    """One of `trot tasks`, or path/to/file.py:Class; several are given by --tasks."""
    tasks: tuple[str, ...] = ()
    """Cartpole on the CPU, and the paper's four on a GPU, unless given."""
    worlds: tuple[int, ...] = ()
    """Numbers of worlds, at horizon 32; 16 to 256 on the CPU, and 16 to 4096 on a GPU, unless given."""
    horizons: tuple[int, ...] = ()
    """Steps of a window, in 64 worlds; 8 to 128 on the CPU, and 4 to 128 on a GPU, unless given."""
    iterations: int | None = None
    """Of which the medians are taken; 5 on the CPU and 12 on a GPU unless given."""

    @property
    def on_gpu(self) -> bool:
        return choose_device(self.device).startswith("cuda")

    @property
    def chosen_tasks(self) -> tuple[str, ...]:
        given = tuple(dict.fromkeys((*([self.task] if self.task else []), *self.tasks)))
        return given or (tuple(PAPER_MS) if self.on_gpu else CPU_TASKS)

    @property
    def subject(self) -> str:
        return "-".join(map(task_title, self.chosen_tasks))


def timing(
    task: str, worlds: Sequence[int] = (64,), horizons: Sequence[int] = (32,), **options: Any
) -> list[EpisodeTime]:  # fmt: skip
    """Measure a task against worlds, at a horizon of 32, and against horizons, in 64 worlds; see episode_times()."""
    return episode_times(task, time_points(worlds, horizons), **options)


def episode_times(
    task: str, points: Sequence[tuple[int, int]], device: str = "auto", iterations: int = GPU_ITERATIONS
) -> list[EpisodeTime]:
    """Measure a task with SHAC's tuned settings at pairs of (worlds, horizon)."""
    return [_measure(task, settings, choose_device(device), iterations) for settings in _settings(task, points)]


def time_points(worlds: Sequence[int], horizons: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of (worlds, horizon) along both axes, each once."""
    along_worlds = [(number, BASE_HORIZON) for number in (*worlds, BASE_WORLDS)]
    return sorted({*along_worlds, *((BASE_WORLDS, horizon) for horizon in horizons)})


def run_timing(settings: TimingSettings, folder: StudyFolder) -> str:
    """Tables and a figure."""
    from trot.study.draw_timing import draw_timing

    times = _measure_all(settings)
    text = "\n\n".join(_text(times, choose_device(settings.device))) + "\n"
    folder.write_text(TABLE, text)
    folder.write_table(
        DATA,
        {
            "task": [time.task for time in times],
            "worlds": [time.num_worlds for time in times],
            "horizon": [time.horizon for time in times],
            **{f"{part}_ms": [time.milliseconds[part] for time in times] for part in PARTS},
            "steps_per_second": [time.steps_per_second for time in times],
        },
    )
    folder.write_figure(NAME, draw_timing(times))
    return text


def _measure_all(settings: TimingSettings) -> list[EpisodeTime]:
    """In the order of tasks, worlds and horizons."""
    device = choose_device(settings.device)
    existing_device(device)
    if settings.iterations is not None and settings.iterations < 1:
        raise ValueError(f"--iterations must be at least 1, not {settings.iterations}")
    iterations = settings.iterations or (GPU_ITERATIONS if settings.on_gpu else CPU_ITERATIONS)
    worlds = settings.worlds or (GPU_WORLDS if settings.on_gpu else CPU_WORLDS)
    horizons = settings.horizons or (GPU_HORIZONS if settings.on_gpu else CPU_HORIZONS)
    cases = []
    for task in settings.chosen_tasks:
        make_task(task)
        cases += [(task, own) for own in _settings(task, time_points(worlds, horizons))]
    # The largest first: where there is not enough memory, it shows before time is spent on the others.
    largest_first = sorted(range(len(cases)), key=lambda index: -cases[index][1].num_worlds * cases[index][1].horizon)
    found: dict[int, EpisodeTime] = {}
    with Progress(len(cases)) as progress:
        for index in largest_first:
            task, own = cases[index]
            progress.update(len(found), {f"{task_title(task)}:": f"{own.num_worlds} x {own.horizon}"})
            found[index] = _measure(task, own, device, iterations)
        progress.update(len(found), {})
    return [found[index] for index in range(len(cases))]


def _settings(task: str, points: Sequence[tuple[int, int]]) -> list[ShacSettings]:
    tuned: ShacSettings = SHAC.paper_settings(task)
    return [replace(tuned, num_worlds=worlds, horizon=horizon) for worlds, horizon in points]


def _measure(task: str, settings: ShacSettings, device: str, iterations: int) -> EpisodeTime:
    phases = measure_iterations(SHAC, task, settings, device, iterations).phases
    parts = {part: phases[phase] for part, phase in PARTS.items()}
    return EpisodeTime(task, settings.num_worlds, settings.horizon, parts)


def _text(times: Sequence[EpisodeTime], device: str) -> list[str]:
    parts = [f"# timing: milliseconds of one learning episode, on {device}"]
    if torch.device(device).type == "cuda":
        parts.append(
            "The critic learns beside the backward pass: its column is what is left of it when that has ended."
        )
    parts.append(markdown(all_cells(times)))
    if any(time.task in PAPER_MS for time in times):
        parts.append(f"{BASE_WORLDS} worlds, {BASE_HORIZON} steps, beside the paper's Table 12, on a {PAPER_GPU}:")
        parts.append(markdown(paper_cells(times)))
    return parts


TIMING = Study(
    NAME,
    "time of a learning episode, forward, backward and critic, against worlds and horizon",
    TimingSettings,
    run_timing,
)
