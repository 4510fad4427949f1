"""What holds for every relative of SHAC: gradients of its loss, ends of episodes inside a window, several seeds."""

from dataclasses import replace

import pytest
import torch
from alike import ROUNDING, distance
from small_shac import FALLS, RUNS_OUT_OF_TIME, SMALL, end_inside, gradient_error, metrics, prepared

import trot
from trot.envs.registry import make_task
from trot.learn.algorithms import find_algorithm
from trot.learn.member_learner import make_member_learner

RELATIVES = {
    "sapo": {},
    "rpo": {"policy_passes": 3},
    "ahac": {"shortest_horizon": 4, "stiffness_limit": 20.0, "multiplier_lr": 0.5, "horizon_lr": 0.1},
    "shac-mixed": {},
}
EVERY = pytest.mark.parametrize("algo", list(RELATIVES))


@pytest.mark.parametrize("algo", ["sapo", "ahac"])
def test_the_gradient_of_the_loss_against_differences(algo):
    learner = prepared(algo=algo, **RELATIVES[algo])
    saved = learner.state_dict()
    learner.rollout()
    assert learner.window.done.nonzero().tolist() == [[2, FALLS], [2, RUNS_OUT_OF_TIME]]
    assert gradient_error(learner, saved, num_random=3, num_weights=4) <= 2e-8


@EVERY
def test_nothing_comes_after_a_fall_and_a_value_after_a_time_out(algo):
    learner = prepared(algo=algo, **RELATIVES[algo])
    learner.rollout()
    for value in (learner.window.next_value, learner.window.cautious_value):
        assert value[2, FALLS] == 0 and value[2, RUNS_OUT_OF_TIME].abs() > 1e-3
    learner.improve_policy()
    learner.fit_critic()
    learner.finish()
    found = metrics(learner)
    assert found["stopped"] == 0 and found["episodes"] == 2
    assert all(map(torch.isfinite, learner.metrics[: len(found)]))


@EVERY
def test_two_seeds_in_one_batch_learn_what_each_learns_alone(algo):
    algorithm, task, seeds = find_algorithm(algo), make_task("hopper"), (0, 3)
    settings = replace(algorithm.resolve("hopper"), **(SMALL | RELATIVES[algo] | {"compare_halves": True}))
    group = make_member_learner(algorithm, task, settings, seeds, dtype=torch.float64)
    alone = [
        algorithm.learner(trot.Env(task, settings.num_worlds, seed=seed, dtype=torch.float64), settings, seed)
        for seed in seeds
    ]
    # From tensors instead of numbers, as `trot tune` has them.
    group.set_member_settings([settings, settings])
    for _ in range(3):
        group.iterate()
        for one in alone:
            one.iterate()
    for member, (state, one) in enumerate(zip(group.member_states(), alone, strict=True)):
        assert distance(state, one.state_dict()) < ROUNDING
        assert distance(group.metrics[member], one.metrics) < ROUNDING


@EVERY
def test_a_gradient_that_is_not_finite_stops_it_before_the_policy_moves(algo):
    learner = prepared(algo=algo, falls=False, time_out=False, **RELATIVES[algo])
    end_inside(learner.env, falls=False, time_out=False)
    before = {name: part.clone() for name, part in learner.policy.state_dict().items()}
    learner.rollout()
    learner.window.loss = learner.window.loss * torch.nan
    learner.improve_policy()
    learner.fit_critic()
    learner.finish()
    assert metrics(learner)["stopped"] == 1 and bool(learner.bad_window.kept)
    assert all(part.equal(before[name]) for name, part in learner.policy.state_dict().items())


@pytest.mark.parametrize(
    ("algo", "change", "message"),
    [
        ("sapo", {"policy": "deterministic"}, "policy must be gaussian or state_dependent"),
        ("sapo", {"entropy_per_action": 0.5}, "entropy_per_action must be below 0, not 0.5"),
        ("sapo", {"critics": 0}, "critics must be at least 1, not 0"),
        ("rpo", {"ratio_bounds": (1.1, 2.0)}, "ratio_bounds must be a number below 1 and one above it"),
        ("rpo", {"policy": "deterministic"}, "probabilities of its actions are compared"),
        ("ahac", {"shortest_horizon": 65}, "shortest_horizon 65 is more than the horizon: 64"),
        ("ahac", {"stiffness_limit": 0.0}, "stiffness_limit must be above 0, not 0.0"),
        ("shac-mixed", {"critic": False}, "critic must be on"),
        ("shac-mixed", {"num_worlds": 1}, "num_worlds must be 2 at least"),
        ("shac", {"clip_worlds": -1.0}, "clip_worlds must be 0, which is off, or more, not -1.0"),
    ],
)
def test_settings_that_cannot_be(algo, change, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        replace(find_algorithm(algo).resolve("ant"), **change)
