"""Gradients over rows that threads share, against those of all rows at once."""

import threading

import pytest
import torch

from trot.learn import shared_rows
from trot.learn.networks import Critic
from trot.sim.threads import get_num_threads, set_num_threads


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = get_num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)


@pytest.mark.parametrize(("steps", "worlds"), [(8, 64), (7, 100), (3, 700), (1, 5)])
def test_a_mean_over_blocks_is_the_mean_over_all_rows(threads, steps, worlds):
    torch.manual_seed(0)
    critic = Critic(5, (200, 16)).double()
    weights = list(critic.parameters())
    inputs, targets = torch.randn(steps, worlds, 5).double(), torch.randn(steps, worlds).double()

    def work(inputs, targets):
        loss = torch.nn.functional.mse_loss(critic(inputs), targets)
        return [loss.detach(), *torch.autograd.grad(loss, weights)]

    whole = work(inputs, targets)
    shared = shared_rows.mean_over_rows(work, inputs, targets, widths=(200, 16))
    for one, other in zip(whole, shared, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


def test_sums_by_hand_and_blocks_of_whole_steps(threads):
    rows = torch.arange(7 * 100, dtype=torch.float64).reshape(7, 100, 1)
    taken = []

    def work(block):
        taken.append((len(block), threading.get_ident()))
        return [block.sum(), (2 * block).sum()]

    total, twice = shared_rows.sum_over_rows(work, rows, widths=(shared_rows.WIDE_LAYER,))
    assert total == 699 * 700 / 2 and twice == 699 * 700
    # 700 rows are two blocks of 256 and something: 4 and 3 steps.
    assert sorted(length for length, _ in taken) == [3, 4]
    assert len({thread for _, thread in taken}) == min(threads, 2)


def test_narrow_networks_take_all_rows_at_once():
    rows, taken = torch.ones(8, 512, 1), []

    def work(block):
        taken.append(block)
        return [block.sum()]

    shared_rows.sum_over_rows(work, rows, widths=(shared_rows.WIDE_LAYER - 1, 64))
    assert len(taken) == 1 and taken[0] is rows


def test_an_error_in_any_thread_is_raised(threads):
    def work(block):
        if block.sum() < 0:
            raise ArithmeticError("a negative block")
        return [block.sum()]

    rows = torch.ones(8, 64, 1)
    rows[4:] = -1
    with pytest.raises(ArithmeticError, match="a negative block"):
        shared_rows.sum_over_rows(work, rows, widths=(shared_rows.WIDE_LAYER,))
