"""Members of one batch with settings of their own: each learns what a run with these settings learns alone."""

from dataclasses import replace

import pytest
import torch
from alike import ROUNDING, distance
from small_shac import SMALL, end_inside, learner

import trot
from trot.envs.registry import make_task
from trot.learn.algorithms import find_algorithm
from trot.learn.algorithms.shac import Shac
from trot.learn.member_learner import make_member_learner

SEEDS = (0, 3, 3)
OWN = (
    {},
    {"actor_lr": 1e-2, "critic_lr": 1e-4, "final_lr": 1e-3, "gamma": 0.9, "td_lambda": 0.3},
    {"actor_lr": 5e-4, "max_grad_norm": 0.02, "target_keep": 0.9, "gamma": 0.95, "td_lambda": 1.0},
)


def of_members(algo="shac", own=OWN, **changes):
    common = replace(find_algorithm(algo).resolve("hopper"), **(SMALL | changes))
    return common, [replace(common, **one) for one in own]


def make_group(algo="shac", own=OWN, device="cpu", **changes):
    common, settings = of_members(algo, own, **changes)
    task = make_task("hopper")
    group = make_member_learner(find_algorithm(algo), task, common, SEEDS, device, torch.float64)
    group.set_member_settings(settings)
    return group


def make_alone(algo="shac", own=OWN, device="cpu", **changes):
    _, settings = of_members(algo, own, **changes)
    task, make = make_task("hopper"), find_algorithm(algo).learner
    return [
        make(trot.Env(task, one.num_worlds, device, seed, torch.float64), one, seed)
        for one, seed in zip(settings, SEEDS, strict=True)
    ]


def end_some(group, alone):
    """The same episodes end inside the next window, by a fall and by the clock."""
    for one in alone:
        end_inside(one.env)
    for member, one in enumerate(alone):
        group.load_member(member, one.state_dict())


def furthest(group, alone):
    return max(distance(state, one.state_dict()) for state, one in zip(group.member_states(), alone, strict=True))


@pytest.mark.parametrize("options", [{}, {"algo": "shac-no-critic"}, {"lr_decay": False}], ids=str)
def test_ten_iterations_are_those_of_runs_with_these_settings(options):
    group, alone = make_group(**options), make_alone(**options)
    end_some(group, alone)
    for _ in range(10):
        for one in (group, *alone):
            one.iterate()
        assert furthest(group, alone) < ROUNDING
    weights = [one.policy.network[0].weight for one in alone]
    assert (weights[1] - weights[2]).abs().max() > 1e-3


@pytest.mark.parametrize("name", Shac.own_settings)
def test_each_setting_counts(name):
    """Two members that differ in this one alone part from each other."""
    value = {"gamma": 0.5, "td_lambda": 0.1, "max_grad_norm": 1e-3, "target_keep": 0.5}.get(name, 0.05)
    own = ({}, {}, {name: value})
    group, alone = make_group(own=own), make_alone(own=own)
    end_some(group, alone)
    for _ in range(3):
        for one in (group, *alone):
            one.iterate()
    assert furthest(group, alone) < ROUNDING
    assert distance(group.member_states()[1], group.member_states()[2]) > 1e-5


def test_settings_that_change_on_the_way():
    group, alone = make_group(own=({}, {}, {})), make_alone(own=({}, {}, {}))
    end_some(group, alone)
    for one in (group, *alone):
        one.iterate()
    _, settings = of_members()
    group.set_member_settings(settings)
    after = make_alone()
    for one, before in zip(after, alone, strict=True):
        one.load_state_dict(before.state_dict())
    for one in (group, *after):
        one.iterate()
        one.iterate()
    assert furthest(group, after) < ROUNDING


def test_what_members_cannot_differ_in_is_named():
    group = make_group()
    common, settings = of_members()
    with pytest.raises(ValueError, match=r"cannot differ in adam_betas, horizon; they can in gamma, actor_lr, "):
        group.set_member_settings([*settings[:2], replace(common, adam_betas=(0.9, 0.9), horizon=8)])
    with pytest.raises(ValueError, match="there are settings for 2 members; the learner has 3"):
        group.set_member_settings(settings[:2])
    with pytest.raises(ValueError, match="there are settings for 1 members; the learner has no members"):
        learner().set_member_settings(settings[:1])
    algorithm = find_algorithm("ppo")
    ppo = algorithm.learner(trot.make_env("hopper", 4), replace(algorithm.resolve("hopper"), num_worlds=4), 0)
    with pytest.raises(ValueError, match="Ppo has no settings that differ between members"):
        ppo.set_member_settings([])


@pytest.mark.gpu
def test_captured_phases_take_settings_that_change():
    from trot.learn.capture import fast_phases

    eager, captured = make_group(device="cuda"), make_group(device="cuda")
    phases = fast_phases(captured)
    _, settings = of_members()
    for iteration in range(4):
        if iteration == 2:
            for group in (eager, captured):
                group.set_member_settings(settings[::-1])
        eager.iterate()
        for phase in phases.values():
            phase(iteration)
        assert eager.metrics.equal(captured.metrics)
