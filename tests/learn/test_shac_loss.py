"""SHAC's loss worked out again step by step, with and without a critic, and its gradient against differences."""

import pytest
import torch
from small_shac import (
    FALLS,
    RUNS_OUT_OF_TIME,
    copies,
    gradient_error,
    learner,
    metrics,
    normalised,
    prepared,
    same,
    watched,
)

# The gradient of the policy's loss.


@pytest.mark.parametrize("policy", ["gaussian", "state_dependent", "deterministic"])
@pytest.mark.parametrize(("falls", "time_out"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_gradient_of_the_loss_against_differences(policy, falls, time_out):
    shac = prepared(falls=falls, time_out=time_out, policy=policy)
    saved = shac.state_dict()
    shac.rollout()
    ends = shac.window.done.nonzero().tolist()
    assert ends == [[2, world] for world, happens in ((FALLS, falls), (RUNS_OUT_OF_TIME, time_out)) if happens]
    assert gradient_error(shac, saved, num_random=6, num_weights=12) <= 2e-8


def test_no_gradient_reaches_back_into_the_last_window():
    shac = prepared()
    shac.rollout()
    assert shac.window.seen[0].is_leaf and all(seen.requires_grad for seen in shac.window.seen[1:])
    assert not shac.window.inputs.requires_grad


# The loss, worked out again step by step.


def loss_again(shac, noise, critic):
    """From the same start with the same noise, with accumulators g and R for each world."""
    env, gamma, (steps, worlds) = shac.env, shac.settings.gamma, noise.shape[:2]
    mean, variance = shac.agent.normalizer.mean, shac.agent.normalizer.variance
    g, total, loss = [1.0] * worlds, [0.0] * worlds, 0.0
    observation = env.worlds.observation
    for t in range(steps):
        action = shac.policy(normalised(observation, mean, variance), noise[t])
        observation, reward, terminated, truncated, info = env.step(action)
        value = critic(normalised(info["final_obs"], mean, variance))
        for world in range(worlds):
            total[world] += g[world] * reward[world].item()
            done = bool(terminated[world] or truncated[world])
            if done or t == steps - 1:
                beyond = 0.0 if terminated[world] else value[world].item()
                loss -= total[world] + gamma * g[world] * beyond
            g[world] *= gamma
            if done:
                g[world], total[world] = 1.0, 0.0
    return loss / (steps * worlds)


@pytest.mark.parametrize(("falls", "time_out"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_loss_is_minus_the_mean_return_with_values_of_the_target_critic(falls, time_out):
    shac = prepared(falls=falls, time_out=time_out)
    saved = shac.state_dict()
    shac.rollout()
    loss, noise = shac.window.loss.item(), shac.noise
    assert int(shac.window.done.sum()) == falls + time_out
    for critic, equal in ((shac.target_critic, True), (shac.critic, False)):
        shac.load_state_dict(saved)
        with torch.no_grad():
            assert (loss_again(shac, noise, critic) == pytest.approx(loss, rel=1e-12)) is equal


def test_values_are_0_after_a_fall_and_those_of_the_last_observation_after_a_time_out():
    shac = prepared()
    record = watched(shac)
    shac.rollout()
    mean, variance = shac.agent.normalizer.mean, shac.agent.normalizer.variance
    for t, (observation, _, terminated, truncated, info) in enumerate(record):
        assert bool(terminated[FALLS]) == bool(truncated[RUNS_OUT_OF_TIME]) == (t == 2)
        value = shac.target_critic(normalised(info["final_obs"], mean, variance))
        value[terminated] = 0
        torch.testing.assert_close(shac.window.next_value[t], value, rtol=1e-12, atol=1e-12)
        if t == 2:
            of_the_new_episode = shac.target_critic(normalised(observation, mean, variance))
            ended = [FALLS, RUNS_OUT_OF_TIME]
            assert ((of_the_new_episode - shac.window.next_value[t])[ended].abs() > 1e-3).all()


def test_the_first_window_is_valued_by_the_critic_as_it_began():
    shac = learner()
    initial = copies(shac.critic)
    assert same(copies(shac.target_critic), initial)
    record = watched(shac)
    shac.rollout()
    with torch.no_grad():
        # Mean 0 and variance 1 before anything was seen.
        value = torch.stack([shac.critic(info["final_obs"] / 1.00001**0.5) for *_, info in record])
    assert not shac.window.done.any()
    torch.testing.assert_close(shac.window.next_value.detach(), value, rtol=1e-12, atol=1e-12)


def test_each_window_has_noise_of_its_own():
    shac = learner(num_worlds=64)
    noises = []
    for _ in range(2):
        shac.rollout()
        noises.append(shac.noise.clone())
    assert noises[0].shape == (6, 64, 3) and not noises[0].equal(noises[1])
    assert len(noises[0].unique()) == 6 * 64 * 3
    # 2304 standard normal numbers: mean 0 +- 0.021, deviation 1 +- 0.015.
    both = torch.stack(noises)
    assert abs(both.mean().item()) < 0.1 and abs(both.std().item() - 1) < 0.08


# Without a critic.


@pytest.mark.parametrize("algo", ["bptt", "shac-no-critic"])
def test_without_a_critic_there_are_no_values_and_no_fit(algo):
    shac = prepared(algo=algo)
    critics = copies(shac.critic) + copies(shac.target_critic)
    saved = shac.state_dict()
    shac.rollout()
    assert (shac.window.next_value == 0).all()
    loss, noise = shac.window.loss.item(), shac.noise
    shac.load_state_dict(saved)
    with torch.no_grad():
        assert loss_again(shac, noise, lambda inputs: torch.zeros(len(inputs))) == pytest.approx(loss, rel=1e-12)
    shac.load_state_dict(saved)
    policy = copies(shac.policy)
    shac.iterate()
    assert same(copies(shac.critic) + copies(shac.target_critic), critics)
    assert not same(copies(shac.policy), policy) and metrics(shac)["value_loss"] == 0
    assert all((tensor == 0).all() for tensor in shac.critic_optimizer.buffers())
