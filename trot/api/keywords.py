"""What trot.train() is given by name, checked and put where it belongs: tuned settings, changed by the keywords."""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from trot.learn.algorithms import find_algorithm
from trot.learn.schedule import Schedule
from trot.learn.train import TrainSettings, default_settings, on_cuda

Settings = TypeVar("Settings")

OWN = tuple(field.name for field in fields(TrainSettings) if field.name not in ("settings", "schedule"))
"""What every training takes, besides its schedule and the settings of its algorithm."""


def settings_of_keywords(
    task: str, algo: str, preset: str | None, given: Mapping[str, Any], **own: Any
) -> TrainSettings[Any]:
    """The tuned settings of a task, with what was given in their place.

    A name that nothing has is a TypeError, as in any call in Python, with the nearest one; a value of the wrong kind
    likewise.
    """
    algorithm = find_algorithm(algo)
    preset = preset or algorithm.preset_for(task, on_cuda(own.get("device", "auto")))
    tuned = default_settings(algorithm, task, preset, given.get("start_from"))
    of_schedule, of_algorithm = _names(Schedule()), _names(tuned)
    # As the command calls it, unless an algorithm of the user's own has a setting of that name.
    if "worlds" in given and "num_worlds" in of_algorithm and "worlds" not in of_algorithm:
        if "num_worlds" in given:
            raise TypeError("worlds and num_worlds are the same: give one of them")
        given = {"num_worlds" if name == "worlds" else name: value for name, value in given.items()}
    known = (*OWN, *of_schedule, *of_algorithm)
    for name in given:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {nearest[0]}?" if nearest else ""
            raise TypeError(f"trot.train() takes no '{name}' with {algo}.{hint} It takes: {', '.join(known)}")
    schedule = _changed(Schedule(), {name: value for name, value in given.items() if name in of_schedule})
    settings = _changed(tuned, {name: value for name, value in given.items() if name in of_algorithm})
    asked = TrainSettings(task, settings, algo, preset, schedule=schedule, **own)
    return _changed(asked, {name: value for name, value in given.items() if name in OWN})


def seed_texts(seeds: str | int | Sequence[int | str]) -> tuple[str, ...]:
    """As the command line takes them: "0-15", 3, range(16) or [0, 3, 7]."""
    if isinstance(seeds, str):
        return tuple(seeds.split())
    if isinstance(seeds, Integral):
        return (str(int(seeds)),)
    if isinstance(seeds, Path) or not isinstance(seeds, Sequence):
        raise TypeError(f"seeds are numbers, such as range(16) or [0, 3, 7], or text such as '0-15', not {seeds!r}")
    return tuple(str(seed) for seed in seeds)


def _names(settings: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(settings))


def _changed(settings: Settings, given: Mapping[str, Any]) -> Settings:
    hints = get_type_hints(type(settings))
    taken = {name: _taken(value, hints[name], name) for name, value in given.items()}
    return replace(settings, **taken)  # type: ignore[type-var]


def _taken(value: Any, hint: Any, name: str) -> Any:
    """The value as its kind has it: 1 where 1.0 is meant, a list where a tuple is, NumPy's numbers where Python's."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (types.UnionType, Union):
        if value is None and type(None) in parts:
            return None
        others = [part for part in parts if part is not type(None)]
        return _taken(value, others[0], name) if len(others) == 1 else value
    if kind is Literal:
        if value not in parts:
            raise ValueError(f"{name} must be one of {', '.join(map(str, parts))}, not {value!r}")
        return value
    if kind is tuple:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{name} must be a tuple, not {value!r}")
        each = [parts[0]] * len(value) if parts[1:] == (...,) else [*parts, *[Any] * len(value)]
        return tuple(_taken(item, part, name) for item, part in zip(value, each, strict=False))
    for wanted, taken, word in (
        (bool, bool, "True or False"),
        (int, Integral, "a whole number"),
        (float, Real, "a number"),
    ):
        if hint is wanted:
            # To Python, True is the number 1.
            if not isinstance(value, taken) or (isinstance(value, bool) and wanted is not bool):
                raise TypeError(f"{name} must be {word}, not {value!r}")
            return wanted(value)
    if hint is str and not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {value!r}")
    return value
