"""RPO against SHAC's own gradient, against PyTorch's distributions, and by numbers worked by hand."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from small_shac import SMALL, copies, learner, metrics, prepared, run, same, vector, watched

import trot
from trot.envs.registry import make_task
from trot.learn.algorithms import find_algorithm
from trot.learn.algorithms.rpo import divergence
from trot.learn.algorithms.shac import Shac
from trot.learn.member_learner import make_member_learner

PLAIN = {"kl_weight": 0.0, "entropy_weight": 0.0}


def steps_followed(rpo):
    """The gradients of all passes, as they are before clipping."""
    followed, follow = [], rpo._follow

    def watching(gradients):
        followed.append(vector(gradients))
        return follow(gradients)

    rpo._follow = watching
    return followed


@pytest.mark.parametrize("policy", ["gaussian", "state_dependent"])
def test_the_first_pass_is_the_step_of_shac(policy):
    rpo = prepared(algo="rpo", policy=policy, **PLAIN)
    saved = rpo.state_dict()
    rpo.rollout()
    expected = vector(Shac.policy_gradient(rpo))
    rpo.load_state_dict(saved)
    followed = steps_followed(rpo)
    rpo.rollout()
    rpo.improve_policy()
    assert len(followed) == 5
    np.testing.assert_allclose(followed[0], expected, rtol=1e-9, atol=1e-13)


def test_later_passes_by_distributions_of_pytorch():
    changes = {"kl_weight": 0.3, "entropy_weight": 0.7, "actor_lr": 0.05, "ratio_bounds": (0.9, 1.1)}
    rpo, again = prepared(algo="rpo", policy_passes=2, **changes), learner(algo="rpo", policy_passes=1, **changes)
    again.load_state_dict(rpo.state_dict())
    followed = steps_followed(rpo)
    rpo.rollout()
    with torch.no_grad():
        before = rpo.distribution(rpo.window.inputs)
    rpo.improve_policy()
    # As the policy is between the passes.
    again.rollout()
    again.improve_policy()
    new = torch.distributions.Normal(*(part.exp() if index else part for index, part in enumerate(_now(again))))
    old = torch.distributions.Normal(before[0], before[1].exp())
    sample = before[0] + before[1].exp() * rpo.noise
    ratio = (new.log_prob(sample) - old.log_prob(sample)).sum(dim=-1).exp().detach()
    kept = (ratio >= 0.9) & (ratio <= 1.1)
    assert 0 < kept.double().mean() < 1
    noise = ((sample - new.mean) / new.stddev).detach()
    action = torch.stack(rpo.window.actions).detach()
    by_sample = rpo.adjoints.answers * (1 - action**2)
    surrogate = ((kept * ratio).unsqueeze(-1) * by_sample * (new.mean + new.stddev * noise)).sum()
    kl = torch.distributions.kl_divergence(old, new).sum(dim=-1).mean()
    loss = surrogate + 0.3 * kl - 0.7 * new.entropy().sum(dim=-1).mean()
    expected = vector(torch.autograd.grad(loss, list(again.policy.parameters())))
    np.testing.assert_allclose(followed[1], expected, rtol=1e-8, atol=1e-12)
    rpo.fit_critic()
    rpo.finish()
    assert metrics(rpo)["kl"] == pytest.approx(kl.item(), rel=1e-9)
    assert metrics(rpo)["samples_left"] == pytest.approx(kept.double().mean().item(), rel=1e-12)


def _now(rpo):
    rpo.policy.requires_grad_(True)
    return rpo.distribution(rpo.window.inputs)


def test_five_steps_of_the_policy_take_one_window_of_simulation():
    rpo = prepared(algo="rpo")
    record, before = watched(rpo), copies(rpo.policy)
    counted = rpo.policy_optimizer.step_0.item()
    rpo.iterate()
    assert len(record) == 6 and rpo.policy_optimizer.step_0.item() == counted + 5
    assert not same(copies(rpo.policy), before) and rpo.updates_per_iteration == 5


def test_the_divergence_of_two_gaussians_by_hand():
    # From deviation 1 around 0 to deviation 2 around 1: log 2 + (1 + 1) / (2 * 4) - 1/2.
    mean, other, log_std, other_log_std = (torch.tensor([[value]]) for value in (0.0, 1.0, 0.0, math.log(2)))
    assert divergence(mean, log_std, other, other_log_std).item() == pytest.approx(math.log(2) - 0.25, rel=1e-6)
    assert divergence(other, log_std, other, log_std).item() == 0


@pytest.mark.parametrize("members", [None, (0, 3)])
def test_one_pass_and_one_critic_are_shac(members):
    """Step by step: losses, networks, target critic and Adam's moments."""
    alike = {"critics": 1, "activation": "elu", "weight_decay": 0.0, "policy_passes": 1, "kl_weight": 0.0}
    shac_settings = replace(find_algorithm("shac").resolve("hopper"), **SMALL)
    same_settings = {field.name: getattr(shac_settings, field.name) for field in fields(shac_settings)}
    rpo_settings = replace(find_algorithm("rpo").resolve("hopper"), **same_settings, **alike)
    learners = []
    for algo, settings in (("shac", shac_settings), ("rpo", rpo_settings)):
        algorithm = find_algorithm(algo)
        if members is None:
            env = trot.make_env("hopper", settings.num_worlds, dtype=torch.float64)
            learners.append(algorithm.learner(env, settings, 0))
        else:
            made = make_member_learner(algorithm, make_task("hopper"), settings, members, dtype=torch.float64)
            learners.append(made)
    shac, rpo = (run(one, 4) for one in learners)
    assert rpo.native_fit is not None and type(rpo.native_fit) is type(shac.native_fit)
    expected, found = shac.state_dict(), rpo.state_dict()
    names = [name for name, value in expected.items() if isinstance(value, torch.Tensor) and name != "metrics"]
    assert any(name.startswith("critic.network") for name in names)
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-8, atol=1e-11, err_msg=name)


def test_the_authors_pay_for_entropy_and_the_default_does_not():
    rpo = find_algorithm("rpo")
    assert rpo.resolve("ant", "paper").entropy_weight == 0.2 and rpo.resolve("ant").entropy_weight == 0
    assert rpo.resolve("ant", "paper").actor_hidden == (400, 200, 100)
