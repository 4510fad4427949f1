"""What clang made of Warp's own headers, kept between processes: to make it anew takes as long as a kernel."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import warp as wp

from trot.sim.whole_files import is_whole, put_whole
from trot.unpromised import clang_headers, warp_headers

PRECOMPILED = "*.pch"


@contextlib.contextmanager
def headers_at_hand(cache: Path) -> Iterator[None]:
    """While this is entered, clang finds what an earlier process left in the cache, and what it makes is left there."""
    ours = clang_headers()
    if ours is None:
        yield
        return
    kept = cache / f"trot_headers_{_origin()}"
    # It saves time and nothing else: a disk that is full or cannot be written is no reason to fail.
    with contextlib.suppress(OSError):
        for file in kept.glob(PRECOMPILED):
            # Whoever reads a damaged one may crash.
            if not (ours / file.name).exists() and is_whole(file):
                _copy(file, ours / file.name)
    had = set(ours.glob(PRECOMPILED))
    yield
    with contextlib.suppress(OSError):
        for file in set(ours.glob(PRECOMPILED)) - had:
            kept.mkdir(parents=True, exist_ok=True)
            put_whole(file, kept / file.name)


def _copy(file: Path, to: Path) -> None:
    half = to.with_suffix(".half")
    shutil.copyfile(file, half)
    os.replace(half, to)


def _origin() -> str:
    """What clang compares before it takes a precompiled header: the headers it was made of, and the processor."""
    folder, processor = warp_headers(), wp.get_cpu_kernel_cache_key()
    states = [(file.name, (found := file.stat()).st_size, found.st_mtime_ns) for file in sorted(folder.glob("*.h"))]
    return hashlib.sha256(f"{folder} {processor} {states}".encode()).hexdigest()[:16]
