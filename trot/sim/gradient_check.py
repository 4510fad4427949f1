"""The verdict on gradients, from central differences that know their own error: `trot check` of robots and tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trot.sim.differences import Difference, Direction, Slopes, best_slopes, difference

STEPS = (1e-5, 1e-6, 1e-4, 1e-3, 1e-2)
"""Of the differences, in units of the direction. Where the first one leaves doubt the next are tried: a shorter one
against kinks and curvature, longer ones against rounding."""

CLEARLY = 2.0
"""A gradient is wrong only where it misses the slope by more than this many times the slope's own uncertainty,"""

SURE = 1e-3
"""and where that is below this share of the world's steepest slope, or below the tolerance: from afar, a slope that
chatters between many kinks may look like one that is merely blurred."""

LEVEL = 100.0
"""Where all slopes are below this many times what shows at all, the ground is level."""


@dataclass(frozen=True)
class Row:
    """The verdict on one input. Each direction in each world counts once: checked, kinks, noisy or lost."""

    name: str
    largest: float
    """Largest gradient found."""
    error: float
    """Largest error of those checked, relative to the steepest slope of that input in the same world, on level ground
    to what rounding lets one see; infinite for a gradient that is not finite."""
    worst: str
    """Where that is."""
    reading: str
    """The gradient there, and the slope that the differences give."""
    wrong: int
    """How many of those checked."""
    checked: int
    kinks: int
    """The slope jumps within every difference: a contact, a limit or sliding begins there."""
    noisy: int
    """Rounding blurs every difference."""
    lost: int
    """The world blows up."""

    @property
    def skipped(self) -> int:
        return self.kinks + self.noisy + self.lost


def require_sensible(tolerance: float, seed: int, **counts: int) -> None:
    """Refuse settings with which nothing would be checked."""
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must lie between 0 and 1, not {tolerance}")
    if not -(2**63) <= seed < 2**63 - 1:
        raise ValueError(f"seed must fit into 64 bits, unlike {seed}")
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, not {count}")


def gradients(loss: Tensor, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradient of a scalar by each leaf; zeros where none arrives, for the differences to judge."""
    if not loss.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    found = torch.autograd.grad(loss, list(leaves.values()), retain_graph=True, allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), found, strict=True)
    }


@torch.no_grad()
def check_input(name: str, here: Tensor, directions: Sequence[Direction], found: Tensor, tolerance: float) -> Row:
    """Judge the slopes (directions, worlds) that a gradient gives; `here` are the loss's terms without any move."""
    differences: list[list[Difference]] = [[] for _ in directions]
    doubtful = [True] * len(directions)
    for step in STEPS:
        for direction, taken, in_doubt in zip(directions, differences, doubtful, strict=True):
            if in_doubt:
                taken.append(difference(direction, here, step))
        slopes = best_slopes(differences, here)
        judged = _judge(found, slopes, tolerance)
        doubtful = judged.doubtful.any(dim=1).tolist()
    return _row(name, directions, found, slopes, judged)


@dataclass(frozen=True)
class _Judged:
    """(directions, worlds) each; what is neither right nor wrong cannot be told."""

    error: Tensor
    """Relative."""
    right: Tensor
    wrong: Tensor
    doubtful: Tensor
    """More steps may tell more."""


def _judge(found: Tensor, slopes: Slopes, tolerance: float) -> _Judged:
    slope, uncertainty = slopes.slope, slopes.uncertainty
    # What the steepest slope is at least: a jump of the loss looks steep, but is no measure for other errors.
    scale = (slope.abs() - uncertainty).clamp(min=0).amax(dim=0)
    level = LEVEL * slopes.resolution
    is_level = (slope.abs() + uncertainty <= level).all(dim=0)
    allowed = torch.where(is_level, level, tolerance * scale)
    error = (found - slope).abs()
    sure = is_level | (uncertainty <= max(SURE, tolerance) * scale)
    wrong = (sure & (error > allowed) & (error > CLEARLY * uncertainty)) | ~found.isfinite()
    right = ~wrong & (error <= allowed) & (uncertainty <= allowed)
    return _Judged(
        error=torch.where(error == 0, 0.0, tolerance * error / allowed),
        right=right,
        wrong=wrong,
        # A longer step sees smaller slopes, and what is level to the first may not be so to the last.
        doubtful=~right | (is_level & (error > 0)),
    )


def _row(name: str, directions: Sequence[Direction], found: Tensor, slopes: Slopes, judged: _Judged) -> Row:
    checked, lost = judged.right | judged.wrong, slopes.uncertainty.isinf()
    error = torch.where(checked, judged.error, 0.0).masked_fill(~found.isfinite(), torch.inf)
    direction, world = divmod(int(error.argmax()), error.shape[1])
    at = (direction, world)
    reading = f"the gradient is {float(found[at]):.9g}"
    if math.isfinite(float(found[at])):
        reading += f", differences give {float(slopes.slope[at]):.9g} +- {float(slopes.uncertainty[at]):.0e}"
    return Row(
        name=name,
        largest=float(found.abs().max()),
        error=float(error[at]),
        worst=f"{directions[direction].name}, world {world}",
        reading=reading,
        wrong=int(judged.wrong.sum()),
        checked=int(checked.sum()),
        kinks=int((~checked & ~lost & slopes.kink).sum()),
        noisy=int((~checked & ~lost & ~slopes.kink).sum()),
        lost=int((~checked & lost).sum()),
    )


def report(rows: Sequence[Row], tolerance: float) -> bool:
    """Print the table, what is wrong with each input that fails, and the summary; True when all pass."""
    print(_table(rows))
    failing, unchecked = [row for row in rows if row.wrong], [row for row in rows if not row.checked]
    for row in failing:
        print(f"FAILS by {row.name} at {row.worst}: {row.reading}")
    for row in unchecked:
        print(f"NOT CHECKED by {row.name}: {_reason(row)}")
    if failing:
        print("gradients are WRONG: see the table")
    elif unchecked:
        print("some inputs could NOT be checked: see above")
    else:
        print(f"gradients are right to {tolerance:g}")
    return not failing and not unchecked


def _table(rows: Sequence[Row]) -> str:
    head = f"{'input':<20}{'largest gradient':>18}{'relative error':>16}  {'worst at':<32}"
    lines = [f"{head}{'checked':>8}{'kinks':>7}{'noise':>7}{'blown up':>10}"]
    for row in rows:
        error, worst = (f"{row.error:.1e}", row.worst) if row.checked else ("-", "-")
        counts = f"{row.checked:>8}{row.kinks:>7}{row.noisy:>7}{row.lost:>10}"
        verdict = "  FAILS" if row.wrong else "" if row.checked else "  NOT CHECKED"
        lines.append(f"{row.name:<20}{row.largest:>18.3e}{error:>16}  {worst:<32}{counts}{verdict}")
    return "\n".join(lines)


def _reason(row: Row) -> str:
    """What was most often in the way."""
    if row.lost >= max(row.kinks, row.noisy):
        return "every world blows up. Raise substeps"
    if row.kinks >= row.noisy:
        return "a kink beside every coordinate. Try fewer steps, more substeps or another seed"
    return "rounding blurs every difference. It changes too little: try a larger tolerance"
