"""Studies that train variants of SHAC side by side, as `trot compare` does with algorithms.

Their runs live in the study's folder. The same command goes on after an interruption, and trains only what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import tyro

from trot.compare.plan import Member, Variant, make_members, task_title
from trot.compare.report import Cells
from trot.compare.train_members import batch_notes, check_parallel, finished_runs, only_here, train_members
from trot.envs.device import existing_device
from trot.envs.registry import make_task
from trot.learn.train import choose_device
from trot.study.one_study import StudySettings
from trot.study.study_folder import StudyFolder
from trot.view.plots.curves import LoadedRun

CPU_TASKS, CPU_SEEDS, CPU_ITERATIONS = ("cartpole",), (0,), 100
PAPER_SEEDS = (0, 1, 2, 3, 4)
CURVES, TABLE = "curves", "table.md"


@dataclass(frozen=True, kw_only=True)
class TrainingStudySettings(StudySettings):
    """What is trained. Without options it is small on the CPU, and of the paper's size on a GPU."""

    paper_tasks: ClassVar[tuple[str, ...]]
    default_parallel: ClassVar[int | None] = None
    shows_time: ClassVar[bool] = False

    task: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[TASK]")] = None
    """One of `trot tasks`, or path/to/file.py:Class; several are given by --tasks."""
    tasks: tuple[str, ...] = ()
    """Cartpole on the CPU, and the paper's tasks on a GPU, unless given."""
    seeds: tuple[int, ...] = ()
    """0 on the CPU, and 0 to 4 on a GPU, unless given."""
    iterations: int | None = None
    """Of every run. Unless they or --minutes are given: 100 on the CPU, and those tuned for the task on a GPU."""
    minutes: float | None = None
    """Of training, at most, for every run; one that had fewer goes on."""
    changes: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="[VARIANT.]NAME=VALUE...")] = ()
    """Other settings of `trot train`, for all runs or for one variant's: worlds=128."""
    parallel: int | None = None
    """Runs at a time; one on the CPU and some on a GPU unless given."""
    together: Literal["auto", "yes", "no"] = "auto"
    """All seeds of a variant learn in one batch, as by `trot train --seeds`; auto: on a GPU."""
    name: str | None = None
    """Of the folder, in which the same command goes on; study and tasks without it."""

    @property
    def on_gpu(self) -> bool:
        return choose_device(self.device).startswith("cuda")

    @property
    def chosen_tasks(self) -> tuple[str, ...]:
        given = tuple(dict.fromkeys((*([self.task] if self.task else []), *self.tasks)))
        return given or (self.paper_tasks if self.on_gpu else CPU_TASKS)

    @property
    def chosen_seeds(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.seeds)) or (PAPER_SEEDS if self.on_gpu else CPU_SEEDS)

    @property
    def subject(self) -> str:
        return "-".join(map(task_title, self.chosen_tasks))

    @property
    def in_batches(self) -> bool:
        """Whether seeds learn together."""
        return self.on_gpu and not self.shows_time if self.together == "auto" else self.together == "yes"

    def iterations_of(self, task_iterations: int) -> int:
        """Of every run of a task that has so many by default."""
        if self.iterations is not None:
            return self.iterations
        return task_iterations if self.on_gpu or self.minutes is not None else CPU_ITERATIONS


def folder_to_go_on_in(study: str, settings: TrainingStudySettings) -> StudyFolder:
    """Where the study's runs lie, or are to."""
    return StudyFolder(settings.studies / (settings.name or f"{study}-{settings.subject}"))


@dataclass(frozen=True)
class Trained:
    """What a study's finished runs came to, each with what it was to be."""

    title: str
    """Of the study's table."""
    runs: list[tuple[Member, LoadedRun]]
    notes: list[str]
    """What a reader must know, such as runs that are left out."""

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(run.task for _, run in self.runs))

    def of(self, task: str) -> list[tuple[Member, LoadedRun]]:
        return [(member, run) for member, run in self.runs if run.task == task]

    @property
    def loaded(self) -> list[LoadedRun]:
        return [run for _, run in self.runs]


def train_variants(
    name: str,
    settings: TrainingStudySettings,
    folder: StudyFolder,
    variants: Callable[[str], Sequence[Variant]],
    task_iterations: Callable[[str], int],
) -> Trained:
    """Train what is not finished, and load it all; mistakes are told before anything is trained.

    Args:
        name: Of the study.
        settings: What to train.
        folder: Holds the runs; made unless it is there.
        variants: Of a task.
        task_iterations: How many all runs of a task have unless the settings say otherwise.
    """
    check_parallel(settings.parallel)
    device = choose_device(settings.device)
    existing_device(device)
    members = _members(settings, folder, device, variants, task_iterations)
    for member in members:
        member.check()
    with only_here(folder.path):
        folder.describe()
        parallel = settings.parallel or settings.default_parallel
        again = folder.command or "the same call"
        folder.failures += train_members(members, device, parallel, again, settings.in_batches)
        runs, notes = finished_runs(members, settings.minutes)
        notes += batch_notes(members, settings.in_batches)
    of_folder = {member.folder: member for member in members}
    seeds = ", ".join(map(str, settings.chosen_seeds))
    length = "" if settings.minutes is None else f", at most {settings.minutes:g} minutes"
    title = f"{name}: seed{'' if len(settings.chosen_seeds) == 1 else 's'} {seeds}{length}, on {device}"
    return Trained(title, [(of_folder[run.folder], run) for run in runs], notes)


def write_rows(folder: StudyFolder, name: str, tables: Sequence[tuple[str, Cells]]) -> None:
    """One CSV file of the tables of several tasks, each with the same head, and the task in front."""
    rows = [[task, *row] for task, (_, *rows) in tables for row in rows]
    head = ["task", *tables[0][1][0]]
    folder.write_table(name, {column: [row[index] for row in rows] for index, column in enumerate(head)})


def _members(
    settings: TrainingStudySettings,
    folder: StudyFolder,
    device: str,
    variants: Callable[[str], Sequence[Variant]],
    task_iterations: Callable[[str], int],
) -> list[Member]:
    titles = [task_title(task) for task in settings.chosen_tasks]
    for title in titles:
        if titles.count(title) > 1:
            raise ValueError(f"two of the tasks have the name '{title}', and so would their run folders")
    members = []
    for task in settings.chosen_tasks:
        # Raises where there is no such task, or its robot cannot be loaded.
        make_task(task)
        members += make_members(
            task,
            variants(task),
            settings.chosen_seeds,
            folder.path,
            device,
            settings.minutes,
            ["--iterations", str(settings.iterations_of(task_iterations(task)))],
            settings.changes,
        )
    return members
