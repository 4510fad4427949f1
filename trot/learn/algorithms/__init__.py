"""The algorithms by name, and your own by file: `my_algorithm.py:MINE`. Each is loaded when it is asked for."""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from trot.own_file import load_own_file, names_file

if TYPE_CHECKING:
    from trot.learn.learner import Algorithm

ALGORITHMS = {
    "shac": "trot.learn.algorithms.shac:SHAC",
    "shac-no-critic": "trot.learn.algorithms.bptt:NO_CRITIC",
    "bptt": "trot.learn.algorithms.bptt:BPTT",
    "ppo": "trot.learn.algorithms.ppo:PPO",
    "sac": "trot.learn.algorithms.sac:SAC",
    "redq": "trot.learn.algorithms.redq:REDQ",
    "pods": "trot.learn.algorithms.pods:PODS",
    "mbpo": "trot.learn.algorithms.mbpo:MBPO",
    "se-mbpo": "trot.learn.algorithms.se_mbpo:SE_MBPO",
    "sapo": "trot.learn.algorithms.sapo:SAPO",
    "rpo": "trot.learn.algorithms.rpo:RPO",
    "ahac": "trot.learn.algorithms.ahac:AHAC",
    "ppo-finish": "trot.learn.algorithms.ppo_finish:PPO_FINISH",
    "shac-mixed": "trot.learn.algorithms.shac_mixed:SHAC_MIXED",
}

DEFAULT_ALGORITHM = "shac"


def find_algorithm(name: str) -> Algorithm:
    """One of ALGORITHMS, or the NAME of `path/to/file.py:NAME`."""
    from trot.learn.learner import Algorithm

    if name in ALGORITHMS:
        module_name, _, wanted = ALGORITHMS[name].partition(":")
        module = importlib.import_module(module_name)
    elif names_file(name):
        module, wanted = load_own_file(name, "algorithm")
    else:
        nearest = difflib.get_close_matches(name, ALGORITHMS, n=1)
        hint = f" Did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(
            f"there is no algorithm '{name}'.{hint} There are: {', '.join(ALGORITHMS)}; your own is "
            "path/to/file.py:NAME"
        )
    found = getattr(module, wanted, None)
    if not isinstance(found, Algorithm):
        here = [key for key, value in vars(module).items() if isinstance(value, Algorithm)]
        raise ValueError(f"{name.rpartition(':')[0]} has no algorithm '{wanted}'; it has: {', '.join(here) or 'none'}")
    return found


def algorithm_lines() -> list[str]:
    """What each is good for, in a line."""
    return [f"{name}: {find_algorithm(name).summary}" for name in ALGORITHMS]


def print_algorithms() -> None:
    """One line per algorithm."""
    print(f"{'algorithm':<16}{'presets':<28}what it does")
    for name in ALGORITHMS:
        found = find_algorithm(name)
        print(f"{name:<16}{', '.join(found.presets):<28}{found.label}: {found.summary}")
    print("Options of one: trot train ant --algo bptt --help. Your own: path/to/file.py:NAME (docs/add_algorithm.md)")
