"""SHAC on four Hoppers in float64: gradients against differences, every part of an iteration worked out again."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch

import trot
from trot.learn import shac as shac_module
from trot.learn.returns import td_lambda
from trot.learn.settings import resolve
from trot.learn.shac import METRICS, Shac

SMALL = {
    "num_worlds": 4,
    "horizon": 6,
    "iterations": 20,
    "critic_batches": 2,
    "critic_passes": 2,
    "actor_hidden": (8,),
    "critic_hidden": (8,),
}
FALLS, RUNS_OUT_OF_TIME = 1, 2
"""The worlds in which prepared() ends an episode in the third of six steps."""


def learner(seed=0, algo="shac", **changes):
    settings = replace(resolve("hopper", algo), **(SMALL | changes))
    return Shac(trot.make_env("hopper", settings.num_worlds, dtype=torch.float64, seed=seed), settings, seed)


def run(shac, iterations=3):
    for _ in range(iterations):
        shac.iterate()
    return shac


def prepared(after=2, falls=True, time_out=True, **changes):
    """After some iterations, so that target critic, critic and statistics all differ from how they began."""
    shac = run(learner(**changes), after)
    start = shac.start.clone()
    if falls:
        # Lies in the air and drops below the limit in the third step.
        start.joint_q[FALLS, 1:3], start.joint_qd[FALLS, 1] = torch.tensor([-0.3, 1.5]), -3.0
    if time_out:
        start.clock[RUNS_OUT_OF_TIME] = shac.env.horizon - 3
    shac.env.worlds = start
    shac.env.place(shac.env.state)
    shac.start.copy_(shac.env.worlds)
    shac.env.worlds = shac.start
    return shac


def end_soon(shac, worlds, steps):
    """Let these worlds run out of time in the given step of the next window, counted from 1."""
    shac.start.clock[worlds] = shac.env.horizon - steps
    shac.env.worlds = shac.start


def copies(module):
    return [tensor.detach().clone() for tensor in module.state_dict().values()]


def same(first, second):
    return all(a.equal(b) for a, b in zip(first, second, strict=True))


def metrics(shac):
    return dict(zip(METRICS, shac.metrics.tolist(), strict=True))


def normalised(observation, mean, variance):
    return (observation - mean) / (variance + 1e-5).sqrt()


def watched(shac):
    """A list that every later env.step leaves its outputs in."""
    record, step = [], shac.env.step
    shac.env.step = lambda action: record.append(step(action)) or record[-1]
    return record


# The gradient of the policy's loss.


def loss_at(shac, saved, change):
    """The loss of the same window, same start and same noise, with weights moved by `change`."""
    shac.load_state_dict(saved)
    with torch.no_grad():
        weights = torch.nn.utils.parameters_to_vector(shac.policy.parameters())
        torch.nn.utils.vector_to_parameters(weights + change, shac.policy.parameters())
        shac.rollout()
    return shac.window.loss.item()


@pytest.mark.parametrize("policy", ["gaussian", "state_dependent", "deterministic"])
@pytest.mark.parametrize(("falls", "time_out"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_gradient_of_the_loss_against_differences(policy, falls, time_out):
    shac = prepared(falls=falls, time_out=time_out, policy=policy)
    saved = shac.state_dict()
    shac.rollout()
    ends = shac.window.done.nonzero().tolist()
    assert ends == [[2, world] for world, happens in ((FALLS, falls), (RUNS_OUT_OF_TIME, time_out)) if happens]
    gradient = torch.cat([part.flatten() for part in shac.policy_gradient()])

    generator = torch.Generator().manual_seed(1)
    directions = list(torch.randn(6, len(gradient), generator=generator, dtype=torch.float64))
    directions += list(torch.eye(len(gradient), dtype=torch.float64)[:: len(gradient) // 12])
    for direction in directions:
        step = 1e-6 * direction
        difference = (loss_at(shac, saved, step) - loss_at(shac, saved, -step)) / 2e-6
        size = (gradient.norm() * direction.norm()).item()
        assert abs(difference - (gradient @ direction).item()) <= 2e-8 * size


def test_no_gradient_reaches_back_into_the_last_window():
    shac = prepared()
    shac.rollout()
    assert shac.window.seen[0].is_leaf and all(seen.requires_grad for seen in shac.window.seen[1:])
    assert not shac.window.inputs.requires_grad


# The loss, worked out again step by step.


def loss_again(shac, noise, critic):
    """From the same start with the same noise, with accumulators g and R for each world."""
    env, gamma, (steps, worlds) = shac.env, shac.settings.gamma, noise.shape[:2]
    mean, variance = shac.normalizer.mean, shac.normalizer.variance
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
    mean, variance = shac.normalizer.mean, shac.normalizer.variance
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


# One step of each optimiser.


class AdamByHand:
    def __init__(self, settings):
        self.betas, self.steps, self.m, self.v = settings.adam_betas, 0, 0.0, 0.0

    def step(self, gradient, rate):
        """What to add to the weights."""
        (b1, b2), self.steps = self.betas, self.steps + 1
        self.m = b1 * self.m + (1 - b1) * gradient
        self.v = b2 * self.v + (1 - b2) * gradient**2
        m, v = self.m / (1 - b1**self.steps), self.v / (1 - b2**self.steps)
        return -rate * m / (np.sqrt(v) + 1e-8)


def clipped(gradient, limit):
    norm = np.linalg.norm(gradient)
    return gradient * min(1.0, limit / (norm + 1e-6))


def vector(tensors):
    return np.concatenate([tensor.detach().numpy().ravel() for tensor in tensors])


# The first is below any gradient of these windows, the last above.
@pytest.mark.parametrize(("max_grad_norm", "clips"), [(0.5, True), (1e3, False)])
@pytest.mark.parametrize("lr_decay", [True, False])
def test_the_policy_takes_one_step_of_adam_on_the_clipped_gradient(max_grad_norm, clips, lr_decay):
    shac = learner(max_grad_norm=max_grad_norm, lr_decay=lr_decay, iterations=5)
    adam = AdamByHand(shac.settings)
    for iteration in range(5):
        saved = shac.state_dict()
        shac.rollout()
        gradient = vector(shac.policy_gradient())
        parameters = list(shac.policy.parameters())
        shac.load_state_dict(saved)
        before = vector(parameters)
        shac.rollout()
        shac.improve_policy()
        assert bool(np.linalg.norm(gradient) > max_grad_norm) is clips
        # Linearly from 2e-3 to 1e-5, which the last of five does not quite reach.
        rate = 2e-3 + (1e-5 - 2e-3) * iteration / 5 if lr_decay else 2e-3
        change = adam.step(clipped(gradient, max_grad_norm), rate)
        # The rate is kept in float32.
        np.testing.assert_allclose(vector(parameters) - before, change, rtol=1e-6, atol=1e-14)
        assert shac.gradient_norm.item() == pytest.approx(np.linalg.norm(gradient), rel=1e-12)
        shac.fit_critic()
        shac.finish()


def test_the_critic_fits_consecutive_blocks_of_steps_in_every_pass():
    shac = prepared(critic_passes=3, critic_batches=3)
    inputs = []
    shac.critic.register_forward_hook(lambda module, args, output: inputs.append(args[0]))
    shac.rollout()
    shac.improve_policy()
    shac.fit_critic()
    assert len(inputs) == 9
    for index, batch in enumerate(inputs):
        block = 2 * (index % 3)
        assert batch.equal(shac.window.inputs[block : block + 2])


@pytest.mark.parametrize("max_grad_norm", [0.5, 1e4])
def test_the_critic_takes_steps_of_adam_towards_the_td_lambda_targets(max_grad_norm):
    shac = prepared(after=0, max_grad_norm=max_grad_norm, iterations=5, critic_passes=3)
    adam = AdamByHand(shac.settings)
    for iteration in range(3):
        shac.rollout()
        shac.improve_policy()
        window = shac.window
        again = learner(critic_passes=3).critic
        again.load_state_dict(shac.critic.state_dict())
        parameters, losses = list(again.parameters()), []
        targets = td_lambda(window.reward, window.next_value, window.done, 0.99, 0.95).detach()
        for _ in range(3):
            for steps in (slice(0, 3), slice(3, 6)):
                loss = (again(window.inputs[steps]) - targets[steps]).square().sum() / 12
                gradient = vector(torch.autograd.grad(loss, parameters))
                change = adam.step(clipped(gradient, max_grad_norm), 2e-4 + (1e-5 - 2e-4) * iteration / 5)
                moved = torch.from_numpy(vector(parameters) + change)
                torch.nn.utils.vector_to_parameters(moved, parameters)
                losses.append(loss.item())
        shac.fit_critic()
        np.testing.assert_allclose(vector(shac.critic.parameters()), vector(parameters), rtol=0, atol=1e-9)
        # Reported is the last pass.
        assert shac.value_loss.item() == pytest.approx(sum(losses[-2:]) / 2, rel=1e-6)
        shac.finish()


def test_the_target_critic_moves_once_after_the_fit():
    shac = prepared(target_keep=0.2)
    target, critic = vector(shac.target_critic.parameters()), vector(shac.critic.parameters())
    shac.rollout()
    shac.improve_policy()
    shac.fit_critic()
    fitted = vector(shac.critic.parameters())
    assert np.abs(fitted - critic).max() > 1e-5
    np.testing.assert_array_equal(vector(shac.target_critic.parameters()), target)
    shac.finish()
    np.testing.assert_allclose(vector(shac.target_critic.parameters()), 0.2 * target + 0.8 * fitted, rtol=1e-12)
    np.testing.assert_array_equal(vector(shac.critic.parameters()), fitted)


def test_statistics_are_frozen_in_a_window_and_then_take_in_all_its_observations():
    shac = learner()
    rows, record = [], watched(shac)
    for iteration in range(3):
        record.clear()
        if iteration == 1:
            # Ends inside a window: it is the new episode's first observation that counts.
            end_soon(shac, [0, 3], 2)
        mean, variance = shac.normalizer.mean.clone(), shac.normalizer.variance.clone()
        first = shac.start.observation.clone()
        shac.rollout()
        shac.improve_policy()
        shac.fit_critic()
        assert shac.normalizer.mean.equal(mean) and shac.normalizer.variance.equal(variance)
        seen = torch.stack([first] + [observation.detach() for observation, *_ in record])
        torch.testing.assert_close(shac.window.inputs, normalised(seen[:-1], mean, variance), rtol=1e-12, atol=1e-12)
        shac.finish()
        assert shac.start.observation.equal(seen[-1])
        # Seven batches of a window of six steps: the observation between two windows counts in both.
        rows.append(seen.reshape(-1, shac.env.num_observations).numpy())
        everything = np.concatenate(rows)
        count = len(everything) + 1e-4
        assert len(everything) == 28 * (iteration + 1)
        expected = everything.sum(axis=0) / count
        np.testing.assert_allclose(shac.normalizer.mean, expected, rtol=1e-10)
        squares = ((everything - expected) ** 2).sum(axis=0) + 1e-4 * (1 + expected**2)
        np.testing.assert_allclose(shac.normalizer.variance, squares / count, rtol=1e-10)


def test_without_normalisation_the_policy_sees_observations_as_they_are():
    shac = prepared(normalize_observations=False)
    first, record = shac.start.observation.clone(), watched(shac)
    shac.rollout()
    assert shac.window.inputs.equal(torch.stack([first] + [observation.detach() for observation, *_ in record[:-1]]))
    value = shac.target_critic(torch.stack([info["final_obs"] for *_, info in record]))
    value[2, FALLS] = 0
    torch.testing.assert_close(shac.window.next_value, value, rtol=1e-12, atol=1e-12)


# What an iteration leaves behind.


def running_mean(batches, window):
    """The 2022 program's: k new episodes weigh k, at most the window; the old mean what the window leaves to it."""
    mean, count = 0.0, 0
    for batch in batches:
        if len(batch):
            k = min(len(batch), window)
            old = min(window - k, count)
            mean = (old * mean + k * np.mean(batch)) / (old + k)
            count += len(batch)
        yield mean


def test_about_a_hundred_episodes_count():
    assert shac_module.RETURN_WINDOW == 100


@pytest.mark.parametrize("window", [3, 5, 100])
def test_running_means_of_returns_and_lengths(monkeypatch, rng, window):
    monkeypatch.setattr(shac_module, "RETURN_WINDOW", window)
    shac = learner()
    record = watched(shac)
    returns, lengths, collected, age = [], [], np.zeros(4), np.zeros(4)
    for iteration in range(12):
        if iteration not in (0, 4, 5):
            # One to four episodes end, each in a step of its own.
            for world in rng.choice(4, size=rng.integers(1, 5), replace=False):
                end_soon(shac, [int(world)], int(rng.integers(1, 7)))
        record.clear()
        shac.iterate()
        returns.append([]), lengths.append([])
        for _, reward, terminated, truncated, _ in record:
            collected, age = collected + reward.detach().numpy(), age + 1
            for world in (terminated | truncated).nonzero().flatten().tolist():
                returns[-1].append(collected[world]), lengths[-1].append(age[world])
                collected[world] = age[world] = 0
        found = metrics(shac)
        assert found["episodes"] == sum(map(len, returns))
        assert found["episode_return"] == pytest.approx(list(running_mean(returns, window))[-1], rel=1e-12, abs=1e-12)
        assert found["episode_length"] == pytest.approx(list(running_mean(lengths, window))[-1], rel=1e-12, abs=1e-12)
    assert sum(map(len, returns)) > 15 and max(map(len, returns)) >= 4


def test_more_episodes_at_once_than_the_window_holds():
    shac = learner(num_worlds=256)
    end_soon(shac, slice(None), 4)
    record = watched(shac)
    shac.iterate()
    # All 256 ended in the fourth step, and count alike.
    returns = torch.stack([reward for _, reward, *_ in record[:4]]).sum(dim=0)
    assert metrics(shac)["episodes"] == 256 and metrics(shac)["episode_length"] == 4
    assert metrics(shac)["episode_return"] == pytest.approx(returns.mean().item(), rel=1e-12)
    shac.iterate()
    assert metrics(shac)["episode_return"] == pytest.approx(returns.mean().item(), rel=1e-12)


def test_the_best_policy_is_kept_exactly_when_the_running_mean_improves(monkeypatch):
    # So that the mean goes down as well as up within a few iterations.
    monkeypatch.setattr(shac_module, "RETURN_WINDOW", 2)
    shac = learner()
    best, improvements = -np.inf, []
    kept = copies(shac.best_policy) + copies(shac.best_normalizer)
    for iteration in range(14):
        if iteration % 4 != 0:
            end_soon(shac, [iteration % 3], 1 + iteration % 6)
        shac.iterate()
        now = metrics(shac)["episode_return"]
        improved = metrics(shac)["episodes"] > 0 and now > best
        if improved:
            # As they are at the end of the iteration.
            best, kept = now, copies(shac.policy) + copies(shac.normalizer)
        improvements.append(improved)
        assert same(copies(shac.best_policy) + copies(shac.best_normalizer), kept)
        assert metrics(shac)["best_return"] == best
    # Before the first episode ended there is nothing to be better than.
    assert improvements[0] is False and 2 <= sum(improvements) < 12 - 2


def test_adjoints_are_the_gradients_by_the_states_after_each_step(monkeypatch):
    shac = prepared()
    saved, record = shac.state_dict(), watched(shac)
    shac.rollout()
    tensors = [part for *_, info in record for part in (info["final_state"].joint_q, info["final_state"].joint_qd)]
    gradients = torch.autograd.grad(shac.window.loss, tensors, retain_graph=True)
    squares = np.array([(gradient**2).sum(dim=1).numpy() for gradient in gradients])
    # Steps x worlds; times 24, as the loss is a mean over 6 steps in 4 worlds.
    norms = 24 * np.sqrt(squares[0::2] + squares[1::2])
    # Behind a fall lies nothing: there the gradient is that of the last reward, two steps into the episode.
    last_reward = record[2][1][FALLS]
    alone = vector(torch.autograd.grad(-(0.99**2) * last_reward, tensors[4:6]))
    assert norms[2, FALLS] == pytest.approx(np.linalg.norm(alone), rel=1e-12)

    # Between the steepest world and the next one.
    monkeypatch.setattr(shac_module, "STEEP", np.sort(norms.max(axis=0))[-2:].mean())
    shac.load_state_dict(saved)
    shac.iterate()
    found, means = metrics(shac), norms.mean(axis=1)
    assert found["adjoint_first"] == pytest.approx(means[0], rel=1e-12)
    assert found["adjoint_last"] == pytest.approx(means[-1], rel=1e-12)
    # Of six steps the third smallest.
    assert found["adjoint_median"] == pytest.approx(np.sort(means)[2], rel=1e-12)
    assert found["steep_worlds"] == 1 / 4


def test_metrics_of_a_window():
    shac = prepared()
    shac.iterate()
    found = metrics(shac)
    assert found["reward"] == pytest.approx(shac.window.reward.mean().item(), rel=1e-15)
    assert found["policy_loss"] == shac.window.loss.item()
    assert found["gradient_norm"] == shac.gradient_norm.item() > 0
    assert found["value_loss"] == shac.value_loss.item() > 0
    assert found["faults"] == found["stopped"] == 0
    assert shac.iteration.item() == 3


def test_blow_ups_are_counted_and_do_not_stop_learning():
    shac = prepared(falls=False, time_out=False)
    shac.start.joint_qd[0] = 1e7
    shac.iterate()
    found = metrics(shac)
    assert found["faults"] == 1 and found["stopped"] == 0 and np.isfinite(list(found.values())[:-2]).all()
    assert shac.window.done[0, 0] and shac.window.next_value[0, 0] == 0


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
    assert all(state["step"] == 0 for state in shac.critic_optimizer.state.values())


# Bit for bit.


def everything(shac):
    return {name: tensor.detach().clone() for name, tensor in shac.named_tensors()} | {
        "metrics": shac.metrics.clone(),
        **{f"start.{name}": tensor.clone() for name, tensor in shac.start.tensors().items()},
    }


def differing(first, second):
    assert first.keys() == second.keys()
    return [name for name in first if not first[name].equal(second[name])]


def test_a_resumed_run_equals_an_uninterrupted_one():
    shac = run(prepared(after=0))
    # An episode ends before the run is saved, another one in the third window after that.
    end_soon(shac, [3], 15)
    file = io.BytesIO()
    torch.save(shac.state_dict(), file)
    episodes = metrics(shac)["episodes"]
    run(shac)
    assert 0 < episodes < metrics(shac)["episodes"]

    file.seek(0)
    resumed = learner(seed=7)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert differing(everything(run(resumed)), everything(shac)) == []


def test_what_is_saved_does_not_change_with_the_run():
    shac = run(learner(), 1)
    saved, before = shac.state_dict(), everything(shac)
    run(shac)
    shac.load_state_dict(saved)
    before.pop("metrics")
    assert differing(before, {name: tensor for name, tensor in everything(shac).items() if name != "metrics"}) == []


def test_same_seed_same_bits():
    first = everything(run(prepared(after=0)))
    # PyTorch's own random numbers have no part in it.
    torch.manual_seed(123)
    assert differing(everything(run(prepared(after=0))), first) == []
    changed = differing(everything(run(prepared(after=0, seed=1))), first)
    assert {"policy.log_std", "policy.network.0.weight", "critic.network.0.weight", "metrics"} <= set(changed)


def test_a_learner_leaves_pytorchs_own_random_numbers_alone():
    before = torch.get_rng_state()
    run(learner(), 1)
    assert torch.get_rng_state().equal(before)


def test_learning_rates_never_fall_below_the_last():
    """Also where a run goes on for longer than was planned."""
    shac = run(learner(iterations=2), 4)
    for optimizer in (shac.policy_optimizer, shac.critic_optimizer):
        assert optimizer.param_groups[0]["lr"].item() == pytest.approx(1e-5, rel=1e-4)


# A gradient that is not finite.


def overflow(shac, monkeypatch):
    """A deviation of infinity: actions are -1 and 1 and the loss is finite, but 0 times infinity is not."""
    with torch.no_grad():
        shac.policy.log_std.fill_(1000.0)


def spoil_one_loss(shac, monkeypatch):
    """Windows after that one are as good as any."""
    exact, left = shac_module.policy_loss, [1]

    def spoilt(*args):
        return exact(*args) * (float("nan") if left and left.pop() else 1.0)

    monkeypatch.setattr(shac_module, "policy_loss", spoilt)


@pytest.mark.parametrize("poison", [overflow, spoil_one_loss])
def test_a_gradient_that_is_not_finite_stops_the_run_and_leaves_the_networks_alone(monkeypatch, poison):
    shac = run(learner())
    assert not shac.stopped
    poison(shac, monkeypatch)
    networks = copies(shac.policy) + copies(shac.critic) + copies(shac.best_policy)
    for _ in range(3):
        # What would be the best policy so far.
        end_soon(shac, [0], 1)
        shac.collected.fill_(1e6)
        shac.iterate()
        assert shac.stopped and metrics(shac)["stopped"] == 1
        assert same(copies(shac.policy) + copies(shac.critic) + copies(shac.best_policy), networks)


@pytest.mark.parametrize("poison", [overflow, spoil_one_loss])
def test_the_first_window_with_a_bad_gradient_is_kept(monkeypatch, poison):
    shac = run(learner())
    assert (shac.offending_noise == 0).all()
    poison(shac, monkeypatch)
    start = shac.start.clone()
    shac.iterate()
    noise = shac.noise.clone()
    run(shac, 2)
    assert shac.offending_noise.equal(noise) and not shac.noise.equal(noise)
    assert same(shac.offending_start.tensors().values(), start.tensors().values())
    assert not shac.start.joint_q.equal(start.joint_q)
