"""Settings as a run folder keeps them, back into the dataclass that they were."""

from __future__ import annotations

import types
from dataclasses import fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

Settings = TypeVar("Settings")


def settings_from(saved: Any, kind: type[Settings], of: str) -> Settings:
    """The dataclass `kind` from the object that JSON made of one; `of` names it in messages."""
    if not isinstance(saved, dict):
        raise ValueError(f"the settings of {of} must be an object, not {saved!r}")
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if saved.keys() != names:
        missing, unknown = sorted(names - saved.keys()), sorted(saved.keys() - names)
        parts = [f"{verb} {', '.join(some)}" for verb, some in (("lack", missing), ("do not have", unknown)) if some]
        raise ValueError(f"the settings of {of} {', and '.join(parts)}")
    hints = get_type_hints(kind)
    try:
        return kind(**{name: _value(value, hints[name], name) for name, value in saved.items()})
    except TypeError as error:
        raise ValueError(f"a setting of {of} is of the wrong kind: {error}") from None


def _value(value: Any, hint: Any, name: str) -> Any:
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise ValueError(f"{name} must be one of {', '.join(map(str, get_args(hint)))}, not {value!r}")
    wanted = get_args(hint) if get_origin(hint) in (types.UnionType,) else (hint,)
    if any(get_origin(one) is tuple for one in wanted) and isinstance(value, list):
        # JSON has no tuples.
        return tuple(value)
    return value
