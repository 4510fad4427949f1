"""The loss against one weight of the policy: of the whole episode, and of SHAC's window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trot.envs.device import existing_device
from trot.learn.train import choose_device
from trot.study.learned import Run, load_learned
from trot.study.members_rollout import Tick
from trot.study.moved_weights import Moves, centred_shifts, flat, one_entry, steepest_entry
from trot.study.objective import Objective, episode_objective, window_objective
from trot.study.percent import percent_done

Floats = NDArray[np.float64]

POINTS = {"cpu": 51, "cuda": 201}
WORLDS = {"cpu": 16, "cuda": 128}


@dataclass(frozen=True)
class LossCurve:
    """One loss along the way."""

    steps: int
    """That the loss is made of."""
    loss: Floats
    """(points,)"""
    derivative: Floats
    """(points,) by the weight, from the backward pass."""
    difference: Floats
    """(points,) the same from the losses of the neighbours."""
    gradient_norm: float
    """By all weights, where none is moved."""


@dataclass(frozen=True)
class Landscape:
    """Losses against the shift of one weight."""

    name: str
    """Of the run and its checkpoint."""
    weight: str
    worlds: int
    critic: bool
    """Whether windows end with the value of a critic."""
    shift: Floats
    """(points,)"""
    episode: LossCurve
    window: LossCurve


def landscape(
    run: Run,
    checkpoint: str = "last",
    *,
    weight: str | None = None,
    points: int | None = None,
    worlds: int | None = None,
    reach: float = 1.0,
    gamma: float | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: torch.dtype = torch.float32,
    show_progress: bool = False,
) -> Landscape:
    """Move one weight of a run's policy, and measure both losses and their derivatives at every point.

    All points meet the same starts, restarts and noise. Settings as in LandscapeSettings.
    """
    kind = existing_device(choose_device(device)).type
    points, worlds = POINTS[kind] if points is None else points, WORLDS[kind] if worlds is None else worlds
    require_sizes(points, worlds, reach, gamma)
    learned = load_learned(run, checkpoint, device, dtype)
    episode = episode_objective(learned, worlds, seed, gamma)
    window = window_objective(learned, worlds, seed)
    if weight is not None:
        one_entry(window.weights, weight)
    with percent_done((episode.steps + window.steps) * (points + 1), show_progress) as tick:
        _, by_weights = window.gradients(tick=tick)
        weight = weight or steepest_entry({name: part[0] for name, part in by_weights.items()})
        shift = centred_shifts(reach, points)
        moves = Moves(window.weights, [one_entry(window.weights, weight)], shift.to(learned.device, dtype).unsqueeze(1))
        window_curve = _curve(window, moves, float(flat(by_weights).double().norm()), tick)
        _, by_weights = episode.gradients(tick=tick)
        episode_curve = _curve(episode, moves, float(flat(by_weights).double().norm()), tick)
    return Landscape(
        learned.name, weight, worlds, learned.critic is not None, shift.numpy(), episode_curve, window_curve
    )


def require_sizes(points: int, worlds: int, reach: float, gamma: float | None) -> None:
    """Refuse what makes no landscape."""
    if points < 3 or points % 2 == 0:
        raise ValueError(f"points must be an odd number of at least 3, so that one is the policy itself, not {points}")
    if worlds < 1:
        raise ValueError(f"worlds must be at least 1, not {worlds}")
    if not 0 < reach < float("inf"):
        raise ValueError(f"reach must be above 0, not {reach:g}")
    if gamma is not None and not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be between 0 and 1, not {gamma:g}")


def _curve(objective: Objective, moves: Moves, gradient_norm: float, tick: Tick) -> LossCurve:
    losses, derivatives = objective.derivatives(moves, tick)
    loss, derivative = losses.cpu().numpy(), derivatives[:, 0].double().cpu().numpy()
    shift = moves.shifts[:, 0].double().cpu().numpy()
    return LossCurve(objective.steps, loss, derivative, np.gradient(loss, shift), gradient_norm)


def disagreement(curve: LossCurve) -> float:
    """How far the two derivatives are apart, relative to the finite difference; medians over the inner points."""
    inner = slice(1, -1)
    apart = np.abs(curve.derivative - curve.difference)[inner]
    return float(np.median(apart) / max(np.median(np.abs(curve.difference[inner])), np.finfo(np.float64).tiny))
