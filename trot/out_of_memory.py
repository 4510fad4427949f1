"""Memory that there is not enough of: which error says so, and what on the command line asked for it."""

from __future__ import annotations

import re
from collections.abc import Sequence

SIGNS = ("can't allocate memory", "out of memory", "Storage size calculation overflowed", "multiplication overflow")
"""How PyTorch puts it: on the CPU, on CUDA, and where the number of bytes is more than it can count."""


def out_of_memory(error: BaseException) -> bool:
    """Whether it says that there is not enough memory."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in SIGNS)


def memory_message(error: BaseException, arguments: Sequence[str]) -> str:
    """One line, with the option that was given the largest whole number."""
    asked = re.search(r"allocate ([\d.]+) ?(bytes|[KMGT]iB)", str(error))
    size = "" if asked is None else f" for {asked[1]} {asked[2]} at once"
    numbers = _whole_numbers(arguments)
    largest = max(numbers, key=lambda given: given[1], default=None)
    way = "Fewer worlds need less" if largest is None else f"Lower {largest[0]} {largest[1]}"
    return f"there is not enough memory{size}. {way}"


def _whole_numbers(arguments: Sequence[str]) -> list[tuple[str, int]]:
    """Every whole number among the arguments, with its option; one may have several."""
    option, found = "", []
    for argument in " ".join(arguments).replace("=", " ").split():
        if argument.startswith("--"):
            option = argument
        elif option and argument.isdecimal() and option != "--seed":
            found.append((option, int(argument)))
    return found
