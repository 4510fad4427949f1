"""A training as it was asked for: one policy, several seeds or candidates in one batch, and what is to follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trot.envs.ranks import follows, refuse_ranks
from trot.learn.algorithms.ppo_finish import PPO_FINISH
from trot.learn.contest import train_by_contest
from trot.learn.train import TrainSettings, default_settings, help_to_train, train
from trot.learn.train_together import train_together
from trot.runs.folder import RunFolder


def begin(settings: TrainSettings[Any]) -> list[RunFolder]:
    """See it through. Returns the run folder of each seed, the last one where another training follows.

    Under torchrun, where ranks other than the first help it, these return none.
    """
    if settings.then is None:
        return _first(settings)
    refuse_ranks("trot train --then")
    _require_form(settings)
    return [train(finish_of(settings, run)) for run in _first(settings)]


def _first(settings: TrainSettings[Any]) -> list[RunFolder]:
    if settings.candidates > 1:
        return train_by_contest(settings)
    if settings.seeds:
        return train_together(settings)
    if follows():
        help_to_train(settings)
        return []
    return [train(settings)]


def _require_form(settings: TrainSettings[Any]) -> None:
    """Refuse before the training what could not be gone on with after it."""
    kind = getattr(settings.settings, "policy", None)
    if kind is None:
        raise ValueError(
            f"--then ppo goes on from policies of SHAC and its relatives, not from those of {settings.algo}"
        )
    if kind != "gaussian":
        raise ValueError(
            f"--then ppo goes on from policies with one deviation per action, not '{kind}': give --policy gaussian"
        )


def finish_of(settings: TrainSettings[Any], run: RunFolder) -> TrainSettings[Any]:
    """PPO's training that goes on from this run, on the same device and with the same random physics."""
    preset = PPO_FINISH.default_preset
    return replace(
        settings,
        settings=default_settings(PPO_FINISH, settings.task, preset, run.path),
        algo=PPO_FINISH.name,
        preset=preset,
        start_from=run.path,
        then=None,
        seed=int(run.settings["seed"]),
        seeds=(),
        candidates=1,
        name=f"{run.path.name}-{PPO_FINISH.name}" if settings.name else None,
        schedule=replace(settings.schedule, stop_at=None, minutes=None),
    )
