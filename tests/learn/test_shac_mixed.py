"""Mixed gradients: weights by hand, likelihood ratios step by step, and the mixture of equals."""

import numpy as np
import pytest
import torch
from small_shac import metrics, prepared, vector

from trot.learn.algorithms.shac import Shac
from trot.learn.algorithms.shac_mixed import inverse_variance_share


def test_weights_are_the_inverse_of_variances():
    # Over two worlds: variances 2 and 8, 0 and 2, 0 and 0.
    first = torch.tensor([[0.0, 1.0, 1.0], [2.0, 1.0, 1.0]])
    second = torch.tensor([[0.0, 0.0, 3.0], [4.0, 2.0, 3.0]])
    torch.testing.assert_close(inverse_variance_share(first, second), torch.tensor([[0.8, 1.0, 0.0]]))


def test_a_mixture_has_less_variance_than_either():
    generator = torch.Generator().manual_seed(0)
    first, second = (scale * torch.randn(4096, 1, generator=generator) for scale in (1.0, 2.0))
    share = inverse_variance_share(first, second)
    mixed = torch.lerp(second, first, share)
    # 1 / (1 + 1/4), within what 4096 samples tell.
    assert mixed.var().item() == pytest.approx(0.8, rel=0.05) and share.item() == pytest.approx(0.8, rel=0.05)


@pytest.mark.parametrize("policy", ["gaussian", "state_dependent"])
def test_likelihood_ratios_step_by_step(policy):
    mixed = prepared(algo="shac-mixed", policy=policy)
    mixed.rollout()
    window = mixed.window
    steps, worlds = window.reward.shape
    reward, value, done = (part.detach().numpy() for part in (window.reward, window.next_value, window.done))
    now = mixed.target_critic(window.inputs).detach().numpy()
    deviation = mixed.policy.distribution(window.inputs)[1].detach().exp().expand_as(mixed.noise).numpy()
    expected = np.zeros(mixed.noise.shape)
    for world in range(worlds):
        following = 0.0
        for t in reversed(range(steps)):
            # Generalised advantage estimation: what came as a surprise, and 0.95 * 0.99 of later surprises.
            surprise = reward[t, world] + 0.99 * value[t, world] - now[t, world]
            last = done[t, world] or t == steps - 1
            following = surprise + (0.0 if last else 0.99 * 0.95 * following)
            began = max([0] + [k + 1 for k in range(t) if done[k, world]])
            score = mixed.noise[t, world].numpy() / deviation[t, world]
            expected[t, world] = -(0.99 ** (t - began)) * following * score / (steps * worlds)
    assert done.sum() == 2
    # next_value is that of the step after, so that the two agree where the episode goes on.
    np.testing.assert_allclose(mixed.by_likelihood(), expected, rtol=1e-9, atol=1e-12)


def test_the_mixture_of_equals_is_the_step_of_shac(monkeypatch):
    mixed = prepared(algo="shac-mixed")
    mixed.rollout()
    expected = vector(Shac.policy_gradient(mixed))
    mixed = prepared(algo="shac-mixed")
    mixed.rollout()
    analytic = mixed.by_samples()
    monkeypatch.setattr(mixed, "by_samples", lambda: analytic)
    monkeypatch.setattr(mixed, "by_likelihood", lambda: analytic)
    np.testing.assert_allclose(vector(mixed.policy_gradient()), expected, rtol=1e-9, atol=1e-13)
    assert mixed.analytic_share.item() == pytest.approx(0.5, abs=1e-3)


def test_the_share_of_the_analytic_gradient_is_told():
    mixed = prepared(algo="shac-mixed")
    mixed.iterate()
    assert 0 < metrics(mixed)["analytic_share"] < 1
