"""`trot train --seeds`: several seeds learn in one batch, and each leaves the run folder that it would leave alone."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trot.envs.ranks import refuse_ranks
from trot.envs.registry import make_task
from trot.envs.trainable import require_trainable
from trot.learn.algorithms import find_algorithm
from trot.learn.learner import Learner
from trot.learn.member_learner import make_member_learner
from trot.learn.run_record import RunRecord, resume_command, writing_into
from trot.learn.seeds import parsed_seeds
from trot.learn.train import TrainSettings, choose_device, described, random_physics, run_name, stoppable
from trot.learn.trainer import Trainer
from trot.runs.folder import RunFolder


def train_together(settings: TrainSettings[Any]) -> list[RunFolder]:
    """Start a run for each of the seeds and see them through, all in one batch."""
    refuse_ranks("trot train --seeds")
    if settings.start_from is not None:
        raise ValueError("--start-from is for one run: give --seed instead of --seeds")
    algorithm, seeds = find_algorithm(settings.algo), parsed_seeds(settings.seeds)
    learner = learner_of_seeds(settings, seeds)
    require_trainable(learner.env)
    with contextlib.ExitStack() as opened:
        runs = []
        for seed in seeds:
            name = f"{settings.name}-{seed}" if settings.name else run_name(learner.env.task.name, algorithm, seed)
            own = described(replace(settings, seed=seed, seeds=()), algorithm, learner)
            runs.append(opened.enter_context(RunFolder.create(settings.runs, name, own)))
        opened.enter_context(stoppable(*runs))
        start = f"{settings.task}, {settings.algo}, {len(seeds)} seeds, on {learner.device}"
        print(f"{start}. Run folders: {', '.join(str(run.path) for run in runs)}", flush=True)
        way_on = resume_command(*runs)
        for run, agent in zip(runs, learner.of_members(learner.agent.saved()), strict=True):
            with writing_into(run, way_on):
                run.save_checkpoint("initial", {"agent": agent})
        records = [RunRecord(run, settings.schedule, way_on=way_on) for run in runs]
        Trainer(records, learner, settings.settings.iterations).run_to_the_end()
    return runs


def learner_of_seeds(settings: TrainSettings[Any], seeds: Sequence[int]) -> Learner:
    """With a member for each seed, at its beginning."""
    return make_member_learner(
        find_algorithm(settings.algo),
        make_task(settings.task),
        settings.settings,
        seeds,
        choose_device(settings.device),
        randomize=random_physics(settings),
    )
