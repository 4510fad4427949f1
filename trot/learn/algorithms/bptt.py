"""SHAC with parts left out: without its critic, and with long windows instead: back-propagation through time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from trot.learn.algorithms.shac import Shac
from trot.learn.algorithms.shac_settings import LONG_PRESETS, PRESETS, ShacSettings
from trot.learn.learner import Algorithm


def _without_critic(preset: Callable[[str], ShacSettings], task: str) -> ShacSettings:
    return replace(preset(task), critic=False)


NO_CRITIC = Algorithm(
    name="shac-no-critic",
    label="SHAC without critic",
    summary="the same without the critic, to see what it is for",
    settings=ShacSettings,
    learner=Shac,
    presets={name: partial(_without_critic, preset) for name, preset in PRESETS.items() if name != "gpu"},
)
BPTT = Algorithm(
    name="bptt",
    label="BPTT",
    summary="gradients through long windows, no critic: for smooth tasks without contact",
    settings=ShacSettings,
    learner=Shac,
    presets=LONG_PRESETS,
)
