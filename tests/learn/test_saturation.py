"""Saturated actions in the metrics, of every algorithm whose policy squashes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import trot
from trot.learn.algorithms import find_algorithm
from trot.learn.saturation import saturation

SMALL = {
    "shac": {"num_worlds": 2, "horizon": 8, "critic_batches": 2, "critic_passes": 1, "initial_log_std": 1.0},
    "sac": {"num_worlds": 2, "horizon": 8, "batch": 8, "memory": 64, "hidden": (8,), "random_iterations": 1},
    "pods": {"num_worlds": 2, "halvings": 0, "imitation_steps": 1},
}


def test_by_hand():
    actions = torch.tensor([0.0, 0.5, -0.995, 1.0, 0.99, -0.2, 0.6, -1.0], dtype=torch.float64).view(2, 2, 2)
    found = saturation(actions)
    # Beyond 0.99 are -0.995 and both ones; the squares are 0, 0.25, 0.990025, 1, 0.9801, 0.04, 0.36 and 1.
    assert found["saturated"].item() == 3 / 8
    assert found["action_slope"].item() == pytest.approx(1 - 4.620125 / 8, rel=1e-12)
    # Each member has its own.
    both = saturation(torch.stack([actions, 0 * actions]))
    assert both["saturated"].tolist() == [3 / 8, 0] and both["action_slope"][1].item() == 1


@pytest.mark.parametrize("algo", SMALL)
def test_the_columns_tell_of_the_actions_of_the_iteration(algo, monkeypatch):
    algorithm = find_algorithm(algo)
    settings = replace(algorithm.resolve("cartpole"), **SMALL[algo])
    env = trot.make_env("cartpole", 2, dtype=torch.float64)
    learner = algorithm.learner(env, settings, 0)
    taken, advance = [], env.advance
    monkeypatch.setattr(
        env, "advance", lambda action, **how: taken.append(action.detach().numpy()) or advance(action, **how)
    )
    for _ in range(2):
        taken.clear()
        learner.iterate()
        found = dict(zip(learner.all_columns(), learner.metrics.tolist(), strict=True))
        # PODS tries other actions after those of its policy.
        actions = np.stack(taken[: env.episode_length])
        assert found["saturated"] == np.mean(np.abs(actions) > 0.99)
        assert found["action_slope"] == pytest.approx(np.mean(1 - actions**2), rel=1e-12)
        assert 0 < found["action_slope"] < 1


def test_a_policy_that_does_not_squash_has_no_such_columns():
    assert not {"saturated", "action_slope"} & set(find_algorithm("ppo").learner.all_columns())
