"""`trot render`: a motion as a video, an animation or a strip of pictures, on machines without a screen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from trot.command_line import Source, parse
from trot.progress import Progress

if TYPE_CHECKING:
    from trot.view.motion.trajectory import Trajectory
    from trot.view.video.encode import Pixels
    from trot.view.video.scene import Scene

SIZES = {".mp4": (960, 540), ".gif": (480, 270), ".png": (400, 540)}
"""Width and height of a frame by the file's ending; a gif has nothing but its size against its bytes."""
RATES = {".mp4": 30.0, ".gif": 15.0, ".png": 30.0}


@dataclass
class RenderSettings:
    """Show a motion."""

    source: Source
    """A run folder, a task, path/to/file.py:Class, a robot file (.xml, .urdf), or a saved trajectory (.npz)."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """Ends in .mp4, .gif, or .png for a strip of frames side by side."""
    checkpoint: str = "best"
    """Of a run: initial, iteration_000400, ..., best, last."""
    agent: Literal["policy", "zero", "random"] | None = None
    """By default the policy of a run, or the one that comes with trot for a task; else random actions."""
    stochastic: bool = False
    """With the policy's noise."""
    seed: int = 0
    """Of the starts, the noise and random actions."""
    world: int = 0
    """Which of the worlds to show; each starts in its own way."""
    begin: float = 0.0
    """Seconds of the motion to leave out first."""
    seconds: float = 10.0
    """How much of the motion, at most."""
    fps: float | None = None
    """Frames per second, 30 unless given and 15 in a gif; the motion stays as fast as it is."""
    width: int | None = None
    """Of a frame in pixels; by default 960, 480 in a gif and 400 in a strip."""
    height: int | None = None
    """By default 540, and 270 in a gif."""
    frames: int = 6
    """How many a strip has."""
    save_trajectory: Path | None = None
    """Also keep the motion in this .npz file, to render it again or for `trot view`."""


def render_command(arguments: list[str]) -> int:
    """Write a motion as a video (.mp4), an animation (.gif) or a strip of pictures (.png)."""
    settings = parse(RenderSettings, "trot render", render_command.__doc__, arguments)
    _check(settings)

    # NumPy and MuJoCo are imported only now: help and misspelt options answer at once.
    from trot.view.video.encode import require_writer, write
    from trot.view.video.offscreen import open_context

    require_writer(settings.out)
    # A machine that cannot draw says so before the simulation, and before MuJoCo stumbles over it.
    open_context(16, 16).free()

    from trot.view.video.scene import Scene

    trajectory = _trajectory(settings)
    if settings.save_trajectory is not None:
        trajectory.save(settings.save_trajectory)
    length = (len(trajectory.begins) - 1) * trajectory.dt
    if settings.begin > length:
        raise ValueError(f"the motion lasts {length:.2f} s; there is nothing left after --begin {settings.begin}")
    strip = settings.out.suffix.lower() == ".png"
    fps = _rate(settings)
    wanted = _strip_frames(settings, trajectory) if strip else _video_frames(settings, trajectory, fps)
    with Scene(trajectory, settings.world, *_size(settings)) as scene, Progress(len(wanted)) as progress:
        write(settings.out, _draw(scene, wanted, progress), fps)
    return 0


def _size(settings: RenderSettings) -> tuple[int, int]:
    width, height = SIZES.get(settings.out.suffix.lower(), SIZES[".mp4"])
    return (
        width if settings.width is None else settings.width,
        height if settings.height is None else settings.height,
    )


def _rate(settings: RenderSettings) -> float:
    return RATES.get(settings.out.suffix.lower(), RATES[".mp4"]) if settings.fps is None else settings.fps


def _check(settings: RenderSettings) -> None:
    (width, height), fps = _size(settings), _rate(settings)
    if not (16 <= width <= 8192 and 16 <= height <= 8192):
        raise ValueError(f"width and height must be 16 to 8192 pixels, not {width} x {height}")
    if settings.out.suffix.lower() == ".mp4" and (width % 2 or height % 2):
        raise ValueError(f"width and height of an .mp4 must be even, not {width} x {height}")
    if not (0 < settings.seconds < float("inf") and 0 < fps <= 1000):
        raise ValueError(f"seconds and fps must be above 0, fps at most 1000, not {settings.seconds} and {fps}")
    if not 0 <= settings.begin < float("inf"):
        raise ValueError(f"begin must be 0 or more seconds, not {settings.begin}")
    if settings.frames < 1 or settings.world < 0:
        raise ValueError(f"frames must be at least 1 and world at least 0, not {settings.frames} and {settings.world}")


def _trajectory(settings: RenderSettings) -> Trajectory:
    from trot.view.motion.record import load_or_record

    trajectory = load_or_record(
        settings.source,
        agent=settings.agent,
        checkpoint=settings.checkpoint,
        worlds=settings.world + 1,
        seconds=settings.begin + settings.seconds,
        seed=settings.seed,
        stochastic=settings.stochastic,
    )
    # One that was recorded now has as many as it takes.
    worlds = trajectory.begins.shape[1]
    if settings.world >= worlds:
        raise ValueError(f"'{settings.source}' has {worlds} worlds, and none of number {settings.world}")
    return trajectory


def _video_frames(settings: RenderSettings, trajectory: Trajectory, fps: float) -> list[int]:
    """The trajectory's frame that is nearest in time to each of the video's."""
    last = len(trajectory.begins) - 1
    seconds = min(settings.seconds, last * trajectory.dt - settings.begin)
    times = [settings.begin + index / fps for index in range(max(1, round(seconds * fps)))]
    return [min(round(time / trajectory.dt), last) for time in times]


def _strip_frames(settings: RenderSettings, trajectory: Trajectory) -> list[int]:
    """Evenly spread, the first and the last included."""
    first = round(settings.begin / trajectory.dt)
    last = min(len(trajectory.begins) - 1, round((settings.begin + settings.seconds) / trajectory.dt))
    between = max(settings.frames - 1, 1)
    return [first + round(index * (last - first) / between) for index in range(settings.frames)]


def _draw(scene: Scene, wanted: list[int], progress: Progress) -> Iterator[Pixels]:
    for done, frame in enumerate(wanted, start=1):
        yield scene.draw(frame)
        progress.update(done, {})
