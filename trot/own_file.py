"""What users bring in files of their own: `my_task.py:Walker`, `my_algorithm.py:MINE`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def names_file(text: str) -> bool:
    """Whether this is `path/to/file.py:NAME`."""
    return ".py:" in text


_loaded: dict[Path, tuple[int, ModuleType]] = {}
"""By path: when the file was last changed, and its module. A class must be the same one whoever asks for it."""


def load_own_file(spec: str, what: str) -> tuple[ModuleType, str]:
    """Run the file of `path/to/file.py:NAME` unless it is loaded as it is; its module, and the name that is wanted.

    Args:
        spec: The path and the name.
        what: Task or algorithm, for the error message.
    """
    path_text, _, wanted = spec.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise FileNotFoundError(f"no {what} file '{path_text}', seen from '{Path.cwd()}'")
    path = path.resolve()
    changed = path.stat().st_mtime_ns
    if path in _loaded and _loaded[path][0] == changed:
        return _loaded[path][1], wanted
    module_name = f"trot_{what}_{path.stem}_{abs(hash(path))}"
    loaded = importlib.util.spec_from_file_location(module_name, path)
    assert loaded is not None and loaded.loader is not None
    module = importlib.util.module_from_spec(loaded)
    # Dataclasses of the file look their module up by name.
    sys.modules[module_name] = module
    # What lies beside the file can be imported by it, as if Python ran it.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    loaded.loader.exec_module(module)
    _loaded[path] = changed, module
    return module, wanted


def file_of(cls: type) -> str | None:
    """`/path/to/file.py:NAME` of a class out of such a file, which no import would find; None for any other."""
    for path, (_, module) in _loaded.items():
        if module.__name__ == cls.__module__:
            return f"{path}:{cls.__qualname__}"
    return None
