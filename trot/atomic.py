"""Files that are written whole or not at all, whatever moment the writer is killed at."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

TEMPORARY_PREFIX = ".writing-"
ABANDONED_AFTER_SECONDS = 600
"""A file takes seconds to write: one that has not grown for this long was left by a writer that was killed."""


def check_destination(path: Path) -> None:
    """Raise where no file can be written to, which is better told before long work than after it."""
    if path.is_dir():
        raise ValueError(f"'{path}' is a folder: name a file to write into")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder '{path.parent}' to write '{path.name}' into")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write into and to read back, which takes its name only when all of it is on the disk."""
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(4)}-{path.name}")
    try:
        with temporary.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def remove_abandoned(folder: Path) -> None:
    """Remove what killed writers left; what a living one writes at this moment stays."""
    before = time.time() - ABANDONED_AFTER_SECONDS
    for file in folder.glob(f"{TEMPORARY_PREFIX}*"):
        # Someone else's folder may be ours to read only, and another reader may have been quicker.
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < before:
                file.unlink()


def _sync_folder(path: Path) -> None:
    """So that the new name outlives a power cut, too."""
    if os.name == "nt":
        # Windows opens no folders, and needs no such call.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
