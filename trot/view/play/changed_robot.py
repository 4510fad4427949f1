"""A robot with other friction, gravity and mass: another Model for the same kernels, so nothing is compiled."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

from trot.envs.env import Env
from trot.envs.registry import make_env
from trot.sim.model import Model


@dataclass(frozen=True)
class Factors:
    """On the robot file's own figures."""

    friction: float = 1.0
    """Coulomb's coefficient, of every shape."""
    gravity: float = 1.0
    mass: float = 1.0
    """Of every body, rotational inertia with it; armature stays."""


def changed_model(model: Model, factors: Factors) -> Model:
    """The same robot, with other figures."""
    return replace(
        model,
        gravity=factors.gravity * model.gravity,
        body_mass=factors.mass * model.body_mass,
        body_inertia=factors.mass * model.body_inertia,
        shape_friction=factors.friction * model.shape_friction,
        pair_friction=factors.friction * model.pair_friction,
    )


def changed_env(env: Env, original: Model, factors: Factors) -> Env:
    """An environment with the changed robot, that goes on from where this one is."""
    model = changed_model(original, factors)
    # Whatever the task keeps is copied, but wherever it names its robot it gets the changed one.
    memo: dict[int, Any] = {id(env.task.model): model}
    task = copy.deepcopy(env.task, memo)
    changed = make_env(task, env.num_worlds, env.device, 0, env.dtype, env.stochastic_start)
    changed.set_state(env.get_state())
    return changed
