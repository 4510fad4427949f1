"""What soft contact does to SHAC's gradient and to learning: the measurement.

Stiffness, or the slope of friction, of every shape is multiplied by a factor. A policy acts through windows as in
training, and each world gives a gradient of its own by the policy's weights: how they scatter around their mean tells
how much of the gradient is signal.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trot.envs.device import existing_device
from trot.envs.env import Env
from trot.envs.task import Task
from trot.learn.algorithms import find_algorithm
from trot.learn.algorithms.shac import Shac
from trot.learn.algorithms.shac_settings import ShacSettings
from trot.learn.capture import fast_phases
from trot.learn.gradient_health import STEEP
from trot.learn.networks import Policy, stack_members
from trot.learn.older_runs import upgraded_checkpoint
from trot.learn.saved_settings import settings_from
from trot.learn.short_window import Adjoints
from trot.learn.torch_threads import one_torch_thread
from trot.learn.train import choose_device
from trot.sim.model import Model
from trot.study.subject import Studied, Subject, find_subject, varied
from trot.study.window_memory import require_window_room

Constant = Literal["stiffness", "friction_slope"]
SCALED: dict[Constant, tuple[str, ...]] = {
    # Damping goes along: the ratio of both decides how high a body bounces.
    "stiffness": ("shape_stiffness", "shape_damping"),
    "friction_slope": ("shape_friction_stiffness",),
}
"""What a factor multiplies in a Model."""
DIFFERENTIATES = ("shac", "shac-no-critic", "bptt")
"""Algorithms whose gradient this is."""

CPU_WORLDS, CUDA_WORLDS = 64, 512


@dataclass(frozen=True)
class Signal:
    """How much gradients of many worlds agree."""

    norm: float
    """Of the mean over the worlds."""
    variance: float
    """Of one world's gradient: the sum over its entries."""
    signal_to_noise: float
    """The norm over the standard error of the mean; about 1 where there is noise alone."""
    cosine: float
    """Between the means of two halves of the worlds; about 0 where there is noise alone."""

    @classmethod
    def of(cls, gradients: Tensor) -> Signal:
        """Of (worlds, entries)."""
        gradients = gradients.double()
        if len(gradients) < 2:
            return cls(math.nan, math.nan, math.nan, math.nan)
        variance, mean = torch.var_mean(gradients, dim=0)
        norm, total = mean.norm(), variance.sum()
        halves = gradients[::2].mean(dim=0), gradients[1::2].mean(dim=0)
        cosine = torch.dot(*halves) / (halves[0].norm() * halves[1].norm())
        numbers = torch.stack([norm, total, norm / (total / len(gradients)).sqrt(), cosine])
        return cls(*numbers.tolist())


@dataclass(frozen=True, eq=False)
class ContactCase:
    """A policy's gradient, and what training comes to, with one constant of all contacts multiplied by a factor."""

    constant: Constant
    factor: float
    signal: Signal
    """Of the worlds whose gradient is finite."""
    steep: float
    """Share of the worlds whose gradient by the state exceeds STEEP somewhere in a window, mean over the windows: as
    steep_worlds in metrics.csv."""
    blown_up: float
    """Share of the worlds that blew up."""
    not_finite: float
    """Share of the worlds whose gradient is not finite: one is enough to end a training."""
    returns: NDArray[np.float64]
    """(iterations,) mean return of finished episodes of a training; NaN before the first, and from stopped_in on."""
    stopped_in: int | None
    """The iteration of that training, counted from 1, whose gradient was not finite: nothing was learned from there."""

    @property
    def last_return(self) -> float:
        return float(self.returns[-1]) if len(self.returns) else math.nan


def with_scaled_contact(task: Task[Any], constant: Constant, factor: float) -> Task[Any]:
    """The task with this constant of every shape multiplied. Raises ValueError where nothing can touch the ground."""
    model: Model = task.model
    if not model.num_shapes:
        raise ValueError(f"{type(task).__name__} has no contact to vary: nothing of its robot can touch a ground")
    require_factor(factor)
    changes: dict[str, Any] = {name: factor * getattr(model, name) for name in SCALED[constant]}
    return varied(task, model=replace(model, **changes))


def require_factor(factor: float) -> None:
    """Refuse what no constant of contact can be multiplied by."""
    if not 0 < factor < math.inf:
        raise ValueError(f"factors must be above 0 and finite, not {factor:g}")


def contact(
    studied: Studied,
    constant: Constant = "stiffness",
    factor: float = 1.0,
    num_worlds: int | None = None,
    horizon: int | None = None,
    substeps: int | None = None,
    windows: int = 4,
    checkpoint: str = "last",
    train: int = 0,
    device: str = "auto",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    each: Callable[[], object] | None = None,
) -> ContactCase:
    """SHAC's gradient with one constant of all contacts multiplied by a factor.

    A run's policy and value function, or new ones in a task, act through `windows` windows one after the other from
    fresh starts, without learning. With `train`, a new policy is then trained in the same physics for so many
    iterations. `each` is called after every window and iteration.
    """
    subject = find_subject(studied)
    place = existing_device(choose_device(device))
    if windows < 1 or train < 0:
        raise ValueError(f"windows must be at least 1, not {windows}, and train at least 0, not {train}")
    task, training = with_scaled_contact(subject.task, constant, factor), shac_settings(subject)
    if num_worlds is None:
        num_worlds = CUDA_WORLDS if place.type == "cuda" else CPU_WORLDS
    settings = replace(training, num_worlds=num_worlds, horizon=training.horizon if horizon is None else horizon)
    if substeps is not None:
        task = varied(task, substeps=substeps)
    training = replace(training, horizon=settings.horizon, iterations=max(train, 1))
    env, training_env = (Env(task, its.num_worlds, place, seed, dtype) for its in (settings, training))
    require_window_room(env, settings.horizon)
    if train:
        require_window_room(training_env, settings.horizon)
    learner = Shac(env, settings, seed)
    if subject.run is not None:
        _load_networks(learner, subject, checkpoint)
    with one_torch_thread():
        gradients, steep = _gradients(learner, windows, each or _nothing)
        finite = gradients.isfinite().all(dim=1)
        blown_up = (env.worlds.faults > 0).double().mean()
        returns, stopped_in = np.zeros(0), None
        if train:
            returns, stopped_in = _train(Shac(training_env, training, seed), each or _nothing)
    return ContactCase(
        constant,
        factor,
        Signal.of(gradients[finite]),
        float(steep),
        float(blown_up),
        float((~finite).double().mean()),
        returns,
        stopped_in,
    )


def shac_settings(subject: Subject) -> ShacSettings:
    """Those of the run, or SHAC's for the task."""
    if subject.run is None:
        settings: ShacSettings = find_algorithm("shac").paper_settings(subject.task.name)
        return settings
    algo = str(subject.run.settings["algo"])
    if algo not in DIFFERENTIATES:
        raise ValueError(
            f"the run '{subject.run.path}' was trained by {algo}, whose gradient this is not: give one of "
            f"{', '.join(DIFFERENTIATES)}, or a task"
        )
    return settings_from(subject.run.settings.get("settings"), ShacSettings, algo)


def world_gradients(policy: Policy, inputs: Tensor, noise: Tensor, by_actions: Tensor) -> Tensor:
    """(worlds, entries): gradients by the policy's weights, apart for each world. Inputs are (steps, worlds, ...)."""
    worlds = inputs.shape[1]
    many = copy.deepcopy(policy)
    # A copy of the weights for each world: one backward pass then keeps worlds apart.
    many.network = stack_members([policy.network] * worlds)
    if policy.kind == "gaussian":
        many.log_std = nn.Parameter(policy.log_std.detach().expand(worlds, 1, -1).clone())
    many.requires_grad_(True)
    inputs, noise, by_actions = (tensor.transpose(0, 1) for tensor in (inputs, noise, by_actions))
    found = torch.autograd.grad(many(inputs, noise), list(many.parameters()), by_actions)
    return torch.cat([gradient.flatten(1) for gradient in found], dim=1)


def _gradients(learner: Shac, windows: int, each: Callable[[], object]) -> tuple[Tensor, Tensor]:
    """(worlds, entries) of each world's own return, mean over its windows, and the mean share of steep worlds."""
    env = learner.env
    gradients, steep = [], []
    for _ in range(windows):
        learner.rollout()
        adjoints, window = Adjoints.of(learner.window), learner.window
        gradient = world_gradients(learner.policy, window.inputs, learner.noise, adjoints.answers)
        # The loss is a mean over the worlds; that of these gradients is the loss's.
        gradients.append(gradient * env.num_worlds)
        steep.append((adjoints.state_norms(window.reward) > STEEP).any(dim=0).double().mean())
        learner.forget()
        env.end_window()
        each()
    return torch.stack(gradients).mean(dim=0), torch.stack(steep).mean()


def _train(learner: Shac, each: Callable[[], object]) -> tuple[NDArray[np.float64], int | None]:
    """The returns of a training, and where it stopped."""
    phases = fast_phases(learner).values()
    rows = []
    for iteration in range(learner.settings.iterations):
        for phase in phases:
            phase(iteration)
        rows.append(learner.metrics.clone())
        each()
    columns = dict(zip(learner.all_columns(), torch.stack(rows).double().cpu().numpy().T, strict=True))
    stopped = columns["stopped"] > 0
    returns = np.where((columns["episodes"] > 0) & ~stopped, columns["episode_return"], np.nan)
    return returns, int(stopped.argmax()) + 1 if stopped.any() else None


def _nothing() -> None:
    return None


def _load_networks(learner: Shac, subject: Subject, checkpoint: str) -> None:
    agent, run = subject.agent(checkpoint), subject.run
    assert run is not None
    agent.require_fit(learner.env)
    learner.agent.load_state_dict(agent.state_dict())
    if not learner.settings.critic:
        return
    saved = upgraded_checkpoint(run.load_checkpoint(checkpoint)).get("learner", {})
    prefix = "target_critic."
    target = {name.removeprefix(prefix): value for name, value in saved.items() if name.startswith(prefix)}
    if not target:
        whole = [name for name in run.checkpoint_names() if name == "last" or name.startswith("iteration")]
        raise ValueError(
            f"the checkpoint '{checkpoint}' of '{run.path}' holds no value function: give another --checkpoint, of "
            f"{', '.join(whole) or 'a run that went on'}"
        )
    learner.target_critic.load_state_dict(target)
