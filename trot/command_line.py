"""Reading a command's arguments: tyro does it, and what it would say in a box becomes one line."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from trot.help_words import help_words

Parsed = TypeVar("Parsed")
Result = TypeVar("Result")

WORLDS = tyro.conf.arg(name="worlds")
WorldCount = Annotated[int, WORLDS]
"""How many worlds: every command calls it --worlds."""
FORMER_NAMES = {"--num-worlds": "--worlds", "--num_worlds": "--worlds", "--root": "--runs"}
"""Of options, which still go by them."""

TaskName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
Source = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SOURCE")]
RunPath = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
"""What comes first on a command line, by the name that its help gives it."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RULE = re.compile(r"[─-]+")


def parse(kind: Callable[..., Parsed], prog: str, description: str | None, arguments: list[str], **how: Any) -> Parsed:
    """What tyro.cli() makes of the arguments. Raises ValueError, with one line, where it cannot."""
    present = [present_name(argument) for argument in arguments]
    try:
        return _parsed(kind, prog, description, present, **how)
    except ValueError as error:
        # An algorithm of a user's own may call its options by the former names, and the user by either.
        for former in (arguments, [_former_name(argument) for argument in present]):
            with contextlib.suppress(ValueError):
                if present != former:
                    return _parsed(kind, prog, description, former, **how)
        raise error from None


def _parsed(
    kind: Callable[..., Parsed], prog: str, description: str | None, arguments: list[str], **how: Any
) -> Parsed:  # fmt: skip
    said = io.StringIO()
    description = None if description is None else inspect.cleandoc(description)
    try:
        with contextlib.redirect_stderr(said):
            parsed: Parsed = tyro.cli(
                kind, prog=prog, description=description, args=arguments, registry=help_words(), **how
            )  # fmt: skip
    except SystemExit as end:
        if not end.code:
            raise
        raise ValueError(f"{_one_line(said.getvalue())} ({prog} --help shows all options)") from None
    sys.stderr.write(said.getvalue())
    return parsed


def parse_call(
    function: Callable[..., Result], prog: str, description: str | None, arguments: list[str]
) -> Callable[[], Result]:
    """A call of the function with these arguments, yet to be made."""

    @functools.wraps(function)
    def prepared(*given: Any, **named: Any) -> Callable[[], Result]:
        return functools.partial(function, *given, **named)

    return parse(prepared, prog, description, arguments)


def present_name(argument: str) -> str:
    """Of an option that may go by a former name, with its value behind = where it has one."""
    name, equals, value = argument.partition("=")
    return FORMER_NAMES.get(name, name) + equals + value


def _former_name(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return ("--num-worlds" if name == "--worlds" else name) + equals + value


def _one_line(box: str) -> str:
    """What a box says first, up to its first rule, and the options it says may have been meant."""
    parts: list[list[str]] = [[]]
    for line in COLOUR.sub("", box).splitlines():
        text = line.strip("│ ")
        if RULE.fullmatch(text):
            parts.append([])
        elif text and text[0] not in "╭╰":
            parts[-1].append(text)
    if "╭" not in box:
        # Where the output takes ASCII alone, the title stands over a rule instead of in the frame.
        del parts[0]
    if not parts or not parts[0]:
        return " ".join(box.split())
    # Where it names a group of settings, no option is called so.
    message = re.sub(r"^Error parsing (?!-)[\w.]+: ", "", " ".join(parts[0]))
    suggestions = [part for part in parts[1:] if part and part[0].startswith("Perhaps")]
    meant = [line.split()[0].rstrip(",") for part in suggestions for line in part if line.startswith("--")]
    return f"{message}; perhaps you meant {', '.join(meant)}" if meant else message
