"""`trot study horizon`: best return and training time against the length of windows, at constant samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from trot.compare.plan import Variant, task_title
from trot.compare.report import markdown
from trot.learn.algorithms.shac import SHAC
from trot.learn.learner import PAPER
from trot.study.horizon_curve import HorizonCurve, horizon_curve
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
from trot.view.plots.curves import LoadedRun
from trot.view.plots.plot import curves_figure

NAME, DATA = "horizon", "horizon.csv"
FEW_EPISODES = 3
"""Per world: with fewer, returns are those of policies long past."""
EXPLANATION = (
    "The best return is that of the means over about the last hundred finished training episodes; seconds are those of "
    "training. Both are means over seeds ± their standard deviation. Every row has as many samples in an iteration."
)


@dataclass(frozen=True, kw_only=True)
class HorizonSettings(TrainingStudySettings):
    """Windows of several lengths, with fewer worlds the longer they are."""

    paper_tasks: ClassVar[tuple[str, ...]] = ("ant",)
    # Of the two things that it shows, one is time.
    default_parallel: ClassVar[int | None] = 1
    shows_time: ClassVar[bool] = True

    horizons: tuple[int, ...] = (4, 8, 16, 32, 64, 128)
    """Steps of a window."""
    samples: int | None = None
    """Of an iteration, worlds times steps; unless given, those tuned for the task, 2048 for most."""
    parallel: int | None = None
    """Runs at a time; one unless given, because side by side each takes longer."""
    together: Literal["auto", "yes", "no"] = "auto"
    """All seeds of a horizon learn in one batch, as by `trot train --seeds`; auto: no, because it takes longer than
    one."""

    def samples_of(self, task: str) -> int:
        """Environment steps of an iteration."""
        tuned = SHAC.paper_settings(task)
        return int(tuned.num_worlds * tuned.horizon) if self.samples is None else self.samples

    def variants(self, task: str) -> list[Variant]:
        samples = self.samples_of(task)
        if not self.horizons:
            raise ValueError("name one horizon or more")
        for horizon in self.horizons:
            if horizon < 1 or samples < horizon or samples % horizon:
                raise ValueError(
                    f"a horizon of {horizon} does not divide the {samples} samples of an iteration: choose others by "
                    "--horizons or --samples"
                )
        return [
            Variant(
                f"h{horizon}",
                f"h = {horizon}",
                SHAC.name,
                ("--preset", PAPER, "--horizon", str(horizon), "--worlds", str(samples // horizon)),
            )
            for horizon in dict.fromkeys(self.horizons)
        ]


def horizon(task: str, **options: Any) -> HorizonCurve:
    """Train a task with windows of several lengths, as far as that is not done, and return what came of it.

    Options are those of HorizonSettings: horizons=(8, 32), seeds=(0, 1), iterations=500, studies=Path("studies"), ...
    """
    settings = HorizonSettings(task=task, **options)
    (curve,) = horizon_curves(train_horizons(settings, folder_to_go_on_in(NAME, settings)))
    return curve


def train_horizons(settings: HorizonSettings, folder: StudyFolder) -> Trained:
    """Train what is missing. All runs of a task have as many iterations as its tuned setting."""
    return train_variants(
        NAME, settings, folder, settings.variants, lambda task: int(SHAC.paper_settings(task).iterations)
    )


def horizon_curves(trained: Trained) -> list[HorizonCurve]:
    """One for each task that has finished runs."""
    curves = []
    for task in trained.tasks:
        by_horizon: dict[int, list[LoadedRun]] = {}
        for member, run in trained.of(task):
            by_horizon.setdefault(member.asked.settings.horizon, []).append(run)
        asked = trained.of(task)[0][0].asked.settings
        curves.append(horizon_curve(task, by_horizon, asked.horizon * asked.num_worlds))
    return curves


def lag_notes(trained: Trained) -> list[str]:
    """With few iterations a short window's worlds hardly come to the end of an episode: a sentence on such runs."""
    names = [
        member.name
        for member, run in trained.runs
        if run.columns["episodes"][-1] < FEW_EPISODES * member.asked.settings.num_worlds
    ]
    if not names:
        return []
    return [
        f"Fewer than {FEW_EPISODES} episodes per world: {', '.join(names)}. Their returns lag behind their policies: "
        "look again with more iterations."
    ]


def run_horizon(settings: HorizonSettings, folder: StudyFolder) -> str:
    """Table, figure of return and time against the horizon, learning curves."""
    from trot.study.draw_horizon import draw_horizon

    trained = train_horizons(settings, folder)
    curves = horizon_curves(trained)
    parts = [f"# {trained.title}", EXPLANATION, *trained.notes, *lag_notes(trained)]
    for curve in curves:
        parts += [f"## {task_title(curve.task)}", markdown(curve.cells), curve.sentence]
    text = "\n\n".join(parts) + "\n"
    folder.write_text(TABLE, text)
    write_rows(folder, DATA, [(curve.task, curve.rows) for curve in curves])
    folder.write_figure(NAME, draw_horizon(curves))
    folder.write_figure(CURVES, curves_figure(trained.loaded, "label", ("steps", "seconds")))
    return text


HORIZON = Study(
    NAME,
    "best return and training time against the length of windows, at constant samples",
    HorizonSettings,
    run_horizon,
    goes_on=True,
)
