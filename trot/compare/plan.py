"""The runs of a comparison: what each is to be, whether it is there, and the command that brings it to its end."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from trot.command_line import present_name
from trot.learn.algorithms import find_algorithm
from trot.learn.train import TrainSettings, parse_settings
from trot.runs.folder import RunFolder
from trot.runs.listing import RunSummary, summarize

VARIANT_NAME = re.compile(r"[\w-]+")
"""As names of run folders and of `--set NAME.SETTING=VALUE` can hold it."""
RESERVED = ("algo", "seed", "seeds", "device", "runs", "name", "minutes")
"""Settings that a comparison gives its runs itself."""


@dataclass(frozen=True)
class Variant:
    """One of those that are compared: an algorithm, or an algorithm with settings of its own."""

    name: str
    """As in names of run folders."""
    label: str
    """As in tables and figures."""
    algo: str
    """One of `trot algorithms`, or path/to/file.py:NAME."""
    options: tuple[str, ...] = ()
    """Of `trot train`: what it differs in from the others."""

    def sets(self, name: str) -> bool:
        """Whether a setting, as options spell it, is one of those it differs in."""
        own = [present_name(option) for option in self.options]
        return present_name(f"--{name}") in own or f"--no-{name}" in own


@dataclass(frozen=True)
class Member:
    """One run of a comparison."""

    variant: Variant
    seed: int
    folder: Path
    asked: TrainSettings[Any]
    """What it is to be."""
    arguments: list[str]
    """Of `trot train`, but seed and name."""
    minutes: float | None
    """Of training, at most."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def stem(self) -> str:
        """What the names of all seeds begin with."""
        return _stem(self.asked.task, self.variant)

    @property
    def exists(self) -> bool:
        return self.folder.exists()

    def summary(self) -> RunSummary:
        return summarize(self.folder)

    def share_done(self) -> float:
        """From 0, not begun, to 1, at its end."""
        if not self.exists:
            return 0.0
        summary = self.summary()
        if summary.learned_all:
            return 1.0
        planned: int = self.asked.settings.iterations
        shares = [summary.iterations / planned]
        if self.minutes is not None:
            shares.append((summary.seconds or 0.0) / (60 * self.minutes))
        return min(max(shares), 1.0)

    @property
    def finished(self) -> bool:
        return self.share_done() == 1.0

    def command(self) -> list[str]:
        """Of trot, that brings the run to its end from where it is."""
        if not self.exists:
            return ["train", *self.arguments, "--seed", str(self.seed), "--name", self.name]
        return self.resume_command([self.folder])

    def resume_command(self, folders: Sequence[Path]) -> list[str]:
        """Of trot, for runs that differ from this one in their seeds alone."""
        minutes = "inf" if self.minutes is None else str(self.minutes)
        return ["resume", *map(str, folders), "--device", self.asked.device, "--minutes", minutes]

    def check(self) -> None:
        """Raise where there is such a run already, but another one than is asked for now."""
        if not self.exists:
            return
        before = _deciding(RunFolder.open(self.folder).settings)
        asked = self.asked
        now = _deciding(
            {
                "task": asked.task,
                "algo": asked.algo,
                "device": torch.device(asked.device).type,
                "settings": asdict(asked.settings),
                "schedule": asdict(asked.schedule),
                "randomize": asdict(asked.randomize),
            }
        )
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if names:
            differ = ", ".join(f"{name} was {before.get(name)} and is {now.get(name)}" for name in names)
            raise ValueError(
                f"'{self.folder}' was trained with other settings: {differ}. Give the same ones again, or another "
                "--name to the comparison"
            )


def algorithm_variants(algos: Sequence[str]) -> list[Variant]:
    """Algorithms as they are, each one of `trot algorithms`, or path/to/file.py:NAME."""
    if not algos:
        raise ValueError("name one algorithm or more")
    algorithms = {algo: find_algorithm(algo) for algo in dict.fromkeys(algos)}
    return [Variant(algorithm.name, algorithm.label, algo) for algo, algorithm in algorithms.items()]


def setting_variants(texts: Sequence[str], algo: str) -> list[Variant]:
    """The algorithm with other settings, each told as NAME:SETTING=VALUE:SETTING=VALUE..."""
    variants = []
    for text in texts:
        name, *settings = text.split(":")
        if not settings or not VARIANT_NAME.fullmatch(name):
            raise ValueError(f"--variants takes NAME:SETTING=VALUE, NAME of letters, digits, - and _, not '{text}'")
        options: list[str] = []
        for setting in settings:
            option, equals, value = setting.partition("=")
            option = option.replace("_", "-")
            if not equals or not option:
                raise ValueError(f"--variants {text}: '{setting}' is not SETTING=VALUE")
            if option in RESERVED:
                raise ValueError(f"--variants {text}: a comparison gives its runs their {option} itself")
            options += train_option(option, value.split(","))
        variants.append(Variant(name, name, algo, tuple(options)))
    return variants


def require_own_names(variants: Sequence[Variant]) -> None:
    """Raise where two would have the same run folders."""
    names = [variant.name for variant in variants]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two of those compared have the name '{name}', and so would their run folders")


def make_members(
    task: str,
    variants: Sequence[Variant],
    seeds: Sequence[int],
    folder: Path,
    device: str,
    minutes: float | None,
    options: Sequence[str],
    changes: Sequence[str],
) -> list[Member]:
    """One run for each variant and seed, all seeds' first. Raises where one could not be trained.

    Args:
        task: One of `trot tasks`, or path/to/file.py:Class.
        variants: What is compared.
        seeds: Of the runs.
        folder: That holds the run folders.
        device: cpu or cuda.
        minutes: Of training, at most.
        options: Of `trot train`, for all.
        changes: NAME=VALUE for all that do not set it themselves, VARIANT.NAME=VALUE for one.
    """
    if not seeds:
        raise ValueError("name one seed or more")
    require_own_names(variants)
    given = [_Change.parse(text, variants) for text in changes]
    members = []
    for seed in dict.fromkeys(seeds):
        for variant in variants:
            arguments = [task, "--algo", variant.algo, "--device", device, "--runs", str(folder)]
            arguments += [*options, *variant.options]
            arguments += [] if minutes is None else ["--minutes", str(minutes)]
            for change in given:
                arguments += change.options(variant)
            asked = parse_settings([*arguments, "--seed", str(seed)])
            path = folder / f"{_stem(task, variant)}-{seed}"
            members.append(Member(variant, seed, path, asked, arguments, minutes))
    return members


def _stem(task: str, variant: Variant) -> str:
    return f"{task_title(task)}-{variant.name}"


def task_title(task: str) -> str:
    """For names of folders: a file's class gives its name, a colon or a slash has no place there."""
    return task.rpartition(":")[2]


def train_option(name: str, values: Sequence[str]) -> list[str]:
    """A setting as an option of `trot train`: true and false as a switch, all else as it is."""
    if len(values) == 1 and values[0].lower() in ("true", "false"):
        return [f"--{'' if values[0].lower() == 'true' else 'no-'}{name}"]
    return [f"--{name}", *values]


@dataclass(frozen=True)
class _Change:
    """A setting that differs from what task, algorithm and preset say."""

    variant: str | None
    """None for all of them."""
    name: str
    value: str

    @classmethod
    def parse(cls, text: str, variants: Sequence[Variant]) -> _Change:
        name, equals, value = text.partition("=")
        first, dot, rest = name.partition(".")
        variant = first if dot and first in [one.name for one in variants] else None
        name = (name if variant is None else rest).replace("_", "-")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE or ALGO.NAME=VALUE, not '{text}'")
        if name in RESERVED:
            raise ValueError(f"--set {text}: a comparison gives its runs their {name} itself")
        sets_it = [one.sets(name) for one in variants]
        if all(sets_it) or (variant is not None and any(sets_it)):
            raise ValueError(f"--set {text}: {name} is what is compared here")
        return cls(variant, name, value)

    def options(self, variant: Variant) -> list[str]:
        """Of `trot train`."""
        if self.variant not in (None, variant.name) or variant.sets(self.name):
            return []
        return train_option(self.name, self.value.split(","))


def _deciding(settings: dict[str, Any]) -> dict[str, Any]:
    """Of a run's settings.json, what decides over its numbers; not how long it may take."""
    own, schedule = (part if isinstance(part := settings.get(key), dict) else {} for key in ("settings", "schedule"))
    whole = {key: settings.get(key) for key in ("task", "algo", "device", "randomize")}
    # JSON has no tuples.
    decided: dict[str, Any] = json.loads(json.dumps({**whole, "stop_at": schedule.get("stop_at"), **own}))
    return decided
