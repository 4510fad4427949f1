"""How a command's help names the values that options take: `TEXT`, not `{None}|STR`; `N ...`, not `[INT [INT ...]]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

KINDS = {"STR": "TEXT", "INT": "N", "FLOAT": "NUMBER"}
MANY = re.compile(r"\[([^\[\]]+) \[(?:\1 )?\.\.\.\]\]")
NOTHING = "none"
"""What an option is called that is not given, and has nothing in its place."""


def readable(metavar: str) -> str:
    """Tyro's name of a kind of values, in plain words."""
    metavar = metavar.removeprefix("{None}|").replace("{None,", "{")
    metavar = MANY.sub(r"\1 ...", metavar)
    # Braces are for choices; around a series they say nothing.
    metavar = re.sub(r"\{([^{},]* \.\.\.)\}", r"\1", metavar).replace("|", " | ")
    # A choice is what is typed, whatever it looks like.
    return re.sub(r"\{[^}]*\}|\b[A-Z]+\b", lambda found: KINDS.get(found[0], found[0]), metavar)


def help_words() -> ConstructorRegistry:
    """Reads arguments as tyro does, and calls them by plain words. A registry knows one command line at a time."""
    registry, asking = ConstructorRegistry(), False

    @registry.primitive_rule
    def renamed(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        nonlocal asking
        if asking:
            # The question is this rule's own, for what tyro has.
            return None
        asking = True
        try:
            spec = ConstructorRegistry.get_primitive_spec(kind)
        finally:
            asking = False
        if not isinstance(spec, PrimitiveConstructorSpec):
            return None
        return replace(spec, metavar=readable(spec.metavar), str_from_instance=_told(spec.str_from_instance))

    return registry


def _told(written: Callable[[Any], list[str]]) -> Callable[[Any], list[str]]:
    return lambda value: [NOTHING] if value is None or value == () else written(value)
