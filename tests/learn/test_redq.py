"""REDQ: the least of the critics that are drawn, how they are drawn, and how much is learned from a step."""

import itertools
import math

import numpy as np
import pytest
import torch
from linear_sac import batch, fixed_noise, learner, linear

from trot.envs.registry import make_env
from trot.learn.algorithms import find_algorithm

CONSTANTS = [6.0, 1.0, 4.0, 9.0]
FOUR = [(0.0, 0.0, 1.0, constant) for constant in CONSTANTS]
"""Critics that expect the action and a constant; their targets half of it."""
ACTION = math.tanh(1)
LOG_DENSITY = -0.5 - math.log(2 * math.pi) / 2 - math.log(0.5) - math.log(1 - ACTION**2)
"""Of that action, where the noise is 1: the sample is 1/2 + 1/2."""
MANY = {"critics": 10, "critics_in_target": 2, "updates": 20, "policy_trusts": "mean"}


@pytest.mark.parametrize(("lots", "least"), [((0, 1), 1), ((2, 0), 4), ((0, 3), 6), ((3, 2), 4), ((1, 3), 1)])
def test_the_target_is_the_least_of_those_that_are_drawn(monkeypatch, lots, least):
    redq = linear(FOUR, gamma=0.9)
    fixed_noise(redq, monkeypatch)
    found = redq.target_value(batch([1.0, -2.0, 5.0], [0.0, 0.0, 1.0]), torch.tensor(lots))
    expected = (ACTION + least) / 2 - 0.5 * LOG_DENSITY
    np.testing.assert_allclose(found, [1 + 0.9 * expected, -2 + 0.9 * expected, 5], rtol=1e-12)


def test_all_critics_learn_the_target_of_two(monkeypatch):
    redq = linear(FOUR, gamma=0.9)
    fixed_noise(redq, monkeypatch)
    target = 1 + 0.9 * ((ACTION + 4) / 2 - 0.5 * LOG_DENSITY)
    loss, value, _, by_bias = redq.critic_gradient(batch([1.0], [0.0]), torch.tensor([2, 0]))
    # The action in the batch is 1/2.
    values = np.array(CONSTANTS) + 0.5
    assert loss.item() == pytest.approx(np.square(values - target).sum(), rel=1e-12)
    assert value.item() == pytest.approx(values.mean(), rel=1e-12)
    np.testing.assert_allclose(by_bias[:, 0], 2 * (values - target), rtol=1e-12)


def test_the_policy_climbs_the_mean_of_all(monkeypatch):
    # By the action 1, 2, 3 and 10.
    redq = linear([(0.0, 0.0, slope, 7 - slope) for slope in (1.0, 2.0, 3.0, 10.0)], policy_trusts="mean")
    fixed_noise(redq, monkeypatch)
    loss, _, _, by_bias = redq.policy_gradient(batch([0.0], [0.0]))
    assert loss.item() == pytest.approx(0.5 * LOG_DENSITY - (7 - 4 + 4 * ACTION), rel=1e-12)
    # The sample moves with the mean; with it tanh, whose slope is 1 - a^2, and the density, by 2 a.
    assert by_bias[0].item() == pytest.approx(0.5 * 2 * ACTION - 4 * (1 - ACTION**2), rel=1e-9)


def test_any_two_are_drawn_with_the_same_chance():
    redq = learner(**(MANY | {"updates": 9000}))
    lots = torch.stack(redq._lots())
    assert lots.shape == (9000, 2) and (lots[:, 0] != lots[:, 1]).all()
    pairs = [tuple(sorted(pair)) for pair in lots.tolist()]
    counts = np.array([pairs.count(pair) for pair in itertools.combinations(range(10), 2)])
    assert counts.sum() == 9000
    # 0.1 % and 99.9 % of the chi-square distribution with 44 degrees of freedom: 45 pairs, 200 times each.
    assert 20.5 < (np.square(counts - 200) / 200).sum() < 78.8
    assert not torch.stack(redq._lots()).equal(lots)


def test_where_all_make_the_target_nothing_is_drawn():
    redq = learner(updates=3)
    before = redq.generator.get_state()
    assert redq._lots() == [None] * 3 and redq.generator.get_state().equal(before)


def test_a_step_is_learned_from_twenty_times(monkeypatch):
    redq, calls = learner(**MANY), []

    def count(owner, name, what):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given: calls.append((what, given)) or original(*given))

    count(redq.memory, "sample", "batch")
    count(redq, "target_value", "target")
    count(redq.critic_optimizer, "step", "critics")
    count(redq.policy_optimizer, "step", "policy")
    count(redq.temperature_optimizer, "step", "temperature")
    redq.iterate()
    redq.iterate()
    # Exploring.
    assert calls == []
    redq.iterate()
    counts = {what: sum(called == what for called, _ in calls) for what, _ in calls}
    # Three steps of four worlds.
    assert counts == {"batch": 3, "target": 60, "critics": 60, "policy": 3, "temperature": 3}
    # Twenty batches at once, and each is learned from.
    assert [given[0] for what, given in calls if what == "batch"] == [20 * 16] * 3
    assert redq.updates_per_iteration == 60
    drawn = [tuple(given[1].tolist()) for what, given in calls if what == "target"]
    assert all(len(set(pair)) == 2 for pair in drawn) and len(set(drawn)) > 20
    # The policy comes last in each step.
    order = [what for what, _ in calls if what in ("critics", "policy")]
    assert order == (["critics"] * 20 + ["policy"]) * 3


def test_the_next_actions_of_all_updates_are_those_of_the_policy_before_them(monkeypatch):
    redq = learner(**MANY)
    redq.iterate()
    rows = redq.draw(20)
    noise = torch.randn(320, 1, generator=torch.Generator().manual_seed(0)).double()
    monkeypatch.setattr(redq, "_noise", lambda count: noise[:count])
    action, density = (part.detach() for part in redq.sample(rows["next_observation"], noise))
    given, target_value = [], redq.target_value
    monkeypatch.setattr(redq, "target_value", lambda *about: given.append(about[0]) or target_value(*about))
    redq.update(rows)
    for name, wanted in ({**rows, "next_action": action, "next_log_probability": density}).items():
        assert torch.cat([batch[name] for batch in given]).equal(wanted), name
    assert not redq.sample(rows["next_observation"], noise)[0].equal(action)


def test_the_targets_follow_every_update_of_the_critics():
    redq = learner(**MANY)
    redq.iterate()
    names = list(redq.critics.state_dict())
    target = {name: tensor.clone() for name, tensor in redq.target_critics.state_dict().items()}
    follow, seen = redq.follow, []

    def following(gradient):
        told = follow(gradient)
        seen.append({name: tensor.clone() for name, tensor in redq.critics.state_dict().items()})
        return told

    redq.follow = following
    redq.update(redq.draw(20))
    assert len(seen) == 20
    for critics in seen:
        target = {name: 0.995 * target[name] + 0.005 * critics[name] for name in names}
    for name, found in redq.target_critics.state_dict().items():
        torch.testing.assert_close(found, target[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("task", "entropy", "steps"),
    [
        ("hopper", -1, 125_000),
        ("half_cheetah", -3, 400_000),
        ("ant", -4, 300_000),
        ("humanoid", -2, 300_000),
        ("cartpole", -1, 125_000),
        ("muscle_humanoid", -152, 300_000),
    ],
)
@pytest.mark.parametrize(("preset", "worlds"), [("paper", 1), ("tuned", 16)])
def test_settings_are_its_authors(task, entropy, steps, preset, worlds):
    found = find_algorithm("redq").resolve(task, preset)
    assert (found.critics, found.critics_in_target, found.updates, found.policy_trusts) == (10, 2, 20, "mean")
    assert (found.actor_lr, found.critic_lr, found.temperature_lr) == (3e-4, 3e-4, 3e-4)
    assert (found.gamma, found.target_keep, found.batch, found.memory) == (0.99, 0.995, 256, 1_000_000)
    assert (found.hidden, found.log_std_bounds, found.time_outs) == ((256, 256), (-20, 2), "bootstrap")
    assert found.num_worlds == worlds and not found.normalize_observations
    # Steps of the policy; with one world these are all steps.
    assert found.iterations * found.horizon == steps
    random_steps = found.random_iterations * found.horizon * worlds
    assert 5000 <= random_steps < 5000 + found.horizon * worlds
    assert found.entropy_per_action * make_env(task, 1).num_actions == pytest.approx(entropy)


def test_a_task_of_your_own_is_to_keep_an_entropy_of_minus_one_per_action():
    found = find_algorithm("redq").resolve("mine.py:Own")
    assert found.entropy_per_action == -1
    agent = found.agent(make_env("cartpole", 1))
    assert agent.clip_observations is None and not agent.normalize and agent.activation == "relu"
