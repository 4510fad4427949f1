"""A checkpoint's file: what torch.save() writes, sealed with a checksum of all of it.

The seal is the comment that a zip archive may end with, so that plain torch.load() reads the file, too.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import torch

SEAL = b"trot sha256 "
SEAL_LENGTH = len(SEAL) + 2 * hashlib.sha256().digest_size
END_RECORD, END_RECORD_LENGTH = b"PK\x05\x06", 22
"""How the last part of a zip archive begins, and how long it is without a comment; its last two bytes, the length of
the comment, are 0 then."""


def write_checkpoint(file: BinaryIO, content: dict[str, Any]) -> None:
    """Write all of a file that is open for writing and reading."""
    import torch

    try:
        torch.save(content, file)
    except RuntimeError as error:
        # PyTorch closes its archive after a failed write, too, and complains of that instead of the full disk.
        raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None
    file.seek(-2, 2)
    file.write(SEAL_LENGTH.to_bytes(2, "little"))
    seal = _seal(file, file.tell())
    file.seek(0, 2)
    file.write(seal)


def read_checkpoint(path: Path, device: str | torch.device) -> Any:
    """What was written. Raises ValueError with the reason where that is not what the file holds now."""
    import torch

    # Opened once: between two times another file may take the name.
    with path.open("rb") as file:
        _check_seal(file)
        file.seek(0)
        try:
            return torch.load(file, map_location=device, weights_only=True)
        except Exception as error:
            # Whatever PyTorch makes of a broken file; the first line says it, the rest is advice of no use here.
            raise ValueError((str(error).splitlines() or [type(error).__name__])[0]) from None


def _check_seal(file: BinaryIO) -> None:
    """Raise where the file is not what was sealed. Files of earlier versions end without a seal, and pass."""
    size = file.seek(0, 2)
    file.seek(max(size - END_RECORD_LENGTH, 0))
    end = file.read()
    # A flipped bit cannot make this of a sealed file, whose end is the text of the seal.
    if end.startswith(END_RECORD) and end.endswith(b"\0\0"):
        return
    sealed = max(size - SEAL_LENGTH, 0)
    file.seek(sealed)
    if file.read() != _seal(file, sealed):
        raise ValueError("it is damaged, its checksum does not fit its content")


def _seal(file: BinaryIO, length: int) -> bytes:
    """For so many bytes from the beginning of the file."""
    file.seek(0)
    digest = hashlib.sha256()
    for begin in range(0, length, 1 << 20):
        digest.update(file.read(min(1 << 20, length - begin)))
    return SEAL + digest.hexdigest().encode()
