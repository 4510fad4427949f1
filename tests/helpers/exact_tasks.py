"""Tasks in float64 at their nominal start, to be compared with numbers worked by hand."""

from __future__ import annotations

import numpy as np
import torch

import trot

EXACT = {"rtol": 0, "atol": 1e-12}


def make(name: str, num_worlds: int = 1) -> trot.Env:
    env = trot.make_env(name, num_worlds, dtype=torch.float64, stochastic_start=False)
    env.reset()
    return env


def rows(*values: object) -> torch.Tensor:
    """One world per argument."""
    return torch.tensor(np.array(values, dtype=float))
