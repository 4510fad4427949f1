"""A gradient that is not finite stops SHAC, leaves its networks alone, and its window is kept."""

import pytest
import torch
from small_shac import copies, end_soon, learner, metrics, run, same

from trot.learn.algorithms import shac as shac_module


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
    networks = copies(shac.policy) + copies(shac.critic) + copies(shac.best.agent.policy)
    for _ in range(3):
        # What would be the best policy so far.
        end_soon(shac, [0], 1)
        shac.episodes.collected.fill_(1e6)
        shac.iterate()
        assert shac.stopped and metrics(shac)["stopped"] == 1
        assert same(copies(shac.policy) + copies(shac.critic) + copies(shac.best.agent.policy), networks)


@pytest.mark.parametrize("poison", [overflow, spoil_one_loss])
def test_the_first_window_with_a_bad_gradient_is_kept(monkeypatch, poison):
    shac = run(learner())
    assert (shac.bad_window.noise == 0).all()
    poison(shac, monkeypatch)
    start = shac.env.window_start.clone()
    shac.iterate()
    noise = shac.noise.clone()
    run(shac, 2)
    assert shac.bad_window.noise.equal(noise) and not shac.noise.equal(noise)
    assert same(shac.bad_window.start().values(), start.tensors().values())
    assert not shac.env.window_start.joint_q.equal(start.joint_q)
