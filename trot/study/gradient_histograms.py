"""The entries of the policy's gradient over a training: of the whole episode's loss, and of SHAC's window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trot.envs.device import existing_device
from trot.learn.train import choose_device
from trot.runs.folder import RunFolder
from trot.study.learned import Learned, Run, iterations_of, load_learned, open_run
from trot.study.members_rollout import Tick
from trot.study.moved_weights import flat
from trot.study.objective import Objective, episode_objective, window_objective
from trot.study.percent import percent_done

Floats = NDArray[np.float64]

CHECKPOINTS = 6
WORLDS = {"cpu": 32, "cuda": 128}
BINS = 101


@dataclass(frozen=True)
class GradientEntries:
    """The gradient of one loss at every checkpoint."""

    steps: int
    """That the loss is made of."""
    entries: Floats
    """(checkpoints, weights)"""
    norm: Floats
    """(checkpoints,)"""
    cosine: Floats
    """(checkpoints,) between the gradients of two halves of the worlds: 1 is all signal, 0 is all noise."""

    def histogram(self, bins: int = BINS) -> tuple[Floats, NDArray[np.int64]]:
        """Edges (bins + 1,), the same for all checkpoints and symmetric, and counts (checkpoints, bins)."""
        finite = np.where(np.isfinite(self.entries), self.entries, 0.0)
        reach = float(np.abs(finite).max()) or 1.0
        edges = np.linspace(-reach, reach, bins + 1)
        counts = [np.histogram(row[np.isfinite(row)], edges)[0] for row in self.entries]
        return edges, np.stack(counts)


@dataclass(frozen=True)
class Gradients:
    """Of both losses, over a training."""

    name: str
    """Of the run."""
    worlds: int
    critic: bool
    """Whether windows end with the value of a critic."""
    checkpoints: tuple[str, ...]
    iterations: NDArray[np.int64]
    episode: GradientEntries
    window: GradientEntries


def gradients(
    run: Run,
    checkpoints: Sequence[str] = (),
    *,
    worlds: int | None = None,
    gamma: float | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: torch.dtype = torch.float32,
    show_progress: bool = False,
) -> Gradients:
    """The gradients of a run's policy at some of its checkpoints; six from the first to the last unless given.

    Each has its own worlds and its own critic, as the training had them. gamma is the discount of whole episodes, the
    run's own unless given.
    """
    worlds = WORLDS[existing_device(choose_device(device)).type] if worlds is None else worlds
    if worlds < 2 or worlds % 2:
        raise ValueError(f"worlds must be an even number of at least 2, for two halves, not {worlds}")
    if gamma is not None and not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be between 0 and 1, not {gamma:g}")
    folder = open_run(run)
    iterations = choose_checkpoints(folder, checkpoints)
    # All of them first: a checkpoint that does not serve is told before the work.
    every = [load_learned(run, name, device, dtype) for name in iterations]
    found: dict[str, list[tuple[Floats, float]]] = {"episode": [], "window": []}
    with percent_done(len(every) * (_episode_length(every[0]) + every[0].settings.horizon), show_progress) as tick:
        for learned in every:
            found["episode"].append(_measured(episode_objective(learned, worlds, seed, gamma), tick))
            found["window"].append(_measured(window_objective(learned, worlds, seed), tick))
    return Gradients(
        folder.path.resolve().name,
        worlds,
        every[0].critic is not None,
        tuple(iterations),
        np.array(list(iterations.values())),
        _together(_episode_length(every[0]), found["episode"]),
        _together(every[0].settings.horizon, found["window"]),
    )


def choose_checkpoints(folder: RunFolder, names: Sequence[str]) -> dict[str, int]:
    """These with their iterations, or six that are spread evenly over those that there are."""
    known = iterations_of(folder)
    if unknown := [name for name in names if name not in known]:
        raise ValueError(
            f"{folder.path} has no checkpoint '{unknown[0]}' of a known iteration; it has: {', '.join(known) or 'none'}"
        )
    # The last checkpoint may be there under its number already, which comes before it.
    in_order = list({iteration: name for name, iteration in reversed(known.items())}.values())[::-1]
    spread = [in_order[round(k * (len(in_order) - 1) / (CHECKPOINTS - 1))] for k in range(CHECKPOINTS) if in_order]
    chosen = {name: known[name] for name in names or spread}
    if not chosen:
        raise ValueError(f"{folder.path} has no checkpoint of a known iteration. Train it: trot resume {folder.path}")
    return dict(sorted(chosen.items(), key=lambda item: item[1]))


def _episode_length(learned: Learned) -> int:
    return learned.task.episode_length


def _measured(objective: Objective, tick: Tick) -> tuple[Floats, float]:
    """The gradient over all worlds, and the cosine between those of its halves."""
    _, by_weights = objective.gradients(parts=2, tick=lambda amount: tick(amount / 2))
    halves = flat(by_weights).double().cpu().numpy()
    return halves.mean(axis=0), cosine(*halves)


def cosine(first: Floats, second: Floats) -> float:
    """Of the angle between them; NaN where one is not finite or zero."""
    if not (np.isfinite(first).all() and np.isfinite(second).all() and first.any() and second.any()):
        return float("nan")
    # Scaled first: squares of large entries would overflow.
    first, second = first / np.abs(first).max(), second / np.abs(second).max()
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


def _together(steps: int, found: Sequence[tuple[Floats, float]]) -> GradientEntries:
    entries = np.stack([row for row, _ in found])
    return GradientEntries(steps, entries, np.linalg.norm(entries, axis=1), np.array([value for _, value in found]))
