"""PPO: advantages, losses, rate and mini-batches against numbers worked by hand, an update against plain PyTorch."""

import copy
from dataclasses import replace
from itertools import pairwise

import docking
import numpy as np
import pytest
import torch
from small_shac import FALLS, RUNS_OUT_OF_TIME, end_inside, metrics
from torch.distributions import Independent, Normal, kl_divergence

from trot.envs.registry import make_env
from trot.learn.algorithms import find_algorithm
from trot.learn.algorithms.ppo import (
    Ppo,
    PpoSettings,
    Window,
    clipped_policy_loss,
    clipped_value_loss,
    followed_rate,
    log_normal,
)
from trot.learn.algorithms.ppo import kl_divergence as our_divergence

TASK = f"{docking.__file__}:Docking"
SMALL = {"num_worlds": 4, "horizon": 6, "batches": 2, "passes": 2, "hidden": (8,), "iterations": 20}
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def learner(task=TASK, seed=0, **changes):
    settings = replace(PpoSettings(), **(SMALL | changes))
    return Ppo(make_env(task, settings.num_worlds, seed=seed, dtype=torch.float64), settings, seed)


def judged(task=TASK, after=1, **changes):
    """With data to learn from, after some iterations, so that nothing is as it began."""
    ppo = learner(task, **changes)
    for _ in range(after):
        ppo.iterate()
    ppo.rollout()
    ppo.judge()
    return ppo


def column(*values):
    return torch.tensor(values, dtype=torch.float64)


def weights(ppo):
    return [weight.detach().clone() for weight in (*ppo.agent.policy.parameters(), *ppo.value_head.parameters())]


# With gamma = lambda = 1/2: each world has rewards 1, 2, 4, 8, is worth 1, 2, 4, 6 before its steps and 2, 4, 6, 8
# after them. A return is the mean of those over 1, 2, ... steps, with weights 1/2, 1/4, ..., the last weight twice.
ENDS = {
    # In which step it falls, in which its time is up; the return after each step.
    # t = 3: 8 + 8/2. t = 2: 4 + 6/2 = 7 and 4 + 12/2 = 10. t = 1: 2 + 4/2 = 4, and 2 + 8.5/2 = 6.25. t = 0: 2, 3.5625.
    "never": (None, None, [2.78125, 5.125, 8.5, 12]),
    # Nothing comes after step 1: 2. t = 0: 1 + 2/2 = 2, and 1 + 2/2 = 2.
    "falls": (1, None, [2, 2, 8.5, 12]),
    # t = 1: 2 + 4/2 = 4. t = 0: 2, and 1 + 4/2 = 3.
    "time": (None, 1, [2.5, 4, 8.5, 12]),
    # t = 2: 4 + 6/2 = 7. t = 1: 4, and 2 + 7/2 = 5.5. t = 0: nothing comes.
    "both": (0, 2, [1, 4.75, 7, 12]),
}
WITHOUT_TIME = {
    # A time-out is a fall. "both", t = 2: 4. t = 1: 2 + 4/2 = 4, and 2 + 4/2 = 4.
    "time": [2, 2, 8.5, 12],
    "both": [1, 4, 4, 12],
}
BEFORE, AFTER = column(1, 2, 4, 6), column(2, 4, 6, 8)


def in_a_made_window(monkeypatch, time_outs):
    """A learner whose observations are the values themselves, in its normalised units: (value - 3) / 2."""
    ppo = learner(
        horizon=4, gamma=0.5, gae_lambda=0.5, reward_scale=0.25, time_outs=time_outs, normalize_observations=False
    )
    ppo.value_scale.mean.fill_(3)
    ppo.value_scale.variance.fill_(4 - 1e-5)
    monkeypatch.setattr(ppo, "policy_and_value", lambda inputs: (torch.zeros(4, 4, 1).double(), inputs[..., 0]))
    fell, timed_out = torch.zeros(2, 4, 4, dtype=torch.bool)
    for world, (falls, time, _) in enumerate(ENDS.values()):
        if falls is not None:
            fell[falls, world] = True
        if time is not None:
            timed_out[time, world] = True
    values = [((part - 3) / 2).view(4, 1, 1).expand(4, 4, 2) for part in (BEFORE, AFTER)]
    reward = (4 * column(1, 2, 4, 8)).view(4, 1).expand(4, 4)
    ppo.window = Window(*values, torch.zeros(4, 4, 1).double(), reward, fell, fell | timed_out)
    ppo.judge()
    return ppo


@pytest.mark.parametrize("time_outs", ["bootstrap", "end"])
def test_advantages_and_targets_by_hand(monkeypatch, time_outs):
    found = in_a_made_window(monkeypatch, time_outs)
    targets = {name: returns for name, (_, _, returns) in ENDS.items()} | (WITHOUT_TIME if time_outs == "end" else {})
    target = np.array(list(targets.values()))
    advantage = target - BEFORE.numpy()
    normal = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    lessons = {name: torch.cat([getattr(lesson, name) for lesson in found.lessons]) for name in ("advantage", "target")}
    np.testing.assert_allclose(lessons["advantage"].numpy(), normal.ravel(), **EXACT)

    # The statistics begin with a ten-thousandth of a row, here of mean 3 and variance 4.
    count = 1e-4 + 16
    mean = (1e-4 * 3 + target.sum()) / count
    variance = (1e-4 * (4 - 1e-5 + (3 - mean) ** 2) + np.square(target - mean).sum()) / count
    np.testing.assert_allclose(found.value_scale.mean, [mean], **EXACT)
    np.testing.assert_allclose(found.value_scale.variance, [variance], **EXACT)
    expected = (target - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(lessons["target"].numpy(), expected.ravel(), **EXACT)
    value = torch.cat([lesson.value for lesson in found.lessons])
    before = np.tile((BEFORE.numpy() - mean) / np.sqrt(variance + 1e-5), 4)
    np.testing.assert_allclose(value.numpy(), before, **EXACT)


@pytest.mark.parametrize("time_outs", ["bootstrap", "end"])
def test_falls_and_time_outs_of_a_simulated_window(time_outs):
    """What the worlds do, by env.step() on a copy; advantages as sums of one-step errors, from the paper on GAE."""
    ppo = learner("hopper", time_outs=time_outs)
    ppo.iterate()
    end_inside(ppo.env)
    env = copy.deepcopy(ppo.env)
    ppo.rollout()
    window, value_scale = ppo.window, copy.deepcopy(ppo.value_scale)
    seen, moves = env.begin_window(), []
    assert (window.samples.abs() > 1).any()
    for step in range(6):
        assert window.seen[step].equal(seen)
        seen, *move = env.step(window.samples[step])
        moves.append(move)
    reward, fell, timed_out = (torch.stack(part) for part in list(zip(*moves, strict=True))[:3])
    assert fell[2].tolist() == [world == FALLS for world in range(4)]
    assert timed_out[2].tolist() == [world == RUNS_OUT_OF_TIME for world in range(4)]
    assert window.reward.allclose(reward, **EXACT) and window.fell.equal(fell) and window.done.equal(fell | timed_out)
    last = torch.stack([info["final_obs"] for *_, info in moves])
    assert window.seen_last.equal(last)
    assert not last[2, [FALLS, RUNS_OUT_OF_TIME]].allclose(window.seen[3, [FALLS, RUNS_OUT_OF_TIME]])

    def value_of(observation):
        shift, deviation = value_scale.mean.item(), (value_scale.variance.item() + 1e-5) ** 0.5
        return ppo.policy_and_value(ppo.agent.normalized(observation))[1].detach().numpy() * deviation + shift

    value, after = value_of(window.seen), value_of(last)
    after[fell.numpy() | (timed_out.numpy() & (time_outs == "end"))] = 0
    error = 0.01 * reward.numpy() + 0.99 * after - value
    advantage = np.zeros((6, 4))
    for world in range(4):
        for first in range(6):
            factor = 1.0
            for step in range(first, 6):
                advantage[first, world] += factor * error[step, world]
                if window.done[step, world]:
                    break
                factor *= 0.99 * 0.95
    ppo.judge()
    found = torch.cat([lesson.advantage for lesson in ppo.lessons]).view(4, 6).T
    normal = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    np.testing.assert_allclose(found.numpy(), normal, rtol=1e-9, atol=1e-9)


def test_actions_are_cut_and_samples_are_not(monkeypatch):
    ppo, sent = learner(), []
    advance = ppo.env.advance
    monkeypatch.setattr(ppo.env, "advance", lambda action: sent.append(action) or advance(action))
    ppo.rollout()
    assert (ppo.window.samples.abs() > 1).any()
    assert torch.stack(sent).equal(ppo.window.samples.clamp(-1, 1))
    mean, _ = ppo.policy_and_value(ppo.agent.normalized(ppo.window.seen))
    noise = torch.randn(6, 4, 1, generator=torch.Generator().manual_seed(1_000_003), dtype=torch.float64)
    # The deviation is 1 at first.
    torch.testing.assert_close(ppo.window.samples, mean.detach() + noise, **EXACT)


def test_mini_batches_are_the_windows_of_neighbours_and_take_everything_once():
    ppo = judged(num_worlds=6, horizon=5, batches=3)
    rows = [lesson.samples for lesson in ppo.lessons]
    for index, batch in enumerate(rows):
        first, second = 2 * index, 2 * index + 1
        expected = [ppo.window.samples[step, world] for world in (first, second) for step in range(5)]
        assert batch.equal(torch.stack(expected))
    assert sorted(torch.cat(rows).flatten().tolist()) == sorted(ppo.window.samples.flatten().tolist())


def test_policy_and_value_share_a_trunk_that_begins_with_no_bias():
    ppo = learner()
    linear, _, head = ppo.agent.policy.network
    for layer in (linear, head, ppo.value_head):
        assert (layer.bias == 0).all()
    assert (ppo.best.agent.policy.network[0].bias == 0).all() and ppo.log_std.tolist() == [0]
    x = torch.randn(5, 2, dtype=torch.float64)
    mean, value = ppo.policy_and_value(x)
    hidden = x @ linear.weight.T
    hidden = torch.where(hidden > 0, hidden, hidden.exp() - 1)
    torch.testing.assert_close(mean, hidden @ head.weight.T, **EXACT)
    torch.testing.assert_close(value, (hidden @ ppo.value_head.weight.T)[:, 0], **EXACT)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        # The slope is that by the ratio's logarithm.
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),
        (0.5, 2.0, -1.0, -1.0),
        (0.9, -2.0, 1.8, 1.8),
        (0.5, -2.0, 1.6, 0.0),
        (1.5, -2.0, 3.0, 3.0),
        (1.0, 2.0, -2.0, -2.0),
    ],
)
def test_the_policys_loss_by_hand(ratio, advantage, loss, slope):
    # Beside a row that pays nothing: a mean.
    log_ratio = column(ratio, 1).log().requires_grad_()
    found = clipped_policy_loss(log_ratio, column(advantage, 0), 0.2)
    found.backward()
    np.testing.assert_allclose(found.item(), loss / 2, **EXACT)
    np.testing.assert_allclose(log_ratio.grad, [slope / 2, 0], **EXACT)


@pytest.mark.parametrize(
    ("value", "target", "loss", "slope"),
    [
        # The value was 1: at most 0.8 or 1.2 counts, where that is worse.
        (1.1, 2.0, 0.81, -1.8),
        (1.5, 2.0, 0.64, 0.0),
        (0.5, 2.0, 2.25, -3.0),
        (0.9, 0.0, 0.81, 1.8),
        (0.5, 0.0, 0.64, 0.0),
        (1.5, 0.0, 2.25, 3.0),
    ],
)
def test_the_values_loss_by_hand(value, target, loss, slope):
    values = column(value, 7).requires_grad_()
    found = clipped_value_loss(values, column(1, 7), column(target, 7), 0.2)
    found.backward()
    np.testing.assert_allclose(found.item(), loss / 2, **EXACT)
    np.testing.assert_allclose(values.grad, [slope / 2, 0], **EXACT)


def gaussian(mean, log_std):
    return Independent(Normal(mean, log_std.exp().expand_as(mean)), 1)


def divergence(new, old):
    """By PyTorch's, and what becomes of it where the old variance is 1e-5 larger but in the logarithm."""
    square = new.variance + (new.mean - old.mean).square()
    less = square / 2 * (1 / old.variance - 1 / (old.variance + 1e-5))
    return (kl_divergence(new, old) - less.sum(dim=-1)).mean()


def test_probabilities_and_divergence_are_those_of_pytorchs_distributions(rng):
    mean, other = torch.tensor(rng.normal(size=(2, 7, 3)))
    log_std, other_log_std = torch.tensor(rng.normal(size=(2, 3)))
    samples = torch.tensor(rng.normal(size=(7, 3)))
    constant = 1.5 * np.log(2 * np.pi)
    torch.testing.assert_close(
        log_normal(samples, mean, log_std) - constant, gaussian(mean, log_std).log_prob(samples), **EXACT
    )
    expected = divergence(gaussian(mean, log_std), gaussian(other, other_log_std))
    torch.testing.assert_close(our_divergence(mean, log_std, other, other_log_std), expected, **EXACT)
    # By hand: deviations 1 and 2, means 0 and 3: log 2 + (1 + 9) / (2 * 4.00001) - 1/2; the other way round another.
    found = our_divergence(column(0).view(1, 1), column(0), column(3).view(1, 1), column(2).log())
    np.testing.assert_allclose(found.item(), np.log(2) + 10 / 8.00002 - 0.5, **EXACT)


@pytest.mark.parametrize(
    ("rate", "kl", "expected"),
    [
        (3e-4, 0.0161, 2e-4),
        (3e-4, 0.0159, 3e-4),
        (3e-4, 0.0041, 3e-4),
        (3e-4, 0.0039, 4.5e-4),
        (3e-4, 0.0, 4.5e-4),
        (8e-3, 0.0, 1e-2),
        (1e-2, 0.0, 1e-2),
        (1.2e-6, 1.0, 1e-6),
        (1e-6, 1.0, 1e-6),
        (3e-4, np.nan, 3e-4),
    ],
)
def test_the_rate_follows_the_divergence(rate, kl, expected):
    assert followed_rate(column(rate), column(kl), 0.008).item() == pytest.approx(expected, rel=1e-12)


def test_means_beyond_the_bound_are_pulled_back_and_entropy_is_paid():
    learns = judged("hopper", bound_weight=0.5, entropy_weight=0.25)
    lesson, log_std = learns.lessons[0], learns.log_std
    mean = torch.zeros_like(lesson.mean)
    # 0.2 and 0.5 too far, in one of twelve rows.
    mean[3] = column(1.3, -1.6, 0.5)
    mean.requires_grad_()
    still = replace(lesson, advantage=torch.zeros(12).double(), target=lesson.value)
    policy, of_value, loss = learns._losses(mean, lesson.value, still)
    assert policy == 0 and of_value == 0
    expected = 0.5 * (0.2**2 + 0.5**2) / 12 - 0.25 * log_std.sum().item()
    np.testing.assert_allclose(loss.item(), expected, **EXACT)
    by_mean, by_log_std = torch.autograd.grad(loss, [mean, log_std])
    pulled = np.zeros((12, 3))
    pulled[3] = 0.5 * np.array([0.4, -1.0, 0]) / 12
    np.testing.assert_allclose(by_mean, pulled, **EXACT)
    entropy = gaussian(torch.zeros(3).double(), log_std).entropy()
    torch.testing.assert_close(by_log_std, -0.25 * torch.autograd.grad(entropy, log_std)[0], **EXACT)


def loss_by_distributions(policy, value_head, lesson, settings):
    hidden = policy.network[:-1](lesson.inputs)
    mean, value = policy.network[-1](hidden), value_head(hidden).squeeze(1)
    before, now = lesson.log_probability - 0.5 * np.log(2 * np.pi), gaussian(mean, policy.log_std)
    ratio = (now.log_prob(lesson.samples) - before).exp()
    gain = torch.min(lesson.advantage * ratio, lesson.advantage * ratio.clamp(0.8, 1.2)).mean()
    near = torch.min(torch.max(value, lesson.value - 0.2), lesson.value + 0.2)
    off = torch.max((value - lesson.target) ** 2, (near - lesson.target) ** 2).mean()
    beyond = ((mean - 1.1).relu() ** 2 + (-mean - 1.1).relu() ** 2).sum(dim=1).mean()
    return -gain + settings.value_weight / 2 * off + settings.bound_weight * beyond, now


def test_an_update_is_that_of_plain_pytorch():
    """Three passes: losses by torch.distributions, norms by clip_grad_norm_, steps by torch.optim.Adam."""
    learns = judged(
        after=0, num_worlds=8, batches=2, passes=3, value_weight=2.0, max_grad_norm=0.05, lr=1e-3, target_kl=1e-5
    )
    policy, head = copy.deepcopy((learns.agent.policy, learns.value_head))
    parameters = [*policy.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters)
    previous = [gaussian(lesson.mean.clone(), torch.zeros(1).double()) for lesson in learns.lessons]
    rates, divergences, norms = [1e-3], [], []
    for _ in range(3):
        for index, lesson in enumerate(learns.lessons):
            optimizer.zero_grad()
            loss, now = loss_by_distributions(policy, head, lesson, learns.settings)
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(parameters, 0.05).item())
            divergences.append(divergence(now, previous[index]).item())
            previous[index] = gaussian(now.mean.detach(), policy.log_std.detach().clone())
            optimizer.param_groups[0]["lr"] = rates[-1]
            optimizer.step()
            kl = divergences[-1]
            rates.append(rates[-1] / 1.5 if kl > 2e-5 else rates[-1] * 1.5 if kl < 5e-6 else rates[-1])
    learns.update()
    # Norms that are cut, and rates that rise, stay and fall.
    assert max(norms) > 0.05 and {np.sign(now - then) for then, now in pairwise(rates)} == {-1, 0, 1}
    assert learns.kl.item() == pytest.approx(np.mean(divergences), rel=1e-5)
    assert learns.gradient_norm.item() == pytest.approx(np.mean(norms), rel=1e-5)
    assert learns.rate.item() == pytest.approx(rates[-1], rel=1e-5)
    for found, expected in zip(weights(learns), parameters, strict=True):
        # The rate is a float32.
        torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-7)


def test_the_first_mini_batch_meets_the_policy_that_acted():
    learns = judged()
    (first, second), (deviation, _) = learns.lessons, learns.log_std_before
    policy, _, kl, _ = learns._learn(first, deviation)
    assert policy.item() == pytest.approx(-first.advantage.mean().item(), rel=1e-9)
    # Of the same Gaussian, but for the spare variance.
    assert kl.item() == pytest.approx(-(1e-5 / ((2 * deviation).exp() + 1e-5)).sum().item() / 2, rel=1e-9)
    *_, kl_of_second, _ = learns._learn(second, learns.log_std_before[1])
    assert kl_of_second > 1e-12


@pytest.mark.parametrize("hidden", [(8,), (200,)])
def test_the_next_pass_compares_with_the_last_one(hidden):
    """Also where threads share the rows."""
    learns = judged(num_worlds=128, hidden=hidden)
    lesson, deviation = learns.lessons[0], learns.log_std_before[0]
    # Else what is stored anew would be what is there.
    lesson.mean.add_(1)
    with torch.no_grad():
        expected, _ = learns.policy_and_value(lesson.inputs)
    log_std = learns.log_std.detach().clone()
    learns._learn(lesson, deviation)
    torch.testing.assert_close(lesson.mean, expected, **EXACT)
    assert deviation.equal(log_std) and not deviation.equal(learns.log_std)


@pytest.mark.parametrize("spoilt", ["advantage", "target"])
def test_a_gradient_that_is_not_finite_ends_the_learning(spoilt):
    learns = judged()
    before = weights(learns)
    getattr(learns.lessons[0], spoilt)[2] = torch.nan
    learns.update()
    learns.finish()
    assert metrics(learns)["stopped"] == 1
    assert all(one.equal(other) for one, other in zip(weights(learns), before, strict=True))
    for _ in range(2):
        learns.iterate()
    assert all(one.equal(other) for one, other in zip(weights(learns), before, strict=True))
    assert learns.rate.isfinite() and metrics(learns)["stopped"] == 1


def test_learning_scales_rewards_and_metrics_do_not():
    targets = []
    for scale in (0.01, 0.02):
        learns = learner(reward_scale=scale)
        # Where nothing is expected yet, returns are rewards and nothing else.
        learns.value_head.weight.data.zero_()
        learns.rollout()
        learns.judge()
        targets.append(torch.cat([learns._in_units_of_reward(lesson.target) for lesson in learns.lessons]))
        learns.update()
        learns.finish()
        assert metrics(learns)["reward"] == pytest.approx(learns.window.reward.mean().item(), rel=1e-12)
    torch.testing.assert_close(targets[1], 2 * targets[0], **EXACT)
    torch.testing.assert_close(targets[0].view(4, 6)[:, -1], 0.01 * learns.window.reward[-1], **EXACT)


def test_values_go_to_units_of_reward_and_back(rng):
    learns = learner()
    learns.value_scale.update(torch.tensor([[3.0], [7.0], [-1.0]]).double())
    value = torch.tensor(rng.normal(size=(5, 4)))
    there = learns._in_units_of_reward(value)
    torch.testing.assert_close(learns.value_scale(there.unsqueeze(-1)).squeeze(-1), value, **EXACT)
    # Three rows of mean 3 and variance 32/3, and a ten-thousandth of one of mean 0 and variance 1.
    mean = 9 / 3.0001
    variance = (1e-4 + 32 + 3 * (3 - mean) ** 2 + 1e-4 * mean**2) / 3.0001
    np.testing.assert_allclose(there, value.numpy() * np.sqrt(variance + 1e-5) + mean, **EXACT)


@pytest.mark.parametrize("normalize", [True, False])
def test_normalised_observations_are_clipped_and_others_are_not(normalize):
    agent = learner(normalize_observations=normalize).agent
    seen = agent.normalized(torch.tensor([[100.0, -2.0]]).double())
    np.testing.assert_allclose(seen, [[5 if normalize else 100, -2]], rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1, not 0"),
        ({"passes": 0}, "passes must be at least 1, not 0"),
        ({"batches": 0}, "batches must be at least 1, not 0"),
        ({"num_worlds": 6}, "num_worlds 6 does not split into batches 4"),
        ({"gamma": 1.1}, r"gamma must be between 0 and 1, not 1\.1"),
        ({"gae_lambda": float("nan")}, "gae_lambda must be between 0 and 1, not nan"),
        ({"lr": 0.0}, r"lr must be above 0, not 0\.0"),
        ({"target_kl": -1.0}, r"target_kl must be above 0, not -1\.0"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"max_grad_norm": float("inf")}, "max_grad_norm must be above 0, not inf"),
        ({"reward_scale": 0.0}, "reward_scale must be above 0"),
        ({"value_weight": -1.0}, "value_weight must be 0 or more"),
        ({"entropy_weight": float("nan")}, "entropy_weight must be 0 or more, not nan"),
        ({"bound_weight": -1e-4}, "bound_weight must be 0 or more"),
        ({"initial_log_std": float("inf")}, "initial_log_std must be finite"),
        ({"hidden": (8, 0)}, r"hidden must be widths of at least 1, not \(8, 0\)"),
        ({"time_outs": "ignore"}, "time_outs must be one of bootstrap, end, not 'ignore'"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        PpoSettings(**changes)


@pytest.mark.parametrize(
    ("task", "worlds", "horizon", "minibatch", "passes", "hidden", "iterations", "updates"),
    [
        ("cartpole", 32, 240, 1920, 5, (64, 64), 500, 20),
        ("ant", 2048, 32, 16384, 5, (128, 64, 32), 5000, 20),
        ("humanoid", 1024, 32, 8192, 5, (256, 128, 64), 5000, 20),
        ("muscle_humanoid", 1024, 32, 8192, 6, (512, 512, 256), 20_000, 24),
        ("half_cheetah", 1024, 32, 8192, 5, (128, 64, 32), 5000, 20),
        ("hopper", 1024, 32, 8192, 5, (128, 64, 32), 5000, 20),
        ("mine.py:Own", 2048, 32, 16384, 5, (128, 64, 32), 5000, 20),
    ],
)
def test_settings_are_the_papers(task, worlds, horizon, minibatch, passes, hidden, iterations, updates):
    found = find_algorithm("ppo").resolve(task)
    assert (found.num_worlds, found.horizon, found.passes) == (worlds, horizon, passes)
    assert found.num_worlds * found.horizon / found.batches == minibatch
    assert (found.hidden, found.iterations, found.passes * found.batches) == (hidden, iterations, updates)
    assert (found.gamma, found.gae_lambda, found.lr, found.target_kl, found.clip) == (0.99, 0.95, 3e-4, 0.008, 0.2)
    assert (found.value_weight, found.entropy_weight, found.bound_weight) == (4, 0, 1e-4)
    assert (found.max_grad_norm, found.reward_scale, found.initial_log_std) == (1, 0.01, 0)
    assert found.normalize_observations and found.time_outs == "bootstrap"


def test_it_counts_its_updates(monkeypatch):
    learns, steps = judged(passes=3), []
    step = learns.optimizer.step
    monkeypatch.setattr(learns.optimizer, "step", lambda gradients: steps.append(1) or step(gradients))
    learns.update()
    assert len(steps) == learns.updates_per_iteration == 6
