"""SAPO worked out again: its loss step by step, its critics' targets, and the steps of its temperature by hand."""

import math

import numpy as np
import pytest
import torch
from small_shac import FALLS, learner, normalised, prepared

from trot.learn.algorithms.sapo import Temperature
from trot.learn.networks import Critics
from trot.learn.returns import td_lambda

WIDTH = 1.5
"""Half a unit for each of a Hopper's three actions."""


def entropy_by_hand(sapo, inputs, noise):
    """Minus the logarithm of the squashed action's density, from the textbook: a Gaussian's over tanh's slope."""
    mean, log_std = sapo.policy.distribution(inputs)
    sample = mean + log_std.exp() * noise
    gaussian = torch.distributions.Normal(mean, log_std.exp()).log_prob(sample)
    return -(gaussian - torch.log(1 - torch.tanh(sample) ** 2)).sum(dim=-1)


def test_the_loss_step_by_step_with_the_entropy_and_the_mean_of_both_critics():
    sapo = prepared(algo="sapo")
    sapo.heat.logarithm.fill_(math.log(3.0))
    saved = sapo.state_dict()
    sapo.rollout()
    loss, noise = sapo.window.loss.item(), sapo.noise
    assert int(sapo.window.done.sum()) == 2
    sapo.load_state_dict(saved)
    env, (steps, worlds) = sapo.env, noise.shape[:2]
    mean, variance = sapo.agent.normalizer.mean, sapo.agent.normalizer.variance
    observation, expected = env.worlds.observation, 0.0
    g = [1.0] * worlds
    with torch.no_grad():
        for t in range(steps):
            inputs = normalised(observation, mean, variance)
            entropy = entropy_by_hand(sapo, inputs, noise[t])
            observation, reward, terminated, truncated, info = env.step(sapo.policy(inputs, noise[t]))
            one, two = (critic(normalised(info["final_obs"], mean, variance)) for critic in sapo.target_critic.critics)
            assert (one - two).abs().min() > 1e-6
            for world in range(worlds):
                # From 0 at the target, -1.5, to 1 at 1.5; at a temperature of 3.
                expected -= g[world] * (reward[world] + 3 * (entropy[world] + WIDTH) / (2 * WIDTH)).item()
                done = bool(terminated[world] or truncated[world])
                if (done or t == steps - 1) and not terminated[world]:
                    expected -= 0.99 * g[world] * (one[world] + two[world]).item() / 2
                g[world] = 1.0 if done else 0.99 * g[world]
    assert loss == pytest.approx(expected / (steps * worlds), rel=1e-11)


def test_both_critics_learn_from_the_least_of_their_values_and_the_entropy():
    sapo = prepared(algo="sapo", critic_passes=1, critic_batches=1)
    sapo.rollout()
    window = sapo.window
    assert (window.cautious_value <= window.next_value).all() and window.cautious_value[2, FALLS] == 0
    assert (window.cautious_value < window.next_value).any()
    entropy = entropy_by_hand(sapo, window.inputs, sapo.noise)
    paid = window.reward + sapo.temperature * (entropy + WIDTH) / (2 * WIDTH)
    torch.testing.assert_close(window.paid, paid, rtol=1e-11, atol=1e-11)
    target = td_lambda(paid, window.cautious_value, window.done, 0.99, 0.95).detach()
    expected = sum((critic(window.inputs) - target).square().mean().item() for critic in sapo.critic.critics)
    sapo.improve_policy()
    sapo.fit_critic()
    assert sapo.value_loss.item() == pytest.approx(expected, rel=1e-11)


def test_without_a_target_net_the_target_is_the_critic_itself():
    sapo = prepared(algo="sapo")
    own, target = (list(network.state_dict().values()) for network in (sapo.critic, sapo.target_critic))
    assert all(one.equal(other) for one, other in zip(own, target, strict=True))


@pytest.mark.parametrize(("entropy", "slope"), [(-1.4, 0.3), (-1.6, -0.3), (2.0, 0.5), (-9.0, -0.5)])
def test_steps_of_the_temperature_by_hand(entropy, slope):
    sapo = learner(algo="sapo", initial_temperature=2.0, lr_decay=False)
    sapo.entropy = torch.tensor(entropy, dtype=torch.float64)
    # 2 * 1.5 * (entropy + 1.5), and no more than 0.5 either way; Adam's first step is the rate, whatever the slope.
    sapo.cool()
    assert sapo.temperature_optimizer.exp_avg_0.item() == pytest.approx(0.3 * slope, rel=1e-12)
    first = math.log(2) - math.copysign(5e-3, slope)
    assert sapo.heat.logarithm.item() == pytest.approx(first, abs=1e-9)
    # The second: slopes of one size move it by the rate again, as both means are then that size.
    if abs(slope) == 0.5:
        sapo.cool()
        assert sapo.heat.logarithm.item() == pytest.approx(first - math.copysign(5e-3, slope), abs=1e-9)


@pytest.mark.parametrize(("done", "slope"), [(0, 0.3), (5, 0.75), (10, 1.2), (20, 2.1), (25, 2.1)])
def test_the_target_of_the_entropy_falls_as_learning_rates_do(done, slope):
    options = {"initial_temperature": 2.0, "max_grad_norm": 5.0, "final_entropy_per_action": -0.7}
    sapo = learner(algo="sapo", **options)
    sapo.entropy = torch.tensor(-1.4, dtype=torch.float64)
    sapo.iteration.fill_(done)
    # From -1.5 to -2.1 in twenty iterations: 2 * 1.5 * (0.1 + 0.6 * done / 20), and no further behind the last.
    sapo.cool()
    assert sapo.temperature_optimizer.exp_avg_0.item() == pytest.approx(0.3 * slope, rel=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.5, math.nan, -math.inf])
def test_a_final_entropy_that_is_not_below_zero_is_refused(value):
    with pytest.raises(ValueError, match="final_entropy_per_action must be below 0"):
        learner(algo="sapo", final_entropy_per_action=value)


def test_two_critics_begin_apart_and_their_mean_is_what_they_say_together():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        critics = Critics(2, 3, (4,))
    seen = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    each = critics.each(seen)
    assert each.shape == (5, 2) and not torch.allclose(each[:, 0], each[:, 1])
    np.testing.assert_allclose(critics(seen).detach(), each.detach().numpy().mean(axis=1), rtol=1e-6)
    assert Temperature(2.0, torch.zeros(3)).logarithm.shape == (3, 1)
