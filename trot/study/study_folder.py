"""What a study leaves: a folder with its data, its figures and the command that made them."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trot.atomic import replacing
from trot.machine import describe_machine
from trot.runs.metrics_lines import table_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMAND, MACHINE = "command.txt", "machine.json"


class StudyFolder:
    """Every file in it is written whole or not at all."""

    def __init__(self, path: Path, command: Sequence[str] = ()) -> None:
        self.path = path
        self.command = shlex.join(command)
        """That makes it, or goes on with it; empty where no command does."""
        self.written: list[Path] = []
        """Files that a reader is told of, in the order in which they came."""
        self.failures: list[str] = []
        """What there is no result of, in words that were printed."""

    @classmethod
    def create(cls, root: Path, name: str, command: Sequence[str]) -> StudyFolder:
        """Make root/name, or root/name-2, -3 ... where that is taken, with the command and the machine in it."""
        folder = cls(_make(root, name), command)
        folder.describe()
        return folder

    def describe(self) -> None:
        """Write down the command and the machine."""
        if self.command:
            self._write(COMMAND, f"{self.command}\n".encode())
        self._write(MACHINE, f"{json.dumps(describe_machine(), indent=2, ensure_ascii=False)}\n".encode())

    def discard(self) -> None:
        """Remove the folder of a study that was refused before it wrote anything."""
        if not self.written:
            for name in (COMMAND, MACHINE):
                (self.path / name).unlink(missing_ok=True)
            # Not empty: someone else has put something there.
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def write_table(self, name: str, columns: Mapping[str, Iterable[object]]) -> None:
        """A CSV file: names to columns of equal length."""
        rows = zip(*columns.values(), strict=True)
        self._tell(name, table_text([list(columns), *([_cell(value) for value in row] for row in rows)]).encode())

    def write_arrays(self, name: str, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """An .npz file, which numpy.load() reads."""
        content = io.BytesIO()
        # savez() has no types for names that come as a mapping.
        np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
        self._tell(name, content.getvalue())

    def write_text(self, name: str, text: str) -> None:
        self._tell(name, text.encode())

    def write_figure(self, name: str, figure: Figure) -> None:
        """As name.png and name.svg."""
        from trot.view.plots.figures import write_figure

        for extension in (".png", ".svg"):
            content = io.BytesIO()
            write_figure(figure, content, extension)
            self._tell(f"{name}{extension}", content.getvalue())

    def _tell(self, name: str, content: bytes) -> None:
        self._write(name, content)
        self.written.append(self.path / name)

    def _write(self, name: str, content: bytes) -> None:
        try:
            with replacing(self.path / name) as file:
                file.write(content)
        except OSError as error:
            raise ValueError(f"cannot write '{self.path / name}': {error.strerror}") from None


def _make(root: Path, name: str) -> Path:
    for number in count(1):
        path = root / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ValueError(f"cannot make the folder '{path}': {error.strerror}") from None
        return path
    raise AssertionError


def _cell(value: object) -> str:
    """Numbers in full: what is read back is what was written."""
    return repr(float(value)) if isinstance(value, float | np.floating) else str(value)
