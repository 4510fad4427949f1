"""AHAC worked out again: its loss over the steps that count, what stiffness costs, and how the window adapts."""

import pytest
import torch
from small_shac import learner, metrics, prepared, run

from trot.learn.algorithms.ahac import MULTIPLIER_BOUNDS
from trot.learn.returns import policy_loss

SMALL = {"shortest_horizon": 4, "stiffness_limit": 20.0}


def test_a_window_that_ends_earlier_by_hand():
    # Gamma 1/2, rewards 1, 2, 4, 8; the first world runs on, the second falls in its second step. Three steps count.
    reward = torch.tensor([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0], [8.0, 8.0]])
    value = torch.tensor([[2.0, 2.0], [4.0, 0.0], [6.0, 6.0], [8.0, 8.0]])
    done = torch.tensor([[False, False], [False, True], [False, False], [False, False]])
    # 1 + 2/2 + 4/4 + 6/8, and 1 + 2/2, then anew 4 + 6/2.
    expected = -(3.75 + 9) / (3 * 2)
    assert policy_loss(reward, value, done, 0.5, torch.tensor(3.0)).item() == pytest.approx(expected)
    whole = policy_loss(reward, value, done, 0.5)
    assert policy_loss(reward, value, done, 0.5, torch.tensor(4.0)).item() == pytest.approx(whole.item())
    # A member each.
    both = policy_loss(reward.expand(2, 4, 2), value, done.expand(2, 4, 2), torch.full((2,), 0.5), torch.tensor([3, 4]))
    assert both.tolist() == pytest.approx([expected, whole.item()])


def test_the_loss_is_that_of_the_steps_that_count_and_the_price_of_their_stiffness():
    ahac = prepared(algo="ahac", **SMALL)
    ahac.length.fill_(4.9)
    ahac.multipliers.copy_(torch.tensor([1.0, -2.0, 3.0, 4.0, 5.0, 6.0]))
    begins = []
    advance = ahac.env.advance

    def watching(action, **how):
        begins.append(ahac.env.worlds.joint_qd.detach().clone())
        return advance(action, **how)

    ahac.env.advance = watching
    ahac.rollout()
    window = ahac.window
    plain = policy_loss(window.reward, window.next_value, window.done, 0.99, torch.tensor(4.0, dtype=torch.float64))
    price = 0.0
    for step, multiplier in ((0, 1.0), (2, 3.0), (3, 4.0)):
        # A Hopper's six joints in a control step of 1/60 s.
        change = (window.states[step].joint_qd - begins[step]) / ahac.env.task.control_dt
        stiffness = change.square().mean(dim=1).sqrt().mean()
        price += multiplier * (stiffness / 20 - 1) / 4
    assert window.loss.item() == pytest.approx((plain + price).item(), rel=1e-12)
    assert abs(price) > 1e-3
    ahac.improve_policy()
    assert (ahac.adjoints.answers[4:] == 0).all() and (ahac.adjoints.answers[:4] != 0).any()


def test_the_least_of_both_critics_lies_beyond():
    ahac = prepared(algo="ahac", **SMALL)
    ahac.rollout()
    assert ahac.window.next_value.equal(ahac.window.cautious_value)


def test_multipliers_and_length_by_hand():
    ahac = learner(algo="ahac", multiplier_lr=0.5, horizon_lr=0.1, **SMALL)
    ahac.length.fill_(5.5)
    ahac.policy_steps = ahac.length.floor()
    ahac.multipliers.copy_(torch.tensor([0.0, 0.0, 1.0, 9.9, -0.9, 2.0]))
    ahac.excess = torch.tensor([1.0, -1.0, 2.0, 4.0, -4.0, 7.0], dtype=torch.float64)
    ahac.adapt()
    # Half of the excess is added, within bounds; the sixth step does not count.
    assert ahac.multipliers.tolist() == [0.5, -0.5, 2.0, 10.0, -1.0, 2.0] and MULTIPLIER_BOUNDS == (-1, 10)
    # 5.5 less a tenth of 0.5 - 0.5 + 2 + 10 - 1.
    assert ahac.length.item() == pytest.approx(5.5 - 1.1, rel=1e-12)
    ahac.policy_steps = ahac.length.floor()
    ahac.adapt()
    assert ahac.length.item() == 4
    # Once learning has stopped, nothing adapts.
    ahac.stopped.fill_(True)
    kept = ahac.multipliers.clone()
    ahac.adapt()
    assert ahac.multipliers.equal(kept) and ahac.length.item() == 4


@pytest.mark.parametrize(("limit", "steps"), [(1e-3, [4, 4, 4, 4]), (1e3, [4, 4, 5, 6])])
def test_stiff_windows_stay_short_and_calm_ones_grow(limit, steps):
    settings = {"shortest_horizon": 4, "stiffness_limit": limit, "multiplier_lr": 0.5, "horizon_lr": 0.25}
    ahac, found = learner(algo="ahac", **settings), []
    for _ in range(4):
        run(ahac, 1)
        found.append(int(metrics(ahac)["policy_steps"]))
    # Calm: multipliers of about -0.5, then -1; the window grows by about a quarter of 2, then of 4, to all six steps.
    assert found == steps
    assert metrics(ahac)["stiffness"] > 1
