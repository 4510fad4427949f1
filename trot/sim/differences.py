"""Slopes by central differences, and how far they can be trusted: rounding, curvature and kinks all blur them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SPREAD = 10.0
"""Rounding counts as this many times its usual size: five times what it usually does to a slope."""

DRIFT_SPREAD = 30.0
"""The same for a drift."""

USUAL = 0.75
"""Share of directions whose rounding seems smaller than what counts as usual."""

LUCK = 100.0
"""Rounding is at most this many times what one direction shows of it; only one in ten thousand is luckier."""

MOST = 1e5
"""More than this many times the smallest rounding is no rounding, but a jump or kinks too many to count."""

FADED = 0.2
"""Rounding fades with a longer step, below this share of what it did to the shortest; a kink does not."""


@dataclass(frozen=True)
class Direction:
    """One way to move an input, in all worlds at once."""

    name: str
    """As a table shall call it: a dof, a body."""
    unit: float
    """Steps are multiples of this."""
    loss: Callable[[float], Tensor]
    """(worlds, terms) what the loss is the sum of, after moving this far; not finite where a world blows up."""


@dataclass(frozen=True)
class Difference:
    """A central difference in every world, from a step and half of it."""

    step: float
    slope: Tensor
    """Extrapolated from the two, to fourth order."""
    drift: Tensor
    """How far the two disagree; infinite where the loss is not finite."""
    rounding: Tensor
    """The size of rounding in the loss that would explain it."""


@dataclass(frozen=True)
class Slopes:
    """(directions, worlds) each: the best that several steps can tell."""

    slope: Tensor
    uncertainty: Tensor
    """Infinite where the loss is not finite."""
    resolution: Tensor
    """The smallest slope that shows at all: one rounding of the loss over the step."""
    kink: Tensor
    """Where uncertain, it is so because of kinks and not of rounding."""


def difference(direction: Direction, here: Tensor, relative_step: float) -> Difference:
    """The slope along a direction; `here` are the loss's terms without any move."""
    step = relative_step * direction.unit
    (coarse, coarse_bend), (fine, fine_bend) = (_slope_and_bend(direction, here, h) for h in (step, step / 2))
    # On smooth ground slopes agree and bends halve with the step. A kink within the step breaks one of the two: far
    # from the middle the first, close to it the second.
    slope_drift, bend_drift = (fine - coarse).abs(), (fine_bend - coarse_bend / 2).abs()
    drift = slope_drift + bend_drift
    # Independent errors of size 1 in the five losses spread the two drifts by 1.58 / step and by 4.18 / step.
    rounding = step * (((slope_drift / 1.58) ** 2 + (bend_drift / 4.18) ** 2) / 2).sqrt()
    finite = drift.isfinite()
    return Difference(
        step,
        slope=torch.where(finite, fine + (fine - coarse) / 3, 0.0),
        drift=torch.where(finite, drift, torch.inf),
        rounding=torch.where(finite, rounding, torch.inf),
    )


def _slope_and_bend(direction: Direction, here: Tensor, step: float) -> tuple[Tensor, Tensor]:
    """Per world the slope, and by how much it rises from one side to the other."""
    # Term by term, so that large terms which do not move leave no rounding in the sum.
    above, below = direction.loss(step) - here, direction.loss(-step) - here
    return (above - below).sum(dim=1) / (2 * step), (above + below).sum(dim=1) / step


def best_slopes(differences: Sequence[Sequence[Difference]], here: Tensor) -> Slopes:
    """Of each direction's differences, in each world the one with the smallest estimated error."""
    steps, slopes, drifts, roundings = _by_step(differences)
    smallest = torch.finfo(here.dtype).eps * here.abs().sum(dim=1).nan_to_num(0.0, posinf=0.0)
    # The shortest step tells most about rounding, the longer ones more about the loss itself.
    shortest = steps.argmin(dim=0, keepdim=True)
    own = _chosen(roundings, shortest)
    usual = _usual_rounding(own, smallest)
    rounding = torch.maximum(own, torch.minimum(usual, LUCK * own)).clamp(min=smallest)
    uncertainties = drifts + SPREAD * rounding / steps
    best = uncertainties.argmin(dim=0, keepdim=True)
    step, slope, drift, uncertainty = (_chosen(values, best) for values in (steps, slopes, drifts, uncertainties))

    # Several kinks may pass for a smooth slope by luck, or from afar. Shorter steps tell: by another slope, or by a
    # drift that no rounding explains.
    explained = DRIFT_SPREAD * torch.minimum(usual, MOST * smallest) / steps
    contradiction = torch.maximum((slopes - slope).abs() - uncertainties, drifts - explained)
    contradiction = torch.where(steps < step, contradiction, 0.0).amax(dim=0)
    return Slopes(
        slope,
        uncertainty=torch.maximum(uncertainty, contradiction),
        resolution=smallest / step,
        kink=(drift > FADED * _chosen(drifts, shortest)) | (own > MOST * smallest),
    )


def _by_step(differences: Sequence[Sequence[Difference]]) -> list[Tensor]:
    """(steps, directions, worlds) each: steps, slopes, drifts, roundings."""
    most = max(len(of_direction) for of_direction in differences)
    # Where fewer steps were taken, the last of them stands in for the others.
    full = [[of_direction[min(i, len(of_direction) - 1)] for of_direction in differences] for i in range(most)]
    stacked = [
        torch.stack([torch.stack([getattr(one, name) for one in row]) for row in full])
        for name in ("slope", "drift", "rounding")
    ]
    steps = torch.tensor([[one.step for one in row] for row in full], dtype=stacked[0].dtype)
    return [steps.unsqueeze(2).expand_as(stacked[0]), *stacked]


def _chosen(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(0, index).squeeze(0)


def _usual_rounding(own: Tensor, smallest: Tensor) -> Tensor:
    """(worlds,) the size of rounding in the loss, from what every direction shows of it.

    By luck the few losses along one direction may agree far better than rounding lets them, and across a kink they
    agree far worse.
    """
    # A direction without effect says nothing, nor does a world that blows up.
    telling = torch.where((own > 0) & own.isfinite() & (smallest > 0), own / smallest, torch.nan)
    in_world, anywhere = telling.nanquantile(USUAL, dim=0), telling.nanquantile(USUAL)
    # One direction alone may be the lucky one.
    usual = torch.where(telling.isfinite().sum(dim=0) > 1, in_world, anywhere)
    return smallest * usual.nan_to_num(1.0).clamp(min=1.0)
