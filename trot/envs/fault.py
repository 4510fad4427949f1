"""A world that blew up: what it began from, kept so that the step can be run again and explained."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor


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

    def save(self, path: str | os.PathLike[str]) -> None:
        torch.save({"fault": 1, **asdict(self)}, path)


def load_fault(path: str | os.PathLike[str]) -> Fault:
    """Read what Fault.save() wrote."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no fault file '{os.fspath(path)}'")
    try:
        saved: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        if saved.pop("fault") != 1:
            raise ValueError
        return Fault(**saved)
    except Exception:
        raise ValueError(f"{os.fspath(path)} is not a fault file, as Fault.save() writes it") from None
