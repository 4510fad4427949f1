"""Settings as a run folder keeps them, back into the dataclass that they were."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

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
    """As the hint says: JSON has neither tuples nor dataclasses."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Literal and value not in parts:
        raise ValueError(f"{name} must be one of {', '.join(map(str, parts))}, not {value!r}")
    if kind in (types.UnionType, Union):
        others = [part for part in parts if part is not type(None)]
        return value if value is None else _value(value, others[0] if len(others) == 1 else Any, name)
    if kind is tuple and isinstance(value, list):
        each = [parts[0]] * len(value) if parts[1:] == (...,) else [*parts, *[Any] * len(value)]
        return tuple(_value(item, part, name) for item, part in zip(value, each, strict=False))
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, dict):
        return settings_from(value, hint, name)
    return value
