"""`trot study deterministic`, `fixed-settings` and `critic`: SHAC with one thing changed, as learning curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trot.compare.plan import Variant, task_title
from trot.compare.report import EXPLANATION, LEVELS, RETURNS, Report, levels_rows, make_report, returns_rows
from trot.learn.algorithms.bptt import NO_CRITIC
from trot.learn.algorithms.shac import SHAC
from trot.learn.learner import PAPER
from trot.study.one_study import Study
from trot.study.study_folder import StudyFolder
from trot.study.training_study import (
    CURVES,
    TABLE,
    Trained,
    TrainingStudySettings,
    folder_to_go_on_in,
    train_variants,
    write_rows,
)
from trot.view.plots.plot import curves_figure

PAPER_TASKS = ("cartpole", "hopper", "half_cheetah", "ant", "humanoid", "muscle_humanoid")
FIXED_AS = "humanoid"
"""The task whose networks the paper's fixed setting has."""


@dataclass(frozen=True, kw_only=True)
class DeterministicSettings(TrainingStudySettings):
    """A policy with noise in its actions against one without."""

    paper_tasks: ClassVar[tuple[str, ...]] = PAPER_TASKS

    def variants(self, task: str) -> list[Variant]:
        return [
            Variant("stochastic", "Stochastic", SHAC.name, ("--preset", PAPER)),
            Variant("deterministic", "Deterministic", SHAC.name, ("--preset", PAPER, "--policy", "deterministic")),
        ]


@dataclass(frozen=True, kw_only=True)
class FixedSettingsSettings(TrainingStudySettings):
    """Settings tuned for each task against one fixed setting for all."""

    paper_tasks: ClassVar[tuple[str, ...]] = PAPER_TASKS

    own_networks: bool = False
    """Fix the settings alone, the preset `general`; else the networks are the Humanoid's too, as in the paper."""

    def variants(self, task: str) -> list[Variant]:
        fixed = ["--preset", "general"]
        if not self.own_networks:
            networks = SHAC.resolve(FIXED_AS, "general")
            fixed += ["--actor-hidden", *map(str, networks.actor_hidden)]
            fixed += ["--critic-hidden", *map(str, networks.critic_hidden)]
        return [
            Variant("tuned", "Tuned", SHAC.name, ("--preset", PAPER)),
            Variant("fixed", "Fixed settings", SHAC.name, tuple(fixed)),
        ]


@dataclass(frozen=True, kw_only=True)
class CriticSettings(TrainingStudySettings):
    """With a critic's value at the end of each window, and without."""

    paper_tasks: ClassVar[tuple[str, ...]] = ("cartpole", "ant", "humanoid", "muscle_humanoid")

    def variants(self, task: str) -> list[Variant]:
        return [Variant(one.name, one.label, one.name, ("--preset", PAPER)) for one in (SHAC, NO_CRITIC)]


AblationSettings = DeterministicSettings | FixedSettingsSettings | CriticSettings


def deterministic(task: str, **options: Any) -> Report:
    """Train with and without noise in the actions, as far as that is not done; options of DeterministicSettings."""
    return _report_of("deterministic", DeterministicSettings(task=task, **options))


def fixed_settings(task: str, **options: Any) -> Report:
    """Train with one setting for all tasks and with the task's own; options of FixedSettingsSettings."""
    return _report_of("fixed-settings", FixedSettingsSettings(task=task, **options))


def critic(task: str, **options: Any) -> Report:
    """Train with and without the critic, as far as that is not done; options of CriticSettings."""
    return _report_of("critic", CriticSettings(task=task, **options))


def _report_of(name: str, settings: AblationSettings) -> Report:
    (report,) = ablation_reports(train_ablation(name, settings, folder_to_go_on_in(name, settings))).values()
    return report


def train_ablation(name: str, settings: AblationSettings, folder: StudyFolder) -> Trained:
    """Train what is missing. All variants of a task have as many iterations as its tuned setting."""
    return train_variants(
        name, settings, folder, settings.variants, lambda task: int(SHAC.paper_settings(task).iterations)
    )


def ablation_reports(trained: Trained) -> dict[str, Report]:
    """By task: how each variant ended, and what it took to reach levels of return."""
    return {
        task: make_report(task, [run for _, run in trained.of(task)], (), (), compared="variant")
        for task in trained.tasks
    }


def write_ablation(trained: Trained, folder: StudyFolder) -> str:
    """Tables, then curves; returns the tables."""
    reports = ablation_reports(trained)
    parts = [f"# {trained.title}", EXPLANATION, *trained.notes]
    for task, report in reports.items():
        parts += [f"## {task_title(task)}", *report.tables]
    text = "\n\n".join(parts) + "\n"
    folder.write_text(TABLE, text)
    write_rows(folder, RETURNS, [(task, returns_rows(report)) for task, report in reports.items()])
    write_rows(folder, LEVELS, [(task, levels_rows(report)) for task, report in reports.items()])
    folder.write_figure(CURVES, curves_figure(trained.loaded, "label", ("steps", "seconds")))
    return text


def _study(name: str, summary: str, settings: type[AblationSettings]) -> Study:
    def run(given: AblationSettings, folder: StudyFolder) -> str:
        return write_ablation(train_ablation(name, given, folder), folder)

    return Study(name, summary, settings, run, goes_on=True)


DETERMINISTIC = _study(
    "deterministic", "learning curves of a policy without noise in its actions, beside one with", DeterministicSettings
)
FIXED_SETTINGS = _study(
    "fixed-settings", "learning curves of one setting for all tasks, beside those tuned for each", FixedSettingsSettings
)
CRITIC = _study("critic", "learning curves without the critic at the end of windows, beside those with", CriticSettings)
