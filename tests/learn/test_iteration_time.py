"""The time of an iteration, by a clock that the phases move themselves."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from trot.learn import iteration_time
from trot.learn.algorithms import find_algorithm
from trot.learn.iteration_time import WARM_UP, measure_iterations
from trot.learn.learner import LearnerSettings, Phase


def test_medians_of_the_phases_after_the_warm_up(monkeypatch):
    # Seconds of each iteration: the warm-up, and three that count.
    act, learn = iter([9.0] * WARM_UP + [0.1, 0.5, 0.2]), iter([9.0] * WARM_UP + [0.3, 0.2, 0.7])
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)

    def spend(seconds):
        clock.now += seconds

    def phase(name, seconds):
        def run():
            spend(next(seconds))

        return Phase(name, run)

    phases = (phase("act", act), phase("learn", learn))
    learner = SimpleNamespace(
        device=torch.device("cpu"), phases=lambda: phases, steps=torch.tensor(600), updates_per_iteration=5
    )
    monkeypatch.setattr(iteration_time, "time", clock)
    # A kernel is built for 3 s, and for 2 s graphs are captured.
    monkeypatch.setattr(iteration_time, "make_env", lambda *given: spend(3.0))
    captured = iteration_time.fast_phases
    monkeypatch.setattr(iteration_time, "fast_phases", lambda learner: spend(2.0) or captured(learner))
    algorithm = SimpleNamespace(learner=lambda *given: learner)
    found = measure_iterations(algorithm, "ant", LearnerSettings(num_worlds=4), "cpu", iterations=3)
    assert found.phases == pytest.approx({"act": 200, "learn": 300})
    # 600 steps in six iterations; 100 in half a second.
    assert (found.worlds, found.steps, found.updates) == (4, 100, 5)
    assert found.total == pytest.approx(500) and found.steps_per_second == pytest.approx(200)
    assert found.updates_per_second == pytest.approx(10)
    assert found.ready == pytest.approx(5)


def test_members_count_all_their_steps():
    shac = find_algorithm("shac")
    small = {"num_worlds": 2, "horizon": 4, "actor_hidden": (8,), "critic_hidden": (8,), "critic_passes": 1}
    found = measure_iterations(shac, "cartpole", replace(shac.resolve("cartpole"), **small), "cpu", 1, members=3)
    assert (found.members, found.worlds, found.steps) == (3, 2, 3 * 2 * 4)
    assert set(found.phases) == {"rollout", "backward", "critic", "other"}
