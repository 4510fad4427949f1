"""`trot view`: watch a run, a task, a robot or a recorded motion, in the browser or as a page to keep.

viser, PyTorch and MuJoCo are imported when they are needed, so that the command line's help answers at once.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trot.command_line import Source, parse
from trot.progress import Progress
from trot.view.browser.page_options import PageSettings, viser_is_missing

if TYPE_CHECKING:
    from trot.view.browser.live import Rollout
    from trot.view.motion.trajectory import Trajectory

DESCRIPTION = "Watch a robot move, in the browser or as a page to keep."
MOST_WORLDS = 1024
"""No page shows more, and each costs memory here and there."""


@dataclass(kw_only=True)
class ViewSettings(PageSettings):
    """Watch a robot move."""

    source: Source
    """A run folder, a task, my_task.py:Class, a robot file (.xml, .urdf), or a recorded motion (.npz)."""
    html: Path | None = None
    """Write a page that plays in any browser without a network, and show nothing."""
    worlds: int = 1
    """Robots side by side."""
    steps: int | None = None
    """To record; by default an episode's."""
    stochastic: bool = False
    """Sample the policy's actions instead of taking their mean."""
    agent: Literal["policy", "zero", "random"] | None = None
    """By default the policy of a run, or the one that comes with trot for a task; else random actions."""
    forces: bool = False
    """Draw contact forces as arrows."""


def view_command(arguments: list[str]) -> int:
    """Watch a robot move; returns the exit code."""
    settings = parse(ViewSettings, "trot view", DESCRIPTION, arguments)
    if viser_is_missing("trot view"):
        return 2
    try:
        _view(settings)
    except (OSError, ValueError) as error:
        # The system's own text starts with an error number; ours says what to mend.
        reason = " ".join(str(error).split())
        if isinstance(error, OSError) and error.filename is not None:
            reason = f"{error.strerror}: {error.filename}"
        print(f"trot view: {reason}", file=sys.stderr)
        return 2
    return 0


def _view(settings: ViewSettings) -> None:
    if not 1 <= settings.worlds <= MOST_WORLDS:
        raise ValueError(f"worlds must be from 1 to {MOST_WORLDS}, not {settings.worlds}")
    from trot.view.browser.live import Rollout, serve
    from trot.view.motion.trajectory import SUFFIX

    first = Rollout(settings.checkpoint, settings.worlds, settings.stochastic, settings.seed)
    if settings.html is not None:
        from trot.atomic import check_destination
        from trot.view.browser.page import write_page

        check_destination(settings.html)
        trajectory = _record(settings, first)
        with Progress(len(trajectory.begins)) as progress:
            size = write_page(
                trajectory,
                settings.html,
                follow=0 if settings.follow else None,
                forces=settings.forces,
                frame_done=lambda done: progress.update(done, {}),
            )
        print(f"{settings.html}: {size / 1e6:.1f} MB, {len(trajectory.begins)} frames")
        return
    serve(
        lambda rollout: _record(settings, rollout),
        first,
        title=Path(settings.source).name or settings.source,
        checkpoints=lambda: _checkpoints(settings.source),
        can_record=not settings.source.lower().endswith(SUFFIX),
        follow=settings.follow,
        forces=settings.forces,
        port=settings.port,
        open_browser=settings.browser,
    )


def _record(settings: ViewSettings, rollout: Rollout) -> Trajectory:
    from trot.view.motion.record import load_or_record

    return load_or_record(
        settings.source,
        agent=settings.agent,
        checkpoint=rollout.checkpoint,
        worlds=rollout.worlds,
        steps=settings.steps,
        seed=rollout.seed,
        stochastic=rollout.stochastic,
    )


def _checkpoints(source: str) -> list[str]:
    """A run's, in the order of its life; none for anything else."""
    from trot.learn.agent import agent_names
    from trot.runs.folder import RunFolder

    return agent_names(RunFolder.open(source)) if Path(source).is_dir() else []
