"""Where compiled kernels are kept, and that each is what the compiler wrote.

A damaged object file can end the process that loads it, so each file has a witness: an empty file beside it that has
the checksum in its name. What has no witness is built again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from trot.progress import announce

Build = Callable[[Path], object]
"""Compiles into a folder that does not exist yet."""


def ensure_whole(folder: Path, binary: str, build: Build) -> None:
    """Have a module's binary and Warp's notes about it in its folder, as the compiler wrote them."""
    # Warp names its notes after the folder.
    files = [folder / binary, folder / f"{folder.name}.meta"]
    if all(map(_is_whole, files)):
        return
    if any(file.exists() and _witnesses(file) for file in files):
        print(f"trot: a compiled kernel in {folder} is damaged, and is built again", file=sys.stderr, flush=True)
    else:
        announce("Building kernels for this robot, seconds to a minute; they are kept for the next time ...")
    elsewhere = folder.with_name(f"{folder.name}_{secrets.token_hex(4)}")
    try:
        build(elsewhere)
        folder.mkdir(parents=True, exist_ok=True)
        for file in elsewhere.iterdir():
            place = folder / file.name
            # The witness first, and never a moment without a file: another process may be about to load it.
            _witness(place, _checksum(file)).touch()
            os.replace(file, place)
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)


def _is_whole(file: Path) -> bool:
    return file.is_file() and _witness(file, _checksum(file)).exists()


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:32]


def _witness(file: Path, checksum: str) -> Path:
    return file.with_name(f"{file.name}.{checksum}.whole")


def _witnesses(file: Path) -> list[Path]:
    return list(file.parent.glob(f"{file.name}.*.whole"))


def cannot_write(folder: Path) -> OSError | None:
    """Why no folder can be made in this one; None where it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Tried rather than asked: permissions do not tell of a file system that is mounted read-only.
        os.rmdir(tempfile.mkdtemp(dir=folder))
    except OSError as error:
        return error
    return None


def temporary_cache(reason: OSError) -> Path:
    """A folder for kernels where the usual one cannot be written, the same at the next start; says so on stderr."""
    folder = Path(tempfile.gettempdir()) / f"trot-kernels-{os.getuid() if hasattr(os, 'getuid') else 'own'}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _only_ours(folder):
        folder = Path(tempfile.mkdtemp(prefix="trot-kernels-"))
    print(
        f"trot: the folder for compiled kernels cannot be written ({reason}); they go to {folder}. "
        "WARP_CACHE_PATH names another one",
        file=sys.stderr,
        flush=True,
    )
    return folder


def _only_ours(folder: Path) -> bool:
    """Whether nobody else could have put code there for us to run."""
    found = folder.lstat()
    if not hasattr(os, "getuid"):
        return stat.S_ISDIR(found.st_mode)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) & 0o077 == 0
