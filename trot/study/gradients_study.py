"""The study `gradients`, as a command."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trot.command_line import RunPath
from trot.study.gradient_histograms import Gradients, gradients
from trot.study.one_study import Study, StudySettings
from trot.study.study_folder import StudyFolder


@dataclass(frozen=True)
class GradientsSettings(StudySettings):
    """How large the entries of the policy's gradient are, at six moments of a training."""

    run: RunPath
    """A run folder of shac, shac-no-critic or bptt."""
    checkpoints: tuple[str, ...] = ()
    """Such as initial iteration_000400 last; six from the first to the last unless given."""
    worlds: int | None = None
    """For each gradient, an even number; 128 on CUDA, 32 on the CPU unless given."""
    gamma: float | None = None
    """Discount of whole episodes; the run's own unless given, 1 for none."""
    seed: int = 0
    """Of starts and noise."""

    @property
    def subject(self) -> str:
        return self.run.resolve().name


def run(settings: GradientsSettings, folder: StudyFolder) -> str:
    """Measure, write and draw."""
    from trot.study.draw_gradients import draw_histograms, draw_norms

    found = gradients(
        settings.run,
        settings.checkpoints,
        worlds=settings.worlds,
        gamma=settings.gamma,
        seed=settings.seed,
        device=settings.device,
        show_progress=True,
    )
    both = {"episode": found.episode, "window": found.window}
    columns = {f"{name}_{what}": getattr(each, what) for name, each in both.items() for what in ("norm", "cosine")}
    folder.write_table("gradients.csv", {"checkpoint": found.checkpoints, "iteration": found.iterations, **columns})
    arrays: dict[str, NDArray[np.generic]] = {}
    for name, each in both.items():
        edges, counts = each.histogram()
        arrays |= {f"{name}_entries": each.entries, f"{name}_edges": edges, f"{name}_counts": counts}
    folder.write_arrays("gradients.npz", {"iteration": found.iterations, **arrays})
    folder.write_figure("histograms", draw_histograms(found))
    folder.write_figure("norms", draw_norms(found))
    return describe(found)


def describe(found: Gradients) -> str:
    """What was found, as a table."""
    lines = [
        f"{found.name}: gradient by {found.episode.entries.shape[1]:,} weights, {found.worlds} worlds",
        f"{'':<20}{f'whole episode, {found.episode.steps} steps':>32}{f'window, {found.window.steps} steps':>32}",
        f"{'checkpoint':<20}{''.join(f'{name:>16}' for name in ('norm', 'cosine') * 2)}",
    ]
    for row, name in enumerate(found.checkpoints):
        numbers = [each.norm[row] for each in (found.episode, found.window)]
        cosines = [each.cosine[row] for each in (found.episode, found.window)]
        cells = "".join(f"{norm:>16.3g}{cosine:>16.2f}" for norm, cosine in zip(numbers, cosines, strict=True))
        lines.append(f"{name:<20}{cells}")
    lines.append("cosine: between the gradients of two halves of the worlds; 1 is all signal, 0 all noise")
    for name, each in (("whole episode", found.episode), ("window", found.window)):
        if bad := int((~np.isfinite(each.entries)).any(axis=1).sum()):
            lines.append(f"{name}: at {bad} of {len(each.entries)} checkpoints the gradient is not finite")
    return "\n".join(lines)


GRADIENTS = Study(
    name="gradients",
    summary="entries, norm and signal of the policy's gradient over a training: whole episode beside SHAC's window",
    settings=GradientsSettings,
    run=run,
)
