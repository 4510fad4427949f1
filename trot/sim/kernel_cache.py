"""Where compiled kernels are kept, and that each is what the compiler wrote.

A damaged object file can end the process that loads it, so what is not known to be whole is built again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from trot.progress import announce
from trot.sim.header_cache import headers_at_hand
from trot.sim.whole_files import has_witness, is_whole, move_whole

Build = Callable[[Path], object]
"""Compiles into a folder that does not exist yet."""

OBJECT = ".o"
"""What clang makes for the CPU is named so; NVRTC's files for CUDA are not."""


def ensure_whole(folder: Path, binary: str, build: Build) -> None:
    """Have a module's binary and Warp's notes about it in its folder, as the compiler wrote them."""
    # Warp names its notes after the folder.
    files = [folder / binary, folder / f"{folder.name}.meta"]
    if all(map(is_whole, files)):
        return
    if any(file.exists() and has_witness(file) for file in files):
        print(f"trot: a compiled kernel in {folder} is damaged, and is built again", file=sys.stderr, flush=True)
    else:
        announce("Building kernels for this robot, seconds to a minute; they are kept for the next time ...")
    elsewhere = folder.with_name(f"{folder.name}_{secrets.token_hex(4)}")
    try:
        with headers_at_hand(folder.parent) if binary.endswith(OBJECT) else contextlib.nullcontext():
            build(elsewhere)
        folder.mkdir(parents=True, exist_ok=True)
        for file in elsewhere.iterdir():
            move_whole(file, folder / file.name)
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)


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
