"""Seeds as they are given on the command line: 0-15, or 0 3 7."""

from __future__ import annotations

import re
from collections.abc import Sequence


def parsed_seeds(texts: Sequence[str]) -> list[int]:
    """All of them in their order by size; a range includes both its ends."""
    seeds: list[int] = []
    for text in texts:
        found = re.fullmatch(r"(\d+)-(\d+)", text)
        if found is not None and int(found[1]) <= int(found[2]):
            seeds += range(int(found[1]), int(found[2]) + 1)
        elif re.fullmatch(r"-?\d+", text):
            seeds.append(int(text))
        else:
            raise ValueError(f"seeds are whole numbers or ranges, such as 0 3 7 or 0-15, not '{text}'")
    twice = [seed for seed in seeds if seeds.count(seed) > 1]
    if twice:
        raise ValueError(f"the seed {twice[0]} is there twice; a seed gives the same run every time")
    return sorted(seeds)
