"""`trot tune`: searches for settings with many trials in one batch, and ends with the command that trains the best."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from trot.atomic import replacing
from trot.command_line import TaskName, parse
from trot.compare.train_members import only_here
from trot.envs.device import existing_device
from trot.envs.ranks import refuse_ranks
from trot.learn.algorithms import DEFAULT_ALGORITHM
from trot.learn.train import choose_device
from trot.tune.batch import Batch
from trot.tune.population import Population
from trot.tune.search import Asked, Group, described, folder_name, group_folder, make_groups
from trot.tune.table import ended_text, write_table

STATE = "tune.json"


@dataclass
class TuneSettings:
    """What to search for, on which task, for how long."""

    task: TaskName
    """One of `trot tasks`, or path/to/file.py:Class."""
    over: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=[SCALE:]LOW:HIGH...")]
    """Settings to search for, each in a range: actor_lr=log:3e-4:1e-2, max_grad_norm=0.5:2, gamma=log1m:0.95:0.999."""
    members: int = 16
    """Trials at a time, in one batch."""
    rounds: int = 4
    """After each, the worse half gives its places to new trials."""
    iterations: int | None = None
    """Of a round; without it, all rounds together are as long as a training of this task."""
    algo: str = DEFAULT_ALGORITHM
    """shac, shac-no-critic or bptt, or path/to/file.py:NAME of one that takes members and has own_settings."""
    preset: str | None = None
    """Where all other settings come from; the algorithm's first preset unless given."""
    groups: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=A,B...")] = ()
    """Other settings, a search for each value, one after the other: horizon=16,32 actor_hidden=64,64x64."""
    changes: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE...")] = ()
    """Other settings of `trot train`, for all trials: worlds=128."""
    seed: int = 0
    """Of all trials, and of the search."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU."""
    runs: Path = Path("runs")
    """Where the folder of the search is made."""
    name: str | None = None
    """Of that folder; tune-TASK without it."""


def tune_command(arguments: list[str]) -> int:
    """Search for settings by which a task is learned best. All trials of a round learn in one batch.

    The same command goes on where a search was stopped, and prints the table again where it is over.
    """
    given = parse(TuneSettings, "trot tune", tune_command.__doc__, arguments)
    refuse_ranks("trot tune")
    device = choose_device(given.device)
    existing_device(device)
    asked = Asked(
        given.task, given.over, given.members, given.rounds, given.iterations, given.algo, given.preset, given.groups,
        given.changes, given.seed, device,
    )  # fmt: skip
    groups = make_groups(asked)
    folder = given.runs / (given.name or folder_name(given.task))
    again = f"trot tune {shlex.join(arguments)}"
    with only_here(folder), _stoppable(again):
        populations = _begun(folder, asked, groups)
        _print_start(groups, populations, folder)
        for group in groups:

            def keep() -> None:
                _write_state(folder, asked, populations)

            keep()
            if group.name:
                print(f"{group.name}:", flush=True)
            Batch(group, populations[group.name], group_folder(folder, group), keep, again).run_to_the_end()
        path = write_table(folder, groups, populations)
        print(ended_text(folder, groups, populations), flush=True)
        print(f"Table: {path}", flush=True)
    return 0


def _print_start(groups: Sequence[Group], populations: Mapping[str, Population], folder: Path) -> None:
    first = groups[0]
    rounds = f"{first.rounds} rounds of {first.iterations} iterations"
    several = f", {len(groups)} groups one after the other" if len(groups) > 1 else ""
    done = sum(population.round for population in populations.values())
    so_far = f"; {done} rounds are over" if done else ""
    what = f"{first.base.task}, {first.base.algo}: {first.members} trials at a time, {rounds}{several}"
    print(f"{what}, on {first.base.device}{so_far}. Folder: {folder}", flush=True)


def _begun(folder: Path, asked: Asked, groups: Sequence[Group]) -> dict[str, Population]:
    """By group, as far as a search in this folder has come. ValueError where it was another one."""
    file = folder / STATE
    if not file.exists():
        return {group.name: group.begin() for group in groups}
    try:
        saved = json.loads(file.read_bytes())
        before, populations = saved["asked"], saved["groups"]
        begun = {group.name: Population.read(populations[group.name]) for group in groups if group.name in populations}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"'{file}' cannot be read: {error}. Search anew under another --name") from None
    now = described(asked)
    differ = [f"{name} was {before.get(name)} and is {now[name]}" for name in now if before.get(name) != now[name]]
    if differ:
        raise ValueError(
            f"'{folder}' holds another search: {', '.join(differ)}. Give the same options again, or another --name"
        )
    return begun


def _write_state(folder: Path, asked: Asked, populations: Mapping[str, Population]) -> None:
    content: dict[str, Any] = {
        "asked": described(asked),
        "groups": {name: population.saved() for name, population in populations.items()},
    }
    try:
        with replacing(folder / STATE) as file:
            file.write((json.dumps(content, indent=1) + "\n").encode())
    except OSError as error:
        raise ValueError(f"cannot write '{folder / STATE}': {error.strerror}") from None


@contextlib.contextmanager
def _stoppable(again: str) -> Iterator[None]:
    """Whenever Ctrl-C strikes, it says how to go on."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        raise KeyboardInterrupt(*(stopped.args or [f"Stopped. Go on: {again}"])) from None
