"""What bench.census runs in a process of its own: one line of JSON per robot file that it is told of.

Paths come one per line; MuJoCo may crash on one of them or never return.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import mujoco

from trot.sim.accelerations import compare_accelerations
from trot.sim.load import ModelError, load_model
from trot.sim.programs import FORWARD


@dataclass
class Verdict:
    """What became of a file."""

    mujoco: str | None = None
    """Why MuJoCo refuses the file as it is; None if it reads it."""
    moving_joints: int | None = None
    """As MuJoCo counts them; None where it refuses the file."""
    actuators: int | None = None
    reasons: list[str] = field(default_factory=list)
    """Why trot refuses it; empty if it loads."""
    notes: list[str] = field(default_factory=list)
    acceleration_error: float | None = None
    """The largest difference from MuJoCo's accelerations, relative to the largest of them in its state."""
    acceleration_where: str | None = None
    """At which dof, and both numbers."""


def judge(path: str, options: dict[str, Any], accelerations: bool) -> Verdict:
    """Load a file by MuJoCo and by trot."""
    verdict = Verdict()
    try:
        own = mujoco.MjModel.from_xml_path(path)
        verdict.moving_joints, verdict.actuators = own.njnt, own.nu
    except (ValueError, RuntimeError, mujoco.FatalError) as error:
        verdict.mujoco = str(error).strip()
    try:
        model = load_model(path, **options)
    except ModelError as error:
        text = str(error).removeprefix(f"{path}: ")
        # A message of MuJoCo's may have several lines of its own.
        verdict.reasons = text.split("\n  ")
        return verdict
    except Exception as error:
        # Nothing else may come out of load_model: this is what a census finds.
        verdict.reasons = [f"BUG: {type(error).__name__}: {error}"]
        return verdict
    verdict.moving_joints, verdict.actuators = model.num_joints, model.num_controls
    verdict.notes = list(model.notes)
    if accelerations:
        worst = compare_accelerations(model, (FORWARD,))
        verdict.acceleration_error = worst.relative
        verdict.acceleration_where = f"{worst.dof}: {worst.ours:.9g}, MuJoCo {worst.theirs:.9g}"
    return verdict


def main(tell: Callable[[str], object]) -> None:
    """Options, then paths, from stdin; verdicts to `tell`."""
    given = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        verdict = judge(line.rstrip("\n"), given["options"], given["accelerations"])
        tell(json.dumps(asdict(verdict)))


if __name__ == "__main__":
    # What MuJoCo and Warp print on the way must not come between the verdicts.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    main(lambda text: print(text, file=answers, flush=True))
