"""What `trot tune` was asked for, resolved: the groups of settings, the ranges, and the runs' common settings."""

from __future__ import annotations

import itertools
import json
import random
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from trot.compare.plan import task_title, train_option
from trot.envs.registry import make_task
from trot.learn.algorithms import find_algorithm
from trot.learn.learner import Algorithm
from trot.learn.schedule import Schedule
from trot.learn.train import TrainSettings, parse_settings
from trot.tune.population import Population, Trial
from trot.tune.space import Range, parse_ranges

RESERVED = (
    "algo",
    "preset",
    "seed",
    "seeds",
    "device",
    "runs",
    "name",
    "iterations",
    "minutes",
    "stop_at",
    "keep_every",
)
"""Settings that a search gives its trials itself."""


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    task: str
    over: tuple[str, ...]
    members: int
    rounds: int
    iterations: int | None
    algo: str
    preset: str | None
    groups: tuple[str, ...]
    changes: tuple[str, ...]
    seed: int
    device: str

    def __post_init__(self) -> None:
        for name, least in (("members", 2), ("rounds", 1), ("iterations", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"--{name} must be at least {least}, not {value}")


@dataclass(frozen=True)
class Group:
    """Trials that learn in one batch: they differ in the settings that are searched for alone."""

    name: str
    """Empty where there is one group alone."""
    options: tuple[str, ...]
    """Of `trot train`."""
    base: TrainSettings[Any]
    """Of all its trials, but for what is searched for."""
    ranges: tuple[Range, ...]
    members: int
    rounds: int
    iterations: int
    """Of a round."""

    @property
    def algorithm(self) -> Algorithm:
        return find_algorithm(self.base.algo)

    def draw(self, round_: int) -> random.Random:
        """Random numbers for a round's trials: the same ones whenever it is prepared again."""
        return random.Random(f"{self.base.seed} {self.name} {round_}")

    def begin(self) -> Population:
        """Of the first round."""
        return Population.begin(self.ranges, self.members, self.draw(0), self.present)

    @property
    def present(self) -> dict[str, float]:
        """What the preset, or `--set`, says of the settings that are searched for."""
        return {one.name: getattr(self.base.settings, one.name) for one in self.ranges}

    def settings(self, trial: Trial) -> Any:
        """The algorithm's, of one of its trials."""
        return replace(self.base.settings, **trial.values)

    def command(self, trial: Trial) -> str:
        """That trains with the trial's settings from the beginning."""
        own = [part for name, value in trial.values.items() for part in (f"--{name.replace('_', '-')}", repr(value))]
        return shlex.join(["trot", "train", *self.options, *own])


def make_groups(asked: Asked) -> list[Group]:
    """All of them. Raises where one could not be trained."""
    algorithm = find_algorithm(asked.algo)
    allowed = getattr(algorithm.learner, "own_settings", ())
    if not allowed:
        raise ValueError(
            f"'{asked.algo}' cannot learn with several settings in one batch; shac, shac-no-critic and bptt can"
        )
    ranges = parse_ranges(asked.over, allowed)
    variants = _variants(asked.groups, [one.name for one in ranges])
    return [_group(asked, tuple(ranges), variant) for variant in variants]


def _group(asked: Asked, ranges: tuple[Range, ...], variant: Mapping[str, str]) -> Group:
    options = [asked.task, "--algo", asked.algo, "--seed", str(asked.seed)]
    options += [] if asked.preset is None else ["--preset", asked.preset]
    taken = {one.name for one in ranges}
    for text in asked.changes:
        name, value = _named("--set", text, {*taken, *variant})
        options += train_option(name.replace("_", "-"), value.split(","))
    for name, value in variant.items():
        options += train_option(name.replace("_", "-"), value.split("x") if _widths(value) else [value])
    base = parse_settings([*options, "--device", asked.device])
    iterations = asked.iterations or max(1, base.settings.iterations // asked.rounds)
    options += ["--iterations", str(iterations * asked.rounds)]
    base = replace(
        parse_settings([*options, "--device", asked.device]),
        schedule=Schedule(save_every=base.schedule.save_every, keep_every=iterations),
    )
    _check_alone(base)
    _check_ends(base, ranges)
    _check_length(asked, base, iterations)
    name = "_".join(f"{name}-{value}" for name, value in variant.items())
    return Group(name, tuple(options), base, ranges, asked.members, asked.rounds, iterations)


def _check_alone(base: TrainSettings[Any]) -> None:
    """Raise where something is set that only a run which is trained alone can have."""
    for name in ("start_from", "view"):
        if getattr(base, name):
            raise ValueError(f"--set {name}: trials learn in one batch, and {name} is for a run that is trained alone")


def _check_ends(base: TrainSettings[Any], ranges: Sequence[Range]) -> None:
    """Raise where the algorithm refuses an end of a range."""
    for one in ranges:
        for value in (one.low, one.high):
            try:
                replace(base.settings, **{one.name: value})
            except ValueError as error:
                raise ValueError(f"--over {one.name}: {error}") from None


def _check_length(asked: Asked, base: TrainSettings[Any], iterations: int) -> None:
    """Raise where a first round is over before an episode can run to its end: only falls would count."""
    length, horizon = make_task(asked.task).episode_length, base.settings.horizon
    if iterations * horizon < length:
        raise ValueError(
            f"a round of {iterations} iterations is {iterations * horizon} steps, and an episode of {asked.task} has "
            f"{length}: trials could not be told apart. Give --iterations {-(-length // horizon)} or more"
        )


def _variants(texts: Sequence[str], searched: Sequence[str]) -> list[dict[str, str]]:
    """Every combination of what --groups names; one without any where it names nothing."""
    named = [_named("--groups", text, searched) for text in texts]
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--groups names {name} twice")
    values = [list(dict.fromkeys(value.split(","))) for _, value in named]
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]


def _named(option: str, text: str, searched: Sequence[str] | set[str]) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name = name.replace("-", "_")
    if not equals or not name or not all(value.split(",")):
        what = "NAME=VALUE" if option == "--set" else "NAME=A,B, and widths of layers as 128x64"
        raise ValueError(f"{option} takes {what}, not '{text}'")
    if name in RESERVED:
        raise ValueError(f"{option} {text}: a search gives its trials their {name} itself")
    if name in searched:
        raise ValueError(f"{option} {text}: {name} is what --over or --groups varies")
    return name, value


def _widths(value: str) -> bool:
    return all(part.isdecimal() for part in value.split("x"))


def described(asked: Asked) -> dict[str, Any]:
    """As the search's file keeps it: what must be the same to go on with it."""
    described: dict[str, Any] = json.loads(json.dumps(asdict(asked)))
    return described


def folder_name(task: str) -> str:
    """Of a search, unless another is asked for."""
    return f"tune-{task_title(task)}"


def group_folder(folder: Path, group: Group) -> Path:
    """Where the run folders of its trials are."""
    return folder / group.name if group.name else folder
