"""A run on disk: settings.json, machine.json, metrics.csv and checkpoints/. Knows no algorithm.

Whatever moment a writer is killed at, the folder opens, every checkpoint in it is whole, and metrics.csv lacks at most
the lines that were being written.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from trot.atomic import remove_abandoned, replacing
from trot.machine import describe_machine
from trot.runs.checkpoint_file import read_checkpoint, write_checkpoint
from trot.runs.lock import RunLock
from trot.runs.metrics_lines import cells, mend, parse_row, table_text
from trot.runs.older_settings import upgraded_settings

if TYPE_CHECKING:
    import torch

SETTINGS, MACHINE, METRICS, CHECKPOINTS = "settings.json", "machine.json", "metrics.csv", "checkpoints"
DAMAGED_METRICS = "metrics.damaged.csv"
REQUIRED_SETTINGS = ("task", "algo", "seed")
CHECKSUM = "checksum"
"""The first key of settings.json, so that its line can be removed from it by hand; earlier versions wrote none."""


class RunFolder:
    """One run. Any number of processes may read it while a single one writes.

    The writer's lock is held until release(), the end of a `with` block, or the end of the process.
    """

    def __init__(self, path: Path, settings: dict[str, Any], lock: RunLock | None = None) -> None:
        self.path, self.settings, self._lock = path, settings, lock

    def __repr__(self) -> str:
        return f"RunFolder({self.path}: {self.told()})"

    def told(self) -> str:
        """The run in a few words: task, algorithm and seed, how far it is, and its best return."""
        task, algo, seed = (str(self.settings[key]) for key in REQUIRED_SETTINGS)
        # A file's class, without the way to the file.
        words = [task.rpartition(":")[2], algo.rpartition(":")[2], f"seed {seed}"]
        try:
            row = self.last_metrics()
        except (OSError, ValueError):
            # To look at a folder must not fail for a damaged line in it.
            return ", ".join([*words, "damaged metrics"])
        words.append(f"{row['iteration']:.0f} iterations" if "iteration" in row else "no iteration yet")
        best = row.get("best_return", math.nan)
        return ", ".join([*words, *([f"best return {best:.1f}"] if math.isfinite(best) else [])])

    @classmethod
    def create(cls, root: str | os.PathLike[str], name: str, settings: dict[str, Any]) -> RunFolder:
        """Make root/name, or root/name-2, -3 ... where that is taken, with the settings and the machine in it.

        It is locked: nobody else goes on with it meanwhile.
        """
        if Path(name).name != name or name in ("", ".", ".."):
            raise ValueError(f"a run's name is the name of one folder, not '{name}'")
        missing = [key for key in REQUIRED_SETTINGS if key not in settings]
        if missing:
            raise ValueError(f"a run's settings need {', '.join(missing)}")
        settings_text = _settings_text(settings)
        machine_text = json.dumps(describe_machine(), indent=2, ensure_ascii=False) + "\n"
        try:
            path = _make_folder(Path(root), name)
            lock = RunLock(path)
            # The settings come last: a folder that has them is complete.
            for file_name, text in ((MACHINE, machine_text), (SETTINGS, settings_text)):
                with replacing(path / file_name) as file:
                    file.write(text.encode())
        except OSError as error:
            raise ValueError(f"cannot make a run folder in '{root}': {error.strerror}") from None
        return cls(path, json.loads(json.dumps(settings)), lock)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """An existing run, to read. Nothing in the folder changes."""
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"no such run folder: '{path}'")
        if not path.is_dir():
            raise ValueError(f"'{path}' is a file, not a run folder")
        return cls(path, upgraded_settings(_read_settings(path)))

    @classmethod
    def reopen(cls, path: str | os.PathLike[str]) -> RunFolder:
        """An existing run, to go on with, and locked. What killed writers left behind is cleared away.

        Raises ValueError where another process trains it, or where nothing can be written into it.
        """
        run = cls.open(path)
        try:
            run._lock = RunLock(run.path)
        except OSError as error:
            raise ValueError(f"cannot write into the run folder '{path}': {error.strerror}") from None
        # Read again: until now another process may have changed them.
        run.settings = upgraded_settings(_read_settings(run.path))
        for folder in (run.path, run.path / CHECKPOINTS):
            remove_abandoned(folder)
        return run

    def release(self) -> None:
        """Let others go on with the run."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def change_settings(self, **changes: Any) -> None:
        """Write settings.json anew where one of these differs from what it says, or an earlier version wrote it."""
        changed = json.loads(json.dumps({**self.settings, **changes}))
        if changed != _read_settings(self.path):
            with replacing(self.path / SETTINGS) as file:
                file.write(_settings_text(changed).encode())
        self.settings = changed

    def append_metrics(self, rows: Sequence[dict[str, float | int]]) -> None:
        """Add rows to metrics.csv; they are on the disk when this returns."""
        if not rows:
            return
        with (self.path / METRICS).open("a+b") as file:
            _drop_torn_line(file)
            file.seek(0)
            header = file.readline().decode()
            columns = cells(header) if header else list(rows[0])
            for row in rows:
                if row.keys() != set(columns):
                    raise ValueError(
                        f"{self.path / METRICS} has the columns {', '.join(columns)}; this row has {', '.join(row)}"
                    )
            texts = [[_number_text(row[column]) for column in columns] for row in rows]
            file.write(table_text(texts if header else [columns, *texts]).encode())
            file.flush()
            os.fsync(file.fileno())

    def read_metrics(self) -> list[dict[str, float]]:
        """Every row of metrics.csv. A last line that is only half there is left out."""
        lines = self._metrics_lines()
        return [self._row(lines[0], line, number) for number, line in enumerate(lines[1:], start=2)]

    def last_metrics(self) -> dict[str, float]:
        """The last row of metrics.csv, empty without one; quicker than to read them all."""
        lines = self._metrics_lines()
        return self._row(lines[0], lines[-1], len(lines)) if len(lines) > 1 else {}

    def metric_columns(self) -> list[str]:
        """The header of metrics.csv, empty without one."""
        lines = self._metrics_lines()
        return cells(lines[0]) if lines else []

    def metrics_checksum(self) -> str:
        """Of metrics.csv as it is now; truncate_metrics() tells by it whether a number was changed since."""
        return _checksum("".join(f"{line}\n" for line in self._metrics_lines()))

    def truncate_metrics(
        self, last_iteration: int, columns: Sequence[str] = (), checksum: str | None = None
    ) -> str | None:
        """Drop the rows after this iteration, so that a resumed run writes them once more and not twice.

        Lines that are damaged are dropped, too, and a header that has not these columns is written anew; without
        columns it is taken as it is. Returns what was damaged, in words; the damaged file stays beside the mended one.
        The checksum is that of the rows up to this iteration, where it is known.
        """
        lines, columns = self._metrics_lines(), columns or self.metric_columns()
        if not columns:
            return None
        if "iteration" not in columns:
            raise ValueError(f"{self.path / METRICS} has no column 'iteration' to truncate by")
        mended = mend(lines, columns, last_iteration)
        text, fault = "".join(f"{line}\n" for line in mended.lines), mended.fault
        if fault is None and checksum not in (None, _checksum(text)):
            fault = "every line can be read, but not every number is the one that was written"
        if fault is not None and lines:
            with replacing(self.path / DAMAGED_METRICS) as file:
                file.write((self.path / METRICS).read_bytes())
        if mended.lines != lines:
            with replacing(self.path / METRICS) as file:
                file.write(text.encode())
        return fault

    def best_return(self) -> float | None:
        """The best return so far, None as long as there is none."""
        best = self.last_metrics().get("best_return", math.nan)
        return best if math.isfinite(best) else None

    def save_checkpoint(self, name: str, content: dict[str, Any]) -> Path:
        """Write checkpoints/NAME.pt, whole or not at all. Content: tensors, numbers, text, and dicts and lists of them.

        It is on the disk when this returns, carries a checksum, and loads with weights_only=True.
        """
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(f"a checkpoint's name is of letters, digits, _ and -, not '{name}'")
        _refuse_unloadable(content, "content")
        path = self._checkpoint_path(name)
        path.parent.mkdir(exist_ok=True)
        with replacing(path) as file:
            write_checkpoint(file, content)
        return path

    def load_checkpoint(self, name: str = "last", device: str | torch.device = "cpu") -> dict[str, Any]:
        """What save_checkpoint() was given, its tensors on the device."""
        if not name or re.search(r"[/\\:\0]", name):
            raise ValueError(
                f"a checkpoint's name is that of a file in {CHECKPOINTS}, without its ending, not '{name}'"
            )
        path = self._checkpoint_path(name)
        if not path.is_file():
            names = ", ".join(self.checkpoint_names()) or "none yet"
            raise FileNotFoundError(f"'{self.path}' has no checkpoint '{name}'; it has: {names}")
        try:
            content = read_checkpoint(path, device)
        except OSError as error:
            raise ValueError(f"the checkpoint '{path}' cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"the checkpoint '{path}' cannot be read: {error}") from None
        if not isinstance(content, dict):
            raise ValueError(f"the checkpoint '{path}' cannot be read: it holds a {type(content).__name__}, not a dict")
        return content

    def checkpoint_names(self) -> list[str]:
        """In the order of a run's life: initial, iteration_000400 ..., best, last; then any others."""
        order = {"initial": 0, "iteration": 1, "best": 2, "last": 3}

        def place(name: str) -> tuple[int, int, str]:
            kind, _, number = name.partition("_")
            return order.get(kind, len(order)), int(number) if number.isdecimal() else 0, name

        files = (self.path / CHECKPOINTS).glob("*.pt")
        # The pattern finds hidden files too, and with them what is being written.
        return sorted((file.stem for file in files if not file.name.startswith(".")), key=place)

    def _checkpoint_path(self, name: str) -> Path:
        return self.path / CHECKPOINTS / f"{name}.pt"

    def _metrics_lines(self) -> list[str]:
        """Header and rows, as far as they end in a line's end."""
        try:
            text = (self.path / METRICS).read_bytes()
        except FileNotFoundError:
            return []
        return text.decode(errors="replace").split("\n")[:-1]

    def _row(self, header: str, line: str, number: int) -> dict[str, float]:
        try:
            return parse_row(cells(header), line)
        except ValueError as error:
            raise ValueError(f"{self.path / METRICS} is broken in line {number}: {error}") from None


def _make_folder(root: Path, name: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = root / (name if number == 1 else f"{name}-{number}")
        # Making it is the only test whether it is there that two processes cannot both pass.
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError("count() does not end")


def _read_settings(path: Path) -> dict[str, Any]:
    file = path / SETTINGS
    if not file.is_file():
        raise ValueError(f"'{path}' is not a run folder: it has no {SETTINGS}")
    try:
        settings = json.loads(file.read_bytes())
    except OSError as error:
        raise ValueError(f"'{file}' cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"'{file}' is broken: {error}") from None
    missing = [key for key in REQUIRED_SETTINGS if not isinstance(settings, dict) or key not in settings]
    if missing:
        raise ValueError(f"'{file}' is not a run's: it lacks {', '.join(missing)}")
    found: dict[str, Any] = settings
    written = found.pop(CHECKSUM, None)
    # Also where the checksum is there and its name is damaged.
    nameless = any(re.fullmatch("[0-9a-f]{64}", str(value)) for value in found.values())
    if nameless or written not in (None, _settings_checksum(found)):
        raise ValueError(
            f"'{file}' is not as trot wrote it, its checksum does not fit. Put it back; or, where it was changed on "
            f'purpose, remove the line "{CHECKSUM}" from it'
        )
    return found


def _settings_text(settings: dict[str, Any]) -> str:
    sealed = {CHECKSUM: _settings_checksum(settings), **settings}
    return json.dumps(sealed, indent=2, ensure_ascii=False) + "\n"


def _settings_checksum(settings: dict[str, Any]) -> str:
    # Of what they say, in whatever order and with whatever spaces.
    return _checksum(json.dumps(settings, sort_keys=True))


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _drop_torn_line(file: BinaryIO) -> None:
    """Cut off what a killed writer left without a line's end, so that nothing is appended to it."""
    if file.seek(0, os.SEEK_END) == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _number_text(value: float | int) -> str:
    # repr() of a float reads back as the same float; NumPy's numbers and one-element tensors become plain ones first.
    return str(int(value)) if isinstance(value, int) else repr(float(value))


def _refuse_unloadable(value: Any, where: str) -> None:
    """Better now than hours later, when the checkpoint is needed and does not load."""
    import torch

    if isinstance(value, torch.Tensor) or value is None:
        return
    kind = type(value)
    if kind in (dict, OrderedDict):
        for key, item in value.items():
            _refuse_unloadable(key, f"a key of {where}")
            _refuse_unloadable(item, f"{where}[{key!r}]")
    elif kind in (list, tuple):
        for index, item in enumerate(value):
            _refuse_unloadable(item, f"{where}[{index}]")
    # The kind itself: numpy.float64 is a float to isinstance(), and does not load.
    elif kind not in (bool, int, float, str, torch.Size, torch.dtype, torch.device):
        raise TypeError(f"a checkpoint holds tensors, numbers and text; {where} is a {kind.__module__}.{kind.__name__}")
