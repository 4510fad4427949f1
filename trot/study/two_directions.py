"""The loss over two random directions in the space of weights: of the whole episode, and of SHAC's window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trot.envs.device import existing_device
from trot.learn.train import choose_device
from trot.study.learned import Run, load_learned
from trot.study.moved_weights import Moves, centred_shifts, random_direction
from trot.study.objective import episode_objective, window_objective
from trot.study.one_weight import require_sizes
from trot.study.percent import percent_done

Floats = NDArray[np.float64]

POINTS = {"cpu": 21, "cuda": 41}
WORLDS = {"cpu": 8, "cuda": 128}


@dataclass(frozen=True)
class LossGrid:
    """One loss over both directions."""

    steps: int
    """That the loss is made of."""
    loss: Floats
    """(points along the first direction, points along the second)"""


@dataclass(frozen=True)
class Surface:
    """Losses against shifts along two directions."""

    name: str
    """Of the run and its checkpoint."""
    worlds: int
    critic: bool
    """Whether windows end with the value of a critic."""
    scaled: bool
    """Whether the directions have the length of the weights that they move, tensor by tensor."""
    shift: Floats
    """(points,) along either direction."""
    episode: LossGrid
    window: LossGrid


def surface(
    run: Run,
    checkpoint: str = "last",
    *,
    points: int | None = None,
    worlds: int | None = None,
    reach: float = 1.0,
    scaled: bool = True,
    gamma: float | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: torch.dtype = torch.float32,
    show_progress: bool = False,
) -> Surface:
    """Move a run's policy along two random directions, and measure both losses on a grid of points x points.

    All points meet the same starts, restarts and noise. The seed is that of the directions, too. Settings as in
    SurfaceSettings.
    """
    kind = existing_device(choose_device(device)).type
    points, worlds = POINTS[kind] if points is None else points, WORLDS[kind] if worlds is None else worlds
    require_sizes(points, worlds, reach, gamma)
    learned = load_learned(run, checkpoint, device, dtype)
    shift = centred_shifts(reach, points)
    generator = torch.Generator().manual_seed(seed)
    objectives = episode_objective(learned, worlds, seed, gamma), window_objective(learned, worlds, seed)
    weights = objectives[0].weights
    directions = [random_direction(weights, generator, scaled) for _ in range(2)]
    moves = Moves(weights, directions, torch.cartesian_prod(shift, shift).to(learned.device, dtype))
    with percent_done(sum(each.steps for each in objectives) * points**2, show_progress) as tick:
        episode, window = (
            LossGrid(each.steps, each.losses(moves, tick).view(points, points).cpu().numpy()) for each in objectives
        )
    return Surface(learned.name, worlds, learned.critic is not None, scaled, shift.numpy(), episode, window)
