"""The study `landscape`, as a command."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trot.command_line import RunPath
from trot.study.one_study import Study, StudySettings
from trot.study.one_weight import Landscape, disagreement, landscape
from trot.study.study_folder import StudyFolder


@dataclass(frozen=True)
class LandscapeSettings(StudySettings):
    """How a run's loss depends on one weight of its policy."""

    run: RunPath
    """A run folder of shac, shac-no-critic or bptt."""
    checkpoint: str = "last"
    """Of the run: initial, iteration_000400, ..., best, last."""
    weight: str | None = None
    """As name[row,column], such as network.0.weight[3,1]; the one with the largest gradient unless given."""
    points: int | None = None
    """Policies along the way, an odd number; 201 on CUDA, 51 on the CPU unless given."""
    worlds: int | None = None
    """For each policy, the same for all; 128 on CUDA, 16 on the CPU unless given."""
    reach: float = 1.0
    """The weight is moved by up to this much to both sides."""
    gamma: float | None = None
    """Discount of whole episodes; the run's own unless given, 1 for none."""
    seed: int = 0
    """Of starts and noise."""

    @property
    def subject(self) -> str:
        return self.run.resolve().name


def run(settings: LandscapeSettings, folder: StudyFolder) -> str:
    """Measure, write and draw."""
    from trot.study.draw_landscape import draw_landscape

    found = landscape(
        settings.run,
        settings.checkpoint,
        weight=settings.weight,
        points=settings.points,
        worlds=settings.worlds,
        reach=settings.reach,
        gamma=settings.gamma,
        seed=settings.seed,
        device=settings.device,
        show_progress=True,
    )
    columns = {
        f"{name}_{what}": getattr(curve, what)
        for name, curve in (("episode", found.episode), ("window", found.window))
        for what in ("loss", "derivative", "difference")
    }
    folder.write_table("landscape.csv", {"shift": found.shift, **columns})
    folder.write_figure("landscape", draw_landscape(found))
    return describe(found)


def describe(found: Landscape) -> str:
    """What was found, as a table."""
    lines = [
        f"{found.name}: {found.weight} moved by up to {found.shift[-1]:g}, {len(found.shift)} points, "
        f"{found.worlds} worlds each",
        f"{'loss':<16}{'steps':>6}{'lowest':>12}{'unmoved':>12}{'highest':>12}{'gradient norm':>15}{'off by':>9}",
    ]
    for name, curve in (("whole episode", found.episode), ("window", found.window)):
        numbers = (curve.loss.min(), curve.loss[len(curve.loss) // 2], curve.loss.max())
        lines.append(
            f"{name:<16}{curve.steps:>6}{''.join(f'{number:>12.4g}' for number in numbers)}"
            f"{curve.gradient_norm:>15.3g}{disagreement(curve):>9.2g}"
        )
    lines.append("off by: how far the derivative is from the finite difference, in units of the latter; medians")
    for name, curve in (("whole episode", found.episode), ("window", found.window)):
        if bad := int((~np.isfinite(curve.derivative)).sum()):
            lines.append(f"{name}: the derivative is not finite at {bad} of {len(curve.derivative)} points")
    return "\n".join(lines)


LANDSCAPE = Study(
    name="landscape",
    summary="loss against one weight: the whole episode beside SHAC's window, and their derivatives",
    settings=LandscapeSettings,
    run=run,
)
