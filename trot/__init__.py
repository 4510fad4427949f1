"""trot: parallel differentiable simulation of articulated bodies, as a PyTorch operation."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trot.api.trained_run import TrainedRun as TrainedRun
    from trot.api.trained_runs import TrainedRuns as TrainedRuns
    from trot.api.training import load_run as load_run
    from trot.api.training import resume as resume
    from trot.api.training import train as train
    from trot.envs.entry import Entry as Entry
    from trot.envs.env import Env as Env
    from trot.envs.randomize import Randomize as Randomize
    from trot.envs.registry import make_env as make_env
    from trot.envs.situation import Situation as Situation
    from trot.envs.start import Start as Start
    from trot.envs.task import Task as Task
    from trot.sim.diagnose import check_finite as check_finite
    from trot.sim.errors import ModelError as ModelError
    from trot.sim.errors import NonFiniteError as NonFiniteError
    from trot.sim.linearize import Linearization as Linearization
    from trot.sim.linearize import linearize as linearize
    from trot.sim.load import load_model as load_model
    from trot.sim.manifold import retract as retract
    from trot.sim.model import Model as Model
    from trot.sim.parameters import Parameters as Parameters
    from trot.sim.state import State as State
    from trot.sim.step import step as step
    from trot.sim.threads import get_num_threads as get_num_threads
    from trot.sim.threads import set_num_threads as set_num_threads

# PyTorch takes seconds to import; `trot --help` must not. So a name is fetched from its home when it is first used.
_HOMES = {
    "trot.api.trained_run": ("TrainedRun",),
    "trot.api.trained_runs": ("TrainedRuns",),
    "trot.api.training": ("load_run", "resume", "train"),
    "trot.envs.entry": ("Entry",),
    "trot.envs.env": ("Env",),
    "trot.envs.randomize": ("Randomize",),
    "trot.envs.registry": ("make_env",),
    "trot.envs.situation": ("Situation",),
    "trot.envs.start": ("Start",),
    "trot.envs.task": ("Task",),
    "trot.sim.diagnose": ("check_finite",),
    "trot.sim.errors": ("ModelError", "NonFiniteError"),
    "trot.sim.linearize": ("Linearization", "linearize"),
    "trot.sim.load": ("load_model",),
    "trot.sim.manifold": ("retract",),
    "trot.sim.model": ("Model",),
    "trot.sim.parameters": ("Parameters",),
    "trot.sim.state": ("State",),
    "trot.sim.step": ("step",),
    "trot.sim.threads": ("get_num_threads", "set_num_threads"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'trot' has no attribute '{name}'")
    globals()[name] = found = getattr(importlib.import_module(_HOME_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
