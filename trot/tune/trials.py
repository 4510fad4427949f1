"""The run folders of trials: made at a round's beginning, and read at its end."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from trot.learn.learner import Learner
from trot.learn.train import described
from trot.runs.folder import METRICS, SETTINGS, RunFolder
from trot.tune.population import Trial
from trot.tune.search import Group

BEST = "best.agent."
"""How names begin, in the state of a learner, of what belongs to its best agent."""


def make_trial(root: Path, group: Group, trial: Trial, learner: Learner, initial: dict[str, Any]) -> Path:
    """Its folder, made unless it is there already; what a killed process left half made is made anew.

    Args:
        root: Of all trials of the group.
        group: That it belongs to.
        trial: Its settings, and where it begins.
        learner: Of the whole batch.
        initial: The agent that all trials began with.
    """
    path = root / trial.name
    last_written = "initial" if trial.parent is None else "last"
    if (path / SETTINGS).is_file() and last_written in RunFolder.open(path).checkpoint_names():
        return path
    shutil.rmtree(path, ignore_errors=True)
    begun = trial.first_round * group.iterations
    of_trial = replace(group.base, settings=group.settings(trial))
    parent = None if trial.parent is None else RunFolder.open(root / f"trial-{trial.parent:02d}")
    lineage = {"number": trial.number, "from": parent and parent.path.name, "iteration": begun}
    settings = {**described(of_trial, group.algorithm, learner), "trial": lineage}
    with RunFolder.create(root, trial.name, settings) as run:
        run.save_checkpoint("initial", {"agent": initial})
        if parent is not None:
            _take_over(run, parent, begun)
    return path


def _take_over(run: RunFolder, parent: RunFolder, iteration: int) -> None:
    """All that the parent had after this iteration, however far it has come since."""
    saved = parent.load_checkpoint(f"iteration_{iteration:06d}")
    shutil.copyfile(parent.path / METRICS, run.path / METRICS)
    run.truncate_metrics(iteration, saved["columns"], saved["metrics_checksum"])
    best = {name.removeprefix(BEST): part for name, part in saved["learner"].items() if name.startswith(BEST)}
    if run.best_return() is not None:
        run.save_checkpoint("best", {"agent": best})
    run.save_checkpoint("last", {**saved, "finished": False})


def score(run: RunFolder) -> float | None:
    """What trials are ranked by: the mean return of about the last hundred episodes. None where there is none."""
    row = run.last_metrics()
    if not row or row["stopped"] or not row["episodes"] or not math.isfinite(row["episode_return"]):
        return None
    return row["episode_return"]
