"""The lock of a run folder: one process writes into it at a time. The lock dies with its process."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import sys
import weakref
from pathlib import Path

LOCK = "writer.lock"
"""The lock is the system's, on this file; its text only says whose it is. The file stays where it is."""
BEYOND_THE_TEXT = 1 << 30
"""Windows locks bytes, which nobody else can read then: one far behind the text."""
TAKEN = (errno.EWOULDBLOCK, errno.EACCES)
"""What the system answers where another process has the lock; anything else says that this disk has no locks."""


class RunLock:
    """Held from the moment it is made until release(), or until the process ends in whatever way."""

    def __init__(self, folder: Path) -> None:
        """Take the lock of a run folder. Raises ValueError where another one has it, and OSError as the disk does."""
        self._path = folder / LOCK
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            _lock(descriptor)
        except OSError as error:
            if error.errno in TAKEN:
                owner = os.read(descriptor, 200).decode(errors="replace").strip() or "another process"
                self._close()
                raise ValueError(
                    f"'{folder}' is being trained by {owner}: wait for its end, or stop it with Ctrl-C there"
                ) from None
            print(f"'{folder}' cannot be locked: {error.strerror}. Do not train it twice at once.", file=sys.stderr)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {platform.node()}\n".encode())

    def release(self) -> None:
        """Let others write; nothing where it is released already."""
        if self._close.alive:
            with contextlib.suppress(OSError):
                os.truncate(self._path, 0)
            self._close()


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, BEYOND_THE_TEXT, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
