"""Returns in windows: seven small windows worked by hand, then random ones against loops written from the paper."""

import numpy as np
import pytest
import torch

from trot.learn.returns import episode_start, finished_returns, policy_loss, td_lambda

# All by hand with gamma = 1/2, lambda = 1/2 and rewards 1, 2, 4, 8. `objective` is what the loss is minus a quarter of
# (four steps, one world). Where an episode fell, the value after it is 0; a time-out keeps the value.
GAMMA = LAMBDA = 0.5
REWARD = [1.0, 2.0, 4.0, 8.0]
BEFORE = 10.0
CASES = {
    "no end": {
        "value": [2, 4, 6, 8],
        "done": [0, 0, 0, 0],
        # 1 + 2/2 + 4/4 + 8/8, and the value 8 behind the window: 1/16 of it.
        "objective": 4 + 0.5,
        # t = 0: one-step return 1 + 2/2 = 2, two-step 1 + 1 + 4/4 = 3, three-step 3 + 6/8 = 3.75, whole 4.5, weights
        # 1/2, 1/4, 1/8, 1/8. t = 1: 4, 5.5, 7 x 1/2, 1/4, 1/4. t = 2: 7 and 10, half each. t = 3: 8 + 8/2.
        "targets": [2.78125, 5.125, 8.5, 12],
        "begins": [0, 0, 0, 0],
        "collected": [11, 13, 17, 25],
        "carried": 25,
    },
    "a fall inside": {
        "value": [2, 0, 6, 8],
        "done": [0, 1, 0, 0],
        # 1 + 2/2, then anew 4 + 8/2 + 8/4.
        "objective": 2 + 10,
        # t = 0: 2 and 2.
        "targets": [2, 2, 8.5, 12],
        "begins": [0, 0, 2, 2],
        "collected": [11, 13, 4, 12],
        "carried": 12,
    },
    "a time-out inside": {
        "value": [2, 4, 6, 8],
        "done": [0, 1, 0, 0],
        # 1 + 2/2 + 4/4, then anew as above.
        "objective": 3 + 10,
        # t = 0: 2 and 3, half each. t = 1: 2 + 4/2.
        "targets": [2.5, 4, 8.5, 12],
        "begins": [0, 0, 2, 2],
        "collected": [11, 13, 4, 12],
        "carried": 12,
    },
    "a fall in the last step": {
        "value": [2, 4, 6, 0],
        "done": [0, 0, 0, 1],
        "objective": 4,
        # As without an end, but the whole returns lose the value: 4, 6, 8 and 8 instead of 4.5, 7, 10 and 12.
        "targets": [2.71875, 4.875, 7.5, 8],
        "begins": [0, 0, 0, 0],
        "collected": [11, 13, 17, 25],
        "carried": 0,
    },
    "a time-out in the last step": {
        "value": [2, 4, 6, 8],
        "done": [0, 0, 0, 1],
        "objective": 4.5,
        "targets": [2.78125, 5.125, 8.5, 12],
        "begins": [0, 0, 0, 0],
        "collected": [11, 13, 17, 25],
        "carried": 0,
    },
    "a time-out in the first step": {
        "value": [2, 4, 6, 8],
        "done": [1, 0, 0, 0],
        # 1 + 2/2, then anew 2 + 4/2 + 8/4 + 8/8.
        "objective": 2 + 7,
        "targets": [2, 5.125, 8.5, 12],
        "begins": [0, 1, 1, 1],
        "collected": [11, 2, 6, 14],
        "carried": 14,
    },
    "a fall and a time-out": {
        "value": [0, 4, 6, 8],
        "done": [1, 0, 1, 0],
        # 1, then 2 + 4/2 + 6/4, then 8 + 8/2.
        "objective": 1 + 5.5 + 12,
        # t = 1: 2 + 4/2 = 4 and 2 + 2 + 6/4 = 5.5, half each.
        "targets": [1, 4.75, 7, 12],
        "begins": [0, 1, 1, 3],
        "collected": [11, 2, 6, 8],
        "carried": 8,
    },
}
BY_HAND = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def columns(*cases):
    """Reward, value and done of these cases as worlds of one window."""
    reward = torch.tensor([REWARD] * len(cases), dtype=torch.float64).T
    value = torch.tensor([case["value"] for case in cases], dtype=torch.float64).T
    done = torch.tensor([case["done"] for case in cases], dtype=torch.bool).T
    return reward, value, done


@BY_HAND
def test_loss_by_hand(case):
    assert policy_loss(*columns(case), GAMMA).item() == -case["objective"] / 4


@BY_HAND
def test_targets_by_hand(case):
    assert td_lambda(*columns(case), GAMMA, LAMBDA).flatten().tolist() == case["targets"]


@BY_HAND
def test_episode_start_by_hand(case):
    assert episode_start(columns(case)[2]).flatten().tolist() == case["begins"]


@BY_HAND
def test_finished_returns_by_hand(case):
    reward, _, done = columns(case)
    collected, carried = finished_returns(reward, done, torch.tensor([BEFORE], dtype=torch.float64))
    assert collected.flatten().tolist() == case["collected"] and carried.tolist() == [case["carried"]]


def test_worlds_side_by_side_do_not_mix():
    cases = list(CASES.values())
    reward, value, done = columns(*cases)
    assert td_lambda(reward, value, done, GAMMA, LAMBDA).T.tolist() == [case["targets"] for case in cases]
    assert episode_start(done).T.tolist() == [case["begins"] for case in cases]
    total = sum(case["objective"] for case in cases)
    assert policy_loss(reward, value, done, GAMMA).item() == pytest.approx(-total / 28, rel=1e-15)
    so_far = torch.full((len(cases),), BEFORE, dtype=torch.float64)
    collected, carried = finished_returns(reward, done, so_far)
    assert collected.T.tolist() == [case["collected"] for case in cases]
    assert carried.tolist() == [case["carried"] for case in cases]
    # What came before the window is read, not written.
    assert so_far.tolist() == [BEFORE] * len(cases)


def test_gradient_of_the_loss_by_hand():
    reward, value, done = columns(CASES["a fall and a time-out"], CASES["no end"])
    reward.requires_grad_(), value.requires_grad_()
    policy_loss(reward, value, done, GAMMA).backward()
    # Divided by 4 steps x 2 worlds. Discounts begin anew behind an end; values count at ends and in the last step.
    assert (-8 * reward.grad).T.tolist() == [[1, 1, 1 / 2, 1], [1, 1 / 2, 1 / 4, 1 / 8]]
    assert (-8 * value.grad).T.tolist() == [[1 / 2, 0, 1 / 4, 1 / 2], [0, 0, 0, 1 / 16]]


def test_with_lambda_0_targets_look_one_step_ahead():
    reward, value, done = columns(CASES["no end"], CASES["a fall and a time-out"])
    # 1 + 2/2, 2 + 4/2, 4 + 6/2, 8 + 8/2; the fall leaves 1 alone.
    assert td_lambda(reward, value, done, GAMMA, 0.0).T.tolist() == [[2, 4, 7, 12], [1, 4, 7, 12]]


def test_with_lambda_1_targets_look_as_far_as_the_episode_and_the_window_reach():
    reward, value, done = columns(CASES["no end"], CASES["a fall and a time-out"])
    # 12, 4 + 12/2, 2 + 10/2, 1 + 7/2; in the second world 2 + (4 + 6/2)/2.
    assert td_lambda(reward, value, done, GAMMA, 1.0).T.tolist() == [[4.5, 7, 10, 12], [1, 5.5, 7, 12]]


def test_a_window_of_one_step():
    reward, value = torch.tensor([[3.0, 3.0]]), torch.tensor([[4.0, 0.0]])
    done = torch.tensor([[False, True]])
    assert td_lambda(reward, value, done, 0.5, 0.9).tolist() == [[5, 3]]
    assert policy_loss(reward, value, done, 0.5).item() == -4
    assert episode_start(done).tolist() == [[0, 0]]


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_the_loss_with_no_and_with_full_discount(gamma):
    reward, value, done = columns(CASES["a fall and a time-out"])
    # Only each episode's first reward counts, or everything does.
    expected = 1 + 2 + 8 if gamma == 0 else 1 + 2 + 4 + 6 + 8 + 8
    assert policy_loss(reward, value, done, gamma).item() == -expected / 4


# From here on random windows, in which about one step of five ends an episode, half of these by a fall.


def random_window(rng, steps, worlds):
    reward, value = rng.normal(size=(2, steps, worlds))
    done = rng.random((steps, worlds)) < 0.2
    value[done & (rng.random((steps, worlds)) < 0.5)] = 0
    return reward, value, done


def loop_loss(reward, value, done, gamma):
    """The accumulators of the 2022 program: discount g and discounted reward sum R per world."""
    steps, worlds = reward.shape
    g, total, loss = [1.0] * worlds, [0.0] * worlds, 0.0
    for t in range(steps):
        for world in range(worlds):
            total[world] += g[world] * reward[t, world]
            if done[t, world] or t == steps - 1:
                loss += -total[world] - gamma * g[world] * value[t, world]
            g[world] *= gamma
            if done[t, world]:
                g[world], total[world] = 1.0, 0.0
    return loss / (steps * worlds)


def loop_target(reward, value, done, gamma, lam, t):
    """The definition, for one world: k-step returns weighted by (1 - lam) lam^(k-1), the longest by what is left."""
    end = t
    while not done[end] and end < len(reward) - 1:
        end += 1
    longest, target = end - t + 1, 0.0
    for k in range(1, longest + 1):
        k_step = sum(gamma**i * reward[t + i] for i in range(k)) + gamma**k * value[t + k - 1]
        target += (lam ** (k - 1) if k == longest else (1 - lam) * lam ** (k - 1)) * k_step
    return target


@pytest.mark.parametrize(("steps", "worlds", "gamma"), [(1, 5, 0.9), (7, 3, 0.99), (32, 16, 0.9), (20, 1, 1.0)])
def test_random_losses_against_the_accumulators(rng, steps, worlds, gamma):
    window = random_window(rng, steps, worlds)
    found = policy_loss(*map(torch.from_numpy, window), gamma)
    assert found.item() == pytest.approx(loop_loss(*window, gamma), rel=1e-13, abs=1e-14)


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize(("steps", "worlds"), [(1, 5), (7, 3), (32, 8)])
def test_random_targets_against_the_definition(rng, steps, worlds, lam):
    reward, value, done = random_window(rng, steps, worlds)
    found = td_lambda(*map(torch.from_numpy, (reward, value, done)), 0.9, lam)
    expected = [
        [loop_target(reward[:, w], value[:, w], done[:, w], 0.9, lam, t) for w in range(worlds)] for t in range(steps)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_random_gradients_of_the_loss_against_differences(rng):
    reward, value, done = random_window(rng, 12, 4)
    tensors = [torch.from_numpy(array).requires_grad_() for array in (reward, value)]
    policy_loss(*tensors, torch.from_numpy(done), 0.9).backward()
    # The loss is linear in both: a step of any size is exact but for rounding.
    for array, tensor in zip((reward, value), tensors, strict=True):
        for index in np.ndindex(array.shape):
            before = loop_loss(reward, value, done, 0.9)
            array[index] += 1
            after = loop_loss(reward, value, done, 0.9)
            array[index] -= 1
            assert tensor.grad[index].item() == pytest.approx(after - before, abs=1e-13)


def test_random_returns_are_carried_from_window_to_window(rng):
    reward, _, done = random_window(rng, 60, 5)
    expected, so_far = np.zeros_like(reward), np.zeros(5)
    for t in range(60):
        so_far = so_far + reward[t]
        expected[t] = so_far
        so_far = np.where(done[t], 0, so_far)
    found, carried = [], torch.zeros(5, dtype=torch.float64)
    for window in (slice(0, 1), slice(1, 24), slice(24, 60)):
        collected, carried = finished_returns(torch.from_numpy(reward[window]), torch.from_numpy(done[window]), carried)
        found.append(collected)
    np.testing.assert_array_equal(torch.cat(found), expected)
    np.testing.assert_array_equal(carried, so_far)


def test_float32_stays_float32(rng):
    reward, value, done = map(torch.from_numpy, random_window(rng, 8, 3))
    reward, value = reward.float(), value.float()
    assert policy_loss(reward, value, done, 0.99).dtype == torch.float32
    assert td_lambda(reward, value, done, 0.99, 0.95).dtype == torch.float32
    assert {part.dtype for part in finished_returns(reward, done, torch.zeros(3))} == {torch.float32}


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [1, 8, 19])
def test_members_get_what_each_would_get_alone(rng, steps, device):
    """With a gamma and a lambda of each, in windows shorter and longer than what a kernel reads at once."""
    windows = [[torch.from_numpy(part) for part in random_window(rng, steps, 5)] for _ in range(3)]
    reward, value, done = (torch.stack(parts).to(device) for parts in zip(*windows, strict=True))
    # Rows need not lie one after the other.
    reward = reward.transpose(0, 1).contiguous().transpose(0, 1)
    gammas, lambdas = (torch.tensor(given, dtype=torch.float64) for given in ([0.9, 1.0, 0.5], [0.0, 0.3, 0.95]))
    so_far = torch.arange(15, dtype=torch.float64).view(3, 5)
    targets = td_lambda(reward, value, done, gammas.to(device), lambdas.to(device))
    collected, carried = finished_returns(reward, done, so_far.to(device))
    for k, window in enumerate(windows):
        arrays = [part.numpy() for part in window]
        expected = [
            [loop_target(*(array[:, w] for array in arrays), gammas[k].item(), lambdas[k].item(), t) for w in range(5)]
            for t in range(steps)
        ]
        np.testing.assert_allclose(targets[k].cpu(), expected, rtol=1e-13, atol=1e-13)
        for w in range(5):
            total = so_far[k, w].item()
            for t in range(steps):
                total += arrays[0][t, w]
                assert collected[k, t, w].item() == total
                total = 0.0 if arrays[2][t, w] else total
            assert carried[k, w].item() == total
