"""The time of an iteration, by a clock that the phases move themselves."""

from types import SimpleNamespace

import pytest
import torch

from trot.learn import iteration_time
from trot.learn.iteration_time import WARM_UP, measure_iterations
from trot.learn.learner import LearnerSettings, Phase


def test_medians_of_the_phases_after_the_warm_up(monkeypatch):
    # Seconds of each iteration: the warm-up, and three that count.
    act, learn = iter([9.0] * WARM_UP + [0.1, 0.5, 0.2]), iter([9.0] * WARM_UP + [0.3, 0.2, 0.7])
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)

    def phase(name, seconds):
        def run():
            clock.now += next(seconds)

        return Phase(name, run)

    phases = (phase("act", act), phase("learn", learn))
    learner = SimpleNamespace(
        device=torch.device("cpu"), phases=lambda: phases, steps=torch.tensor(600), updates_per_iteration=5
    )
    monkeypatch.setattr(iteration_time, "time", clock)
    monkeypatch.setattr(iteration_time, "make_env", lambda *given: None)
    algorithm = SimpleNamespace(learner=lambda *given: learner)
    found = measure_iterations(algorithm, "ant", LearnerSettings(num_worlds=4), "cpu", iterations=3)
    assert found.phases == pytest.approx({"act": 200, "learn": 300})
    # 600 steps in six iterations; 100 in half a second.
    assert (found.worlds, found.steps, found.updates) == (4, 100, 5)
    assert found.total == pytest.approx(500) and found.steps_per_second == pytest.approx(200)
    assert found.updates_per_second == pytest.approx(10)
