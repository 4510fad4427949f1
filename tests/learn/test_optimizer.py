"""Adam against its formula written out, its state in place and in a state dict; clipping by hand."""

import copy

import numpy as np
import pytest
import torch

from trot.learn.members import side_by_side, views_into
from trot.learn.optimizer import Adam, MemberAdam, clip_, clip_members_

BETAS = (0.7, 0.95)
SHAPES = [(4, 3), (5,), ()]


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def parameters(seed=0):
    return [numbers(*shape, seed=seed + index).requires_grad_() for index, shape in enumerate(SHAPES)]


def gradients(step):
    return [numbers(*shape, seed=100 * step + index) for index, shape in enumerate(SHAPES)]


def values(tensors):
    return [tensor.detach().clone() for tensor in tensors]


def same(first, second):
    return all(one.equal(other) for one, other in zip(first, second, strict=True))


def by_formula(start, rates, betas):
    """Kingma and Ba's algorithm 1, for each parameter alone."""
    b1, b2 = betas
    ended = []
    for index, weight in enumerate(values(start)):
        weight, m, v = weight.numpy(), 0.0, 0.0
        for step, rate in enumerate(rates, start=1):
            gradient = gradients(step)[index].numpy()
            m = b1 * m + (1 - b1) * gradient
            v = b2 * v + (1 - b2) * gradient**2
            weight = weight - rate * (m / (1 - b1**step)) / (np.sqrt(v / (1 - b2**step)) + 1e-8)
        ended.append(weight)
    return ended


def test_decay_takes_its_share_of_the_weights_at_every_step_as_adamw_does():
    # Powers of two, because the rate is kept in float32.
    rates, decay, (start,) = [0.5**power for power in (5, 6, 3)], 0.25, [numbers(2, 3, seed=9)]
    single, members = start[0].clone().requires_grad_(), start.clone()
    reference = torch.optim.AdamW([start[0].clone().requires_grad_()], betas=BETAS, weight_decay=decay)
    (theirs,) = reference.param_groups[0]["params"]
    ours, many = Adam([single], BETAS, decay), MemberAdam(members, [members], BETAS, decay)
    for step, rate in enumerate(rates):
        gradient = numbers(2, 3, seed=step)
        reference.param_groups[0]["lr"], theirs.grad = rate, gradient[0].clone()
        ours.rate.fill_(rate), many.rate.fill_(rate)
        reference.step(), ours.step([gradient[0].clone()]), many.step([gradient])
    for found in (single, members[0]):
        torch.testing.assert_close(found.detach(), theirs.detach(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("betas", [BETAS, (0.9, 0.999)])
def test_steps_at_changing_rates_by_the_formula(betas):
    moved = parameters()
    # Powers of two, because the rate is kept in float32.
    rates = [0.5**power for power in (5, 6, 7, 3, 5)]
    expected = by_formula(moved, rates, betas)
    adam = Adam(moved, betas)
    for step, rate in enumerate(rates, start=1):
        adam.rate.fill_(rate)
        adam.step(gradients(step))
    for found, wanted in zip(moved, expected, strict=True):
        np.testing.assert_allclose(found.detach(), wanted, rtol=1e-12, atol=1e-14)


def test_as_pytorchs_own_to_the_bit():
    moved, theirs = parameters(), parameters()
    adam, own = Adam(moved, BETAS), torch.optim.Adam(theirs, lr=torch.tensor(0.01), betas=BETAS, fused=True)
    adam.rate.fill_(0.01)
    for step in range(1, 6):
        adam.step(gradients(step))
        for parameter, gradient in zip(theirs, gradients(step), strict=True):
            parameter.grad = gradient
        own.step()
    assert same(moved, theirs)


def test_a_new_one_moves_nothing_and_remembers_nothing():
    moved = parameters()
    before = values(moved)
    adam = Adam(moved, BETAS)
    assert same(moved, before)
    state = adam.state_dict()
    assert set(state) == {"rate"} | {f"{name}_{i}" for name in ("step", "exp_avg", "exp_avg_sq") for i in range(3)}
    assert all((tensor == 0).all() for tensor in state.values())
    # A rate of 0 moves nothing either.
    adam.step(gradients(1))
    assert same(moved, before)


def test_the_memory_layout_of_a_gradient_does_not_matter():
    """Batched products leave gradients that are transposed in memory."""
    moved, expected = parameters(), parameters()
    for tensors, transposed in ((moved, True), (expected, False)):
        adam = Adam(tensors, BETAS)
        adam.rate.fill_(0.01)
        for step in (1, 2):
            first, *others = gradients(step)
            assert not first.t().contiguous().t().is_contiguous()
            adam.step([first.t().contiguous().t() if transposed else first, *others])
    assert same(moved, expected)


def test_gradients_must_be_as_many_as_parameters():
    with pytest.raises(ValueError, match="there are 2 gradients for 3 parameters"):
        Adam(parameters(), BETAS).step(gradients(1)[:2])


def test_its_state_goes_on_from_a_state_dict_in_place():
    moved = parameters()
    adam = Adam(moved, BETAS)
    adam.rate.fill_(0.01)
    for step in (1, 2):
        adam.step(gradients(step))
    saved, weights = copy.deepcopy(adam.state_dict()), values(moved)
    for step in (3, 4):
        adam.step(gradients(step))

    again = [weight.clone().requires_grad_() for weight in weights]
    resumed = Adam(again, BETAS)
    resumed.step(gradients(9))
    addresses = {name: tensor.data_ptr() for name, tensor in resumed.named_buffers()}
    resumed.load_state_dict(saved)
    assert {name: tensor.data_ptr() for name, tensor in resumed.named_buffers()} == addresses
    assert int(resumed.step_0) == 2 and float(resumed.rate) == pytest.approx(0.01)
    for step in (3, 4):
        resumed.step(gradients(step))
    assert same(again, moved)
    assert same(resumed.state_dict().values(), adam.state_dict().values())


def test_steps_stay_where_they_are_in_memory():
    moved = parameters()
    adam = Adam(moved, BETAS)
    adam.rate.fill_(0.01)
    addresses = [tensor.data_ptr() for tensor in (*moved, *adam.buffers())]
    for step in (1, 2):
        adam.step(gradients(step))
    assert [tensor.data_ptr() for tensor in (*moved, *adam.buffers())] == addresses


def test_clipping_scales_all_gradients_alike():
    # The common norm is (3^2 + 4^2 + 12^2)^0.5 = 13.
    given = [torch.tensor([[3.0, 0.0], [0.0, 4.0]]).double(), torch.tensor([12.0]).double()]
    assert float(clip_(given, 6.5)) == 13
    # By half, but for the 1e-6 that keeps a norm of 0 from dividing.
    half = 6.5 / (13 + 1e-6)
    assert given[0].tolist() == [[3 * half, 0], [0, 4 * half]] and given[1].tolist() == [12 * half]


@pytest.mark.parametrize("largest", [13.1, 1e9])
def test_small_gradients_stay_as_they_are(largest):
    given = [torch.tensor([3.0, 4.0]), torch.tensor([12.0])]
    assert float(clip_(given, largest)) == 13
    assert [one.tolist() for one in given] == [[3, 4], [12]]


def test_no_gradient_at_all_is_not_divided_by():
    given = [torch.zeros(2), torch.zeros(())]
    assert float(clip_(given, 1.0)) == 0 and not any(one.any() for one in given)


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_the_norm_tells_of_what_is_not_finite(bad):
    assert not clip_([torch.tensor([1.0, bad]), torch.ones(3)], 1.0).isfinite()


@pytest.mark.gpu
def test_captured_in_a_graph_it_is_what_it_is_without():
    def on_gpu(tensors):
        return [tensor.detach().cuda().requires_grad_(tensor.requires_grad) for tensor in tensors]

    eager, captured = on_gpu(parameters()), on_gpu(parameters())
    optimizers = [Adam(moved, BETAS) for moved in (eager, captured)]
    followed = on_gpu(gradients(1))
    saved, before = copy.deepcopy(optimizers[1].state_dict()), values(captured)
    # Kernels are loaded on first use, and a capture cannot wait for that.
    optimizers[1].step(followed)
    optimizers[1].load_state_dict(saved)
    with torch.no_grad():
        for parameter, weight in zip(captured, before, strict=True):
            parameter.copy_(weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizers[1].step(followed)
    for step in range(1, 5):
        for tensor, gradient in zip(followed, gradients(step), strict=True):
            tensor.copy_(gradient)
        for adam in optimizers:
            adam.rate.fill_(0.01 / step)
        optimizers[0].step(followed)
        graph.replay()
        assert same(eager, captured)
        assert same(optimizers[0].buffers(), optimizers[1].buffers())


MEMBER_RATES = (0.5**5, 0.5**7, 0.0)


def of_members(shapes, seed):
    return [numbers(len(MEMBER_RATES), *shape, seed=seed + index) for index, shape in enumerate(shapes)]


def test_each_member_takes_the_steps_of_adam_at_a_rate_of_its_own():
    shapes = [(4, 3), (5,)]
    flat = side_by_side(of_members(shapes, 0))
    alone = [[part[member].clone() for part in of_members(shapes, 0)] for member in range(len(MEMBER_RATES))]
    together = MemberAdam(flat, of_members(shapes, 0), BETAS)
    together.rate.copy_(torch.tensor(MEMBER_RATES))
    singles = [Adam(weights, BETAS) for weights in alone]
    for step in range(5):
        found = of_members(shapes, 100 * (step + 1))
        together.step([side_by_side(found)])
        for member, (single, rate) in enumerate(zip(singles, MEMBER_RATES, strict=True)):
            single.rate.fill_(rate)
            single.step([part[member] for part in found])
    for member, (single, weights) in enumerate(zip(singles, alone, strict=True)):
        for view, weight in zip(views_into(flat, of_members(shapes, 0)), weights, strict=True):
            torch.testing.assert_close(view[member], weight, rtol=1e-13, atol=1e-15)
        # What is saved has Adam's names, in Adam's order, with an axis of members in front.
        assert list(together.state_dict()) == list(single.state_dict())
        for name, tensor in single.state_dict().items():
            torch.testing.assert_close(together.state_dict()[name][member], tensor, rtol=1e-13, atol=0)
    start = of_members(shapes, 0)
    assert views_into(flat, start)[0][2].equal(start[0][2]) and not views_into(flat, start)[0][1].equal(start[0][1])


def test_each_member_is_clipped_by_its_own_norm():
    gradient = torch.tensor([[3.0, 4.0], [0.3, 0.4], [float("nan"), 1.0]], dtype=torch.float64)
    norm = clip_members_(gradient, 1.0)
    torch.testing.assert_close(norm[:2], torch.tensor([5.0, 0.5], dtype=torch.float64))
    assert norm[2].isnan() and gradient[2].isnan().all()
    torch.testing.assert_close(gradient[0], torch.tensor([0.6, 0.8], dtype=torch.float64), rtol=1e-6, atol=0)
    assert gradient[1].tolist() == [0.3, 0.4]
