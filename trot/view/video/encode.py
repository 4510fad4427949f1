"""Frames to a file: video, animation or strip. What writes it is an extra and imported when it is needed."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trot.atomic import check_destination, replacing

Pixels = NDArray[np.uint8]

NEEDS = {".mp4": "imageio_ffmpeg", ".gif": "PIL.Image", ".png": "PIL.Image"}
"""What writes a file with this ending."""
GIF_COLOURS = 64
GAP = 4
"""White pixels between two frames of a strip."""


def require_writer(path: Path) -> None:
    """Raise where the file cannot be written, before any work is put into its frames."""
    suffix = path.suffix.lower()
    if suffix not in NEEDS:
        raise ValueError(f"'{path}' must end in {', '.join(NEEDS)}")
    check_destination(path)
    try:
        importlib.import_module(NEEDS[suffix])
    except ImportError as error:
        raise ValueError(f'to write {suffix} run: pip install "trot[video]" ({error})') from None


def write(path: Path, frames: Iterator[Pixels], fps: float) -> None:
    """Write the file, whole or not at all; of a .png the frames stand side by side."""
    encode = {".mp4": _write_mp4, ".gif": _write_gif, ".png": _write_strip}[path.suffix.lower()]
    with tempfile.TemporaryDirectory() as folder:
        finished = Path(folder) / path.name
        encode(finished, frames, fps)
        try:
            with replacing(path) as file:
                file.write(finished.read_bytes())
        except OSError as error:
            raise ValueError(f"cannot write '{path}': {error.strerror}") from None


def _write_mp4(path: Path, frames: Iterator[Pixels], fps: float) -> None:
    import imageio_ffmpeg

    first = next(frames)
    height, width, _ = first.shape
    # H.264 halves the resolution of colours, so sizes are even; the pixel format is the one that browsers play.
    writer = imageio_ffmpeg.write_frames(
        str(path), (width, height), fps=fps, macro_block_size=2, quality=None, ffmpeg_log_level="error",
        output_params=["-crf", "18", "-movflags", "+faststart"],
    )  # fmt: skip
    writer.send(None)
    try:
        writer.send(first.tobytes())
        for frame in frames:
            writer.send(frame.tobytes())
    finally:
        writer.close()


def _write_gif(path: Path, frames: Iterator[Pixels], fps: float) -> None:
    from PIL import Image

    first = Image.fromarray(next(frames)).quantize(GIF_COLOURS)
    # One palette for all, or the background would flicker. Dots that mix colours would more than double the file.
    undithered = Image.Dither.NONE
    others = [Image.fromarray(frame).quantize(palette=first, dither=undithered) for frame in frames]
    # A GIF counts hundredths of a second; rounded one by one, 30 frames would last 0.9 s.
    ticks = np.round(np.arange(len(others) + 2) * 100 / fps)
    milliseconds = (10 * np.diff(ticks)).astype(int).tolist()
    first.save(path, save_all=True, append_images=others, duration=milliseconds, loop=0, disposal=1)


def _write_strip(path: Path, frames: Iterator[Pixels], fps: float) -> None:
    from PIL import Image

    columns: list[Pixels] = []
    for frame in frames:
        gap = np.full((len(frame), GAP, 3), 255, np.uint8)
        columns += [gap, frame] if columns else [frame]
    Image.fromarray(np.concatenate(columns, axis=1)).save(path)
