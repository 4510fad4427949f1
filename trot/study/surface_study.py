"""The study `surface`, as a command."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tyro

from trot.command_line import RunPath
from trot.study.one_study import Study, StudySettings
from trot.study.study_folder import StudyFolder
from trot.study.two_directions import Floats, Surface, surface


@dataclass(frozen=True)
class SurfaceSettings(StudySettings):
    """How a run's loss looks over two random directions in the space of weights."""

    run: RunPath
    """A run folder of shac, shac-no-critic or bptt."""
    checkpoint: str = "last"
    """Of the run: initial, iteration_000400, ..., best, last."""
    points: int | None = None
    """Along either direction, an odd number; 41 on CUDA, 21 on the CPU unless given."""
    worlds: int | None = None
    """For each policy, the same for all; 128 on CUDA, 8 on the CPU unless given."""
    reach: float = 1.0
    """Policies are moved by up to this much of each direction to both sides."""
    unscaled: tyro.conf.FlagCreatePairsOff[bool] = False
    """Directions as they are drawn; else those of each layer get the length of its weights."""
    gamma: float | None = None
    """Discount of whole episodes; the run's own unless given, 1 for none."""
    seed: int = 0
    """Of directions, starts and noise."""

    @property
    def subject(self) -> str:
        return self.run.resolve().name


def run(settings: SurfaceSettings, folder: StudyFolder) -> str:
    """Measure, write and draw."""
    from trot.study.draw_surface import draw_surface
    from trot.study.surface_page import surface_page

    found = surface(
        settings.run,
        settings.checkpoint,
        points=settings.points,
        worlds=settings.worlds,
        reach=settings.reach,
        scaled=not settings.unscaled,
        gamma=settings.gamma,
        seed=settings.seed,
        device=settings.device,
        show_progress=True,
    )
    arrays = {"shift": found.shift, "episode_loss": found.episode.loss, "window_loss": found.window.loss}
    folder.write_arrays("surface.npz", arrays)
    folder.write_figure("surface", draw_surface(found))
    folder.write_text("surface.html", surface_page(found))
    return describe(found)


def describe(found: Surface) -> str:
    """What was found, as a table."""
    points, middle = len(found.shift), len(found.shift) // 2
    kind = "scaled to its layers" if found.scaled else "as they were drawn"
    lines = [
        f"{found.name}: two directions {kind}, {points} x {points} points, {found.worlds} worlds each",
        f"{'loss':<16}{'steps':>6}{'lowest':>12}{'unmoved':>12}{'highest':>12}{'roughness':>12}",
    ]
    for name, each in (("whole episode", found.episode), ("window", found.window)):
        numbers = (each.loss.min(), each.loss[middle, middle], each.loss.max())
        cells = "".join(f"{number:>12.4g}" for number in numbers)
        lines.append(f"{name:<16}{each.steps:>6}{cells}{roughness(each.loss):>12.2g}")
    lines.append("roughness: how far a point is from the mean of its neighbours, in units of highest - lowest")
    return "\n".join(lines)


def roughness(loss: Floats) -> float:
    """Mean distance of inner points from the mean of their four neighbours, relative to the range of the losses."""
    inner = loss[1:-1, 1:-1]
    around = (loss[:-2, 1:-1] + loss[2:, 1:-1] + loss[1:-1, :-2] + loss[1:-1, 2:]) / 4
    return float(np.abs(inner - around).mean() / max(np.ptp(loss), np.finfo(np.float64).tiny))


SURFACE = Study(
    name="surface",
    summary="loss over two random directions of weights: the whole episode beside SHAC's window; a page to turn them",
    settings=SurfaceSettings,
    run=run,
)
