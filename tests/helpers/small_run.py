"""Runs that were trained for a moment, for studies to look at."""

from pathlib import Path

import torch
from docking import Docking

from trot.cli import main

DOCKING = f"{Path(__file__).with_name('docking.py')}:{Docking.__name__}"
SMALL = ("--num-worlds", "4", "--horizon", "8", "--actor-hidden", "8", "--critic-hidden", "8", "--critic-passes", "2")


def small_run(root, task=DOCKING, *options, iterations=8, keep_every=2):
    """The folder of a run with four worlds, windows of eight steps and eight hidden units."""
    length = ["--iterations", str(iterations), "--keep-every", str(keep_every)]
    given = ["--device", "cpu", "--runs", str(root), "--name", "run", *SMALL, *length, *options]
    assert main(["train", task, *given]) == 0
    return root / "run"


def close(found, expected, tolerance=1e-11):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
