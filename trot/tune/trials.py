"""The run folders of trials, made at a round's beginning."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from trot.learn.learner import Learner
from trot.learn.rounds import take_over
from trot.learn.train import described
from trot.runs.folder import SETTINGS, RunFolder
from trot.tune.population import Trial
from trot.tune.search import Group


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
            # However far the parent has come since.
            take_over(run, parent, parent.load_checkpoint(f"iteration_{begun:06d}"))
    return path
