"""Files that may be trusted to be what was written: beside each lies an empty file with its checksum in the name."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from pathlib import Path


def is_whole(file: Path) -> bool:
    """Whether it is there, as it was written."""
    return file.is_file() and _witness(file, _checksum(file)).exists()


def has_witness(file: Path) -> bool:
    """Whether it was whole once, as it is now or not."""
    return any(file.parent.glob(f"{file.name}.*.whole"))


def move_whole(file: Path, place: Path) -> None:
    """To a folder that exists on the same disk, in place of what is there."""
    # The witness first, and never a moment without a file: another process may be about to load it.
    _witness(place, _checksum(file)).touch()
    os.replace(file, place)


def put_whole(file: Path, place: Path) -> None:
    """A copy of it, likewise."""
    half = place.with_name(f"{place.name}_{secrets.token_hex(4)}")
    try:
        shutil.copyfile(file, half)
        move_whole(half, place)
    finally:
        half.unlink(missing_ok=True)


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:32]


def _witness(file: Path, checksum: str) -> Path:
    return file.with_name(f"{file.name}.{checksum}.whole")
