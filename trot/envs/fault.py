"""A world that blew up: what it began from, kept so that the step can be run again and explained."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trot.atomic import replacing
from trot.envs.worlds import Worlds
from trot.runs.checkpoint_file import read_checkpoint, write_checkpoint


@dataclass(frozen=True, eq=False)
class Fault:
    """One world's last good state and the action that led out of it."""

    task: str
    world: int
    joint_q: Tensor
    joint_qd: Tensor
    action: Tensor
    parameter: Tensor
    """The world's own packed parameters; empty without randomised physics."""
    strength: Tensor
    """Factors on its controls; empty without randomised physics."""
    memory: dict[str, Tensor] = field(default_factory=dict)
    """What its task remembered, (width,) each; empty where it remembers nothing."""
    activation: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Of its muscles; empty where they have none of their own."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file with a checksum of all of it."""
        with replacing(Path(path)) as file:
            write_checkpoint(file, {"fault": 1, **asdict(self)})


def load_fault(path: str | os.PathLike[str]) -> Fault:
    """Read what Fault.save() wrote."""
    return fault_from(read_fault_file(path), path)


def read_fault_file(path: str | os.PathLike[str]) -> Any:
    """What is in a file that Fault.save() or a run wrote, as long as its checksum fits."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no fault file '{os.fspath(path)}'")
    try:
        return read_checkpoint(Path(path), "cpu")
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)} is not a fault file, or not a whole one: {error}") from None


def fault_from(saved: Any, path: str | os.PathLike[str]) -> Fault:
    """Of what the file at that path holds."""
    try:
        known = {**saved}
        if known.pop("fault") != 1:
            raise ValueError
        return Fault(**known)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{os.fspath(path)} is not a fault file, as Fault.save() writes it") from None


def remembered_faults(task: str, worlds: Worlds, memory_widths: Mapping[str, int]) -> list[Fault]:
    """Of every world that ever blew up; Worlds keeps them as rows, part beside part."""
    widths = [part.shape[1] for part in (worlds.joint_q, worlds.joint_qd, worlds.previous_action)]
    widths += [part.shape[1] for part in (worlds.parameter, worlds.strength, worlds.activation)]
    widths += memory_widths.values()
    faults = []
    for world in worlds.faults.squeeze(1).nonzero().squeeze(1).tolist():
        joint_q, joint_qd, action, parameter, strength, activation, *parts = torch.split(
            worlds.last_fault[world].cpu(), widths
        )
        memory = dict(zip(memory_widths, parts, strict=True))
        faults.append(Fault(task, world, joint_q, joint_qd, action, parameter, strength, memory, activation))
    return faults
