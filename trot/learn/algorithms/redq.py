"""Randomised Ensembled Double Q-learning: SAC with ten critics, two drawn for each target, and 20 updates a step.

All that it does stands in sac.py; here are its settings, from its authors' program. The ensemble keeps the values from
growing too large, so that each step can be learned from twenty times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trot.learn.algorithms.sac import Sac, SacSettings
from trot.learn.learner import Algorithm

RANDOM_STEPS = 5000
"""Of all worlds together, before anything is learned."""

GENERAL = SacSettings(
    horizon=20,
    updates=20,
    batch=256,
    critics=10,
    critics_in_target=2,
    policy_trusts="mean",
    actor_lr=3e-4,
    critic_lr=3e-4,
    temperature_lr=3e-4,
    entropy_per_action=-1.0,
    log_std_bounds=(-20.0, 2.0),
    hidden=(256, 256),
    normalize_observations=False,
)

ENTROPY: dict[str, float] = {"hopper": -1 / 3, "half_cheetah": -3 / 6, "ant": -4 / 8, "humanoid": -2 / 21}
"""Per action: the authors' table over the number of actions."""
STEPS: dict[str, int] = {"cartpole": 125_000, "hopper": 125_000, "half_cheetah": 400_000}
"""Of the whole training; 300,000 elsewhere."""


def one_world(task: str) -> SacSettings:
    """As its authors and the paper ran it."""
    return _of_worlds(1, task)


def many_worlds(task: str) -> SacSettings:
    """The same updates after each step of sixteen worlds: more samples, far less time."""
    return _of_worlds(16, task)


def _of_worlds(worlds: int, task: str) -> SacSettings:
    steps = worlds * GENERAL.horizon
    changes: dict[str, Any] = {
        "num_worlds": worlds,
        "entropy_per_action": ENTROPY.get(task, GENERAL.entropy_per_action),
        "random_iterations": -(-RANDOM_STEPS // steps),
        # So many steps of the policy and the critics whatever the number of worlds.
        "iterations": STEPS.get(task, 300_000) // GENERAL.horizon,
    }
    return replace(GENERAL, **changes)


REDQ = Algorithm(
    name="redq",
    label="REDQ",
    summary="SAC with ten critics and 20 updates a step: few samples, much time for each",
    settings=SacSettings,
    learner=Sac,
    presets={"tuned": many_worlds, "paper": one_world},
)
