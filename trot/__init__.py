"""trot: parallel differentiable simulation of articulated bodies, as a PyTorch operation."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trot.sim.diagnose import check_finite
    from trot.sim.errors import ModelError, NonFiniteError
    from trot.sim.linearize import Linearization, linearize
    from trot.sim.load import load_model
    from trot.sim.manifold import retract
    from trot.sim.model import Model
    from trot.sim.parameters import Parameters
    from trot.sim.state import State
    from trot.sim.step import step
    from trot.sim.threads import get_num_threads, set_num_threads

__all__ = [
    "Linearization",
    "Model",
    "ModelError",
    "NonFiniteError",
    "Parameters",
    "State",
    "check_finite",
    "get_num_threads",
    "linearize",
    "load_model",
    "retract",
    "set_num_threads",
    "step",
]

_HOMES = {
    "Linearization": "linearize",
    "Model": "model",
    "ModelError": "errors",
    "NonFiniteError": "errors",
    "Parameters": "parameters",
    "State": "state",
    "check_finite": "diagnose",
    "get_num_threads": "threads",
    "linearize": "linearize",
    "load_model": "load",
    "retract": "manifold",
    "set_num_threads": "threads",
    "step": "step",
}


def __getattr__(name: str) -> Any:
    # PyTorch takes seconds to import; `trot --help` must not.
    if name not in _HOMES:
        raise AttributeError(f"module 'trot' has no attribute '{name}'")
    return getattr(importlib.import_module(f"trot.sim.{_HOMES[name]}"), name)
