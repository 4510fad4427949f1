"""Studies of why learning through gradients works, each a function of the library and a command.

`trot study` lists them. Each is loaded when it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trot.study.one_study import Study

STUDIES: dict[str, str] = {
    "landscape": "trot.study.landscape_study:LANDSCAPE",
    "surface": "trot.study.surface_study:SURFACE",
    "gradients": "trot.study.gradients_study:GRADIENTS",
    "growth": "trot.study.growth_study:GROWTH",
    "contact": "trot.study.contact_study:CONTACT",
    "bound": "trot.study.bound_study:BOUND",
    "horizon": "trot.study.horizon_study:HORIZON",
    "deterministic": "trot.study.ablations:DETERMINISTIC",
    "fixed-settings": "trot.study.ablations:FIXED_SETTINGS",
    "critic": "trot.study.ablations:CRITIC",
    "timing": "trot.study.timing_study:TIMING",
}
"""Name to where the Study is. Beside it stands a function of the study's name, as in trot.study.landscape(...)."""


def find_study(name: str) -> Study:
    """One of STUDIES."""
    if name not in STUDIES:
        nearest = difflib.get_close_matches(name, STUDIES, n=1)
        hint = f" Did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(f"there is no study '{name}'.{hint} There are: {', '.join(STUDIES)}")
    module_name, _, wanted = STUDIES[name].partition(":")
    study: Study = getattr(importlib.import_module(module_name), wanted)
    return study


def __getattr__(name: str) -> Any:
    # fixed-settings is no name in Python.
    study = name.replace("_", "-")
    if study not in STUDIES:
        raise AttributeError(f"module 'trot.study' has no attribute '{name}'")
    return getattr(importlib.import_module(STUDIES[study].partition(":")[0]), name)
