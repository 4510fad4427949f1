"""Time of one learning iteration, split into the algorithm's phases; SHAC's are rollout, backward, critic and other."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from itertools import cycle

import torch

from trot.envs.rank_env import RankEnv
from trot.envs.ranks import ranks_on, refuse_ranks
from trot.envs.registry import make_env, make_task
from trot.learn.capture import fast_phases
from trot.learn.learner import Algorithm, LearnerSettings
from trot.learn.member_learner import make_member_learner
from trot.learn.torch_threads import one_torch_thread

WARM_UP = 3
"""Iterations that do not count."""
LATE = 10**9
"""Number of an iteration by which nothing is left of how a training begins, such as random actions."""


@dataclass(frozen=True)
class IterationTime:
    """Milliseconds, medians over iterations."""

    task: str
    device: str
    worlds: int
    """Of each member, where there are several."""
    steps: int
    """Environment steps of an iteration, all worlds together."""
    updates: int
    """Steps of the optimiser in an iteration; 0 where that says little."""
    phases: dict[str, float]
    ready: float
    """Seconds from nothing to the first iteration: kernels built, or loaded where they were built before; on CUDA its
    graphs too."""
    members: int | None = None
    """Seeds that learned in one batch."""

    @property
    def total(self) -> float:
        return sum(self.phases.values())

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.total * 1e3

    @property
    def updates_per_second(self) -> float:
        return self.updates / self.total * 1e3


def measure_iterations(
    algorithm: Algorithm,
    task: str,
    settings: LearnerSettings,
    device: str,
    iterations: int,
    members: int | None = None,
) -> IterationTime:
    """Train a little, and so many iterations more, whose medians are taken; with members, several seeds at once.

    Under torchrun, every rank measures, with its share of the worlds.
    """
    begun = time.perf_counter()
    ranks = ranks_on(device)
    if members is not None:
        refuse_ranks("a batch of several seeds")
        learner = make_member_learner(algorithm, make_task(task), settings, range(members), device)
    elif ranks is not None:
        learner = algorithm.learner(RankEnv(make_task(task), settings.num_worlds, ranks, device), settings, 0)
    else:
        learner = algorithm.learner(make_env(task, settings.num_worlds, device), settings, 0)
    with one_torch_thread():
        phases = fast_phases(learner)
        ready = time.perf_counter() - begun
        moments = [Moment(learner.device)]
        for iteration in [0, *range(LATE, LATE + WARM_UP + iterations - 1)]:
            for phase in phases.values():
                phase(iteration)
                moments.append(Moment(learner.device))
    times: dict[str, list[float]] = {name: [] for name in phases}
    for name, begin, end in zip(cycle(phases), moments[:-1], moments[1:], strict=False):
        times[name].append(begin.milliseconds_to(end))
    medians = {name: statistics.median(values[WARM_UP:]) for name, values in times.items()}
    steps, updates = round(int(learner.steps.sum()) / (WARM_UP + iterations)), learner.updates_per_iteration
    return IterationTime(task, learner.device.type, settings.num_worlds, steps, updates, medians, ready, members)


class Moment:
    """On the GPU nobody waits for it, as in training; what runs beside counts as far as it is waited for."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"
        if self.on_gpu:
            self.event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self.event.record(torch.cuda.current_stream(device))
        else:
            self.seconds = time.perf_counter()

    def milliseconds_to(self, later: Moment) -> float:
        if not self.on_gpu:
            return (later.seconds - self.seconds) * 1e3
        later.event.synchronize()
        return float(self.event.elapsed_time(later.event))
