"""What SHAC reports of an iteration: returns, lengths, the best policy, adjoints, faults."""

import numpy as np
import pytest
import torch
from small_shac import FALLS, copies, end_inside, end_soon, learner, metrics, prepared, same, vector, watched

from trot.learn import episodes as episodes_module
from trot.learn.algorithms import shac as shac_module


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
    assert episodes_module.RETURN_WINDOW == 100


@pytest.mark.parametrize("window", [3, 5, 100])
def test_running_means_of_returns_and_lengths(monkeypatch, rng, window):
    monkeypatch.setattr(episodes_module, "RETURN_WINDOW", window)
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


def test_what_the_clock_cuts_short_of_staggered_episodes_does_not_count():
    shac = learner(staggered=True)
    assert shac.env.window_start.clock.flatten().tolist() == [0, 250, 500, 750]
    record = watched(shac)
    # World 3 began in the middle and runs out of time; world 1 falls; world 2 has a whole episode behind it.
    end_inside(shac.env)
    end_soon(shac, [3], 2)
    shac.episodes.age[2], shac.episodes.collected[2] = 997, 5000.0
    shac.iterate()
    assert torch.stack([truncated for *_, truncated, _ in record]).nonzero().tolist() == [[1, 3], [2, 2]]
    rewards = torch.stack([reward for _, reward, *_ in record[:3]]).sum(dim=0)
    found = metrics(shac)
    assert found["episodes"] == 2
    assert found["episode_length"] == (3 + 1000) / 2
    assert found["episode_return"] == pytest.approx((rewards[1] + 5000 + rewards[2]).item() / 2, rel=1e-12)
    # Both that ended without counting, and those that count, begin anew.
    assert shac.episodes.age.tolist() == [6, 3, 3, 4]


def test_the_best_policy_is_kept_exactly_when_the_running_mean_improves(monkeypatch):
    # So that the mean goes down as well as up within a few iterations.
    monkeypatch.setattr(episodes_module, "RETURN_WINDOW", 2)
    shac = learner()
    best, improvements = -np.inf, []
    kept = copies(shac.best.agent.policy) + copies(shac.best.agent.normalizer)
    for iteration in range(14):
        if iteration % 4 != 0:
            end_soon(shac, [iteration % 3], 1 + iteration % 6)
        shac.iterate()
        now = metrics(shac)["episode_return"]
        improved = metrics(shac)["episodes"] > 0 and now > best
        if improved:
            # As they are at the end of the iteration.
            best, kept = now, copies(shac.policy) + copies(shac.agent.normalizer)
        improvements.append(improved)
        assert same(copies(shac.best.agent.policy) + copies(shac.best.agent.normalizer), kept)
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
    actions = torch.stack(shac.window.actions).detach().numpy()
    assert found["action_slope"] == pytest.approx(np.mean(1 - actions**2), rel=1e-12)
    assert found["saturated"] == np.mean(np.abs(actions) > 0.99)
    assert found["faults"] == found["stopped"] == 0
    assert shac.iteration.item() == 3


def test_the_share_of_the_largest_world_and_what_clipping_leaves_of_it():
    # Norms over steps and actions: 5, 1, 2 and 100; the lower median is 2.
    by_answers = torch.zeros(6, 4, 3, dtype=torch.float64)
    by_answers[0, 0, 0], by_answers[3, 0, 2] = 3, 4
    by_answers[1, 1, 1], by_answers[2, 2, 0], by_answers[5, 3, 1] = 1, -2, 100
    shac = learner()
    assert shac._without_steep_worlds(by_answers) is by_answers
    assert shac.largest_world.item() == pytest.approx(100 / 108, rel=1e-15)
    shac = learner(clip_worlds=2)
    found = shac._without_steep_worlds(by_answers)
    scale = torch.tensor([4 / 5, 1, 1, 4 / 100], dtype=torch.float64).view(1, 4, 1)
    torch.testing.assert_close(found, by_answers * scale, rtol=1e-15, atol=0)
    assert shac.largest_world.item() == pytest.approx(4 / 11, rel=1e-15)


def test_a_steep_world_is_clipped_before_it_reaches_the_weights():
    gradients = []
    for changes in ({}, {"clip_worlds": 1e6}, {"clip_worlds": 0.5}):
        shac = prepared(**changes)
        shac.rollout()
        gradients.append(vector(shac.policy_gradient()))
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-12)
    assert np.linalg.norm(gradients[2]) < 0.9 * np.linalg.norm(gradients[0])


def test_the_cosine_between_two_halves_of_the_worlds():
    shac, plain = prepared(compare_halves=True), prepared()
    shac.rollout()
    gradient = vector(shac.policy_gradient())
    halves = []
    for worlds in (slice(0, 2), slice(2, 4)):
        part = torch.zeros_like(shac.adjoints.answers)
        part[:, worlds] = shac.adjoints.answers[:, worlds]
        action = shac.policy(shac.window.inputs, shac.noise)
        halves.append(vector(torch.autograd.grad(action, list(shac.policy.parameters()), part)))
    np.testing.assert_allclose(sum(halves), gradient, rtol=1e-10)
    expected = halves[0] @ halves[1] / np.linalg.norm(halves[0]) / np.linalg.norm(halves[1])
    assert shac.half_cosine.item() == pytest.approx(expected, rel=1e-9) and abs(expected) < 1
    # Who does not ask for it learns the same, to the bit.
    plain.rollout()
    assert (vector(plain.policy_gradient()) == gradient).all() and plain.half_cosine.item() == 0


def test_blow_ups_are_counted_and_do_not_stop_learning():
    shac = prepared(falls=False, time_out=False)
    shac.env.window_start.joint_qd[0] = 1e7
    shac.iterate()
    found = metrics(shac)
    assert found["faults"] == 1 and found["stopped"] == 0 and np.isfinite(list(found.values())[:-2]).all()
    assert shac.window.done[0, 0] and shac.window.next_value[0, 0] == 0
