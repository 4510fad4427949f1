"""The fit of a critic by kernels, against PyTorch's autograd and its own Adam, and against finite differences."""

import copy
import math

import pytest
import torch
from small_critic import BETAS, assert_same, by_pytorch, critic_of, window
from small_shac import learner, prepared, run
from torch import nn

from trot.learn import critic_fit
from trot.learn.critic_fit import BLOCK_ROWS, CriticFit
from trot.learn.members import weights_of
from trot.learn.networks import perceptron
from trot.learn.optimizer import Adam, MemberAdam

# Layers and rows that fill whole tiles and blocks, some that leave remainders, and no hidden layer at all.
NETWORKS = [(37, (64, 64)), (5, (7, 100, 33)), (16, (16,)), (3, ())]


def fitted(network, adam, inputs, targets, batches=1, passes=1, largest=math.inf):
    fit = CriticFit.of(network, adam)
    assert fit is not None
    return fit(inputs, targets, batches, passes, largest)


@pytest.mark.parametrize(("inputs", "hidden"), NETWORKS)
@pytest.mark.parametrize("rows", [4 * 2 * BLOCK_ROWS, 4 * 29])
@pytest.mark.parametrize("largest", [0.3, 1e6])
def test_a_fit_is_pytorchs_own(inputs, hidden, rows, largest):
    ours = critic_of(inputs, hidden)
    theirs = copy.deepcopy(ours)
    adam = Adam(ours.parameters(), BETAS)
    # A power of two, because the rate is kept in float32.
    rate = 0.5**8
    adam.rate.fill_(rate)
    reference = torch.optim.Adam(theirs.parameters(), lr=rate, betas=BETAS)
    for _ in range(2):
        x, y = window(inputs, rows)
        loss = fitted(ours, adam, x, y, batches=4, passes=3, largest=largest)
        assert loss.item() == pytest.approx(by_pytorch(theirs, reference, x, y, 4, 3, largest), rel=1e-12)
    assert adam.steps == 2 * 4 * 3
    assert_same(ours, adam, theirs, reference)


def test_in_single_precision_to_its_rounding():
    ours = critic_of(37, (64, 64), dtype=torch.float32)
    exact = copy.deepcopy(ours).double()
    x, y = window(37, 512, dtype=torch.float32)
    adams = [Adam(network.parameters(), BETAS) for network in (ours, exact)]
    for adam in adams:
        adam.rate.fill_(1e-3)
    single = fitted(ours, adams[0], x, y, batches=4, passes=4, largest=1.0)
    double = fitted(exact, adams[1], x.double(), y.double(), batches=4, passes=4, largest=1.0)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=0)
    for one, other in zip(ours.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=2e-5)


def first_gradient(network, x, y):
    """Adam's mean after a first step of rate 0, from which nothing is clipped."""
    adam = Adam(network.parameters(), BETAS)
    fitted(network, adam, x, y)
    return [mean / (1 - BETAS[0]) for mean in adam.moments()[0]]


@pytest.mark.parametrize(("inputs", "hidden"), NETWORKS)
def test_the_gradient_against_finite_differences(inputs, hidden):
    network = critic_of(inputs, hidden)
    x, y = window(inputs, 70)
    found, h = first_gradient(network, x, y), 1e-6
    with torch.no_grad():
        for parameter, gradient in zip(network.parameters(), found, strict=True):
            direction = torch.randn_like(parameter)
            losses = []
            for sign in (1, -1):
                parameter += sign * h * direction
                losses.append(nn.functional.mse_loss(network(x).squeeze(-1), y).item())
                parameter -= sign * h * direction
            expected = (losses[0] - losses[1]) / (2 * h)
            assert float((gradient * direction).sum()) == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_elu_far_from_zero():
    """e^x underflows there, and must neither wrap round nor lose the slope."""
    network = perceptron(1, (2,), 1).double()
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0], [0.5]]))
        network[-1].weight.copy_(torch.tensor([[1.0, -2.0]]))
    x = torch.tensor([-1e4, -800.0, -40.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 1e4]).double().unsqueeze(1)
    y = torch.zeros(len(x)).double()
    ours = first_gradient(network, x, y)
    loss = nn.functional.mse_loss(network(x).squeeze(-1), y)
    for one, other in zip(ours, torch.autograd.grad(loss, list(network.parameters())), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_each_member_is_fitted_alone():
    members, inputs, hidden = 3, 9, (20, 12)
    together = critic_of(inputs, hidden, members=members)
    parameters = list(together.parameters())
    alone = []
    for member in range(members):
        alone.append(critic_of(inputs, hidden, seed=9))
        with torch.no_grad():
            for own, all_of_them in zip(alone[-1].parameters(), parameters, strict=True):
                own.copy_(all_of_them[member])
    adam = MemberAdam(weights_of(together, members)[0], parameters, BETAS)
    rates, largest = torch.tensor([0.5**7, 0.0, 0.5**9]), torch.tensor([0.2, 1.0, 1e6]).double()
    adam.rate.copy_(rates)
    x, y = window(inputs, 4 * 40, members)
    losses = fitted(together, adam, x, y, batches=4, passes=2, largest=largest)
    assert adam.steps.tolist() == [8, 8, 8]
    for member, network in enumerate(alone):
        single = Adam(network.parameters(), BETAS)
        single.rate.fill_(rates[member])
        loss = fitted(network, single, x[member], y[member], batches=4, passes=2, largest=float(largest[member]))
        assert loss == losses[member]
        for own, all_of_them in zip(network.parameters(), parameters, strict=True):
            assert own.equal(all_of_them[member])
        for own, all_of_them in zip(single.moments()[0], adam.moments()[0], strict=True):
            assert own.equal(all_of_them[member])


@pytest.mark.parametrize("rows", [4 * 5 * BLOCK_ROWS, 4 * 201])
def test_the_same_bits_on_any_number_of_threads(threads, monkeypatch, rows):
    monkeypatch.setattr(critic_fit, "WORTH_A_THREAD", 1)
    x, y = window(37, rows, dtype=torch.float32)
    found = []
    for count in (1, 4, 6, 16):
        threads(count)
        network = critic_of(37, (64, 30), dtype=torch.float32)
        adam = Adam(network.parameters(), BETAS)
        adam.rate.fill_(1e-3)
        loss = fitted(network, adam, x, y, batches=4, passes=2, largest=1.0)
        found.append([loss, *network.parameters(), *adam.buffers()])
    for other in found[1:]:
        assert all(one.equal(two) for one, two in zip(found[0], other, strict=True))


@pytest.mark.parametrize("where", ["inputs", "targets"])
def test_a_number_that_is_not_finite_shows(where):
    network = critic_of(5, (8, 8))
    x, y = window(5, 70)
    (x if where == "inputs" else y)[3] = torch.nan
    adam = Adam(network.parameters(), BETAS)
    adam.rate.fill_(1e-3)
    assert fitted(network, adam, x, y, largest=1.0).isnan()
    assert all(parameter.isnan().all() for parameter in network.parameters())


@pytest.mark.parametrize(
    "network",
    [
        perceptron(5, (8,), 1, activation="silu"),
        perceptron(5, (8,), 1, layer_norm=False),
        nn.Sequential(nn.Linear(5, 8), nn.ELU(alpha=0.5), nn.LayerNorm(8), nn.Linear(8, 1)),
        perceptron(5, (8,), 1).to(torch.float16),
        perceptron(5, (8,), 2),
        nn.Sequential(nn.Linear(5, 8, bias=False), nn.ELU(), nn.LayerNorm(8), nn.Linear(8, 1)),
        nn.Sequential(nn.Linear(5, 8), nn.ELU(), nn.LayerNorm(8, elementwise_affine=False), nn.Linear(8, 1)),
        nn.Sequential(
            *[nn.Linear(5, 8), nn.ELU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.ELU(), nn.LayerNorm(8, eps=1e-3)],
            nn.Linear(8, 1),
        ),
    ],
)
def test_what_the_kernels_do_not_know_is_left_to_pytorch(network):
    assert CriticFit.of(network, Adam(network.parameters(), BETAS)) is None


def test_inputs_of_another_precision_are_refused():
    network = critic_of(5, (8,))
    x, y = window(5, 70, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"a parameter is .* torch\.float64 .* the kernel reads .* torch\.float32"):
        fitted(network, Adam(network.parameters(), BETAS), x, y)


def test_rows_that_no_batch_would_have_are_refused():
    network = critic_of(5, (8,))
    with pytest.raises(ValueError, match="70 rows do not split into 4 batches"):
        fitted(network, Adam(network.parameters(), BETAS), *window(5, 70), batches=4)


def test_weights_that_decay_are_left_to_pytorch():
    network = perceptron(5, (8,), 1)
    assert CriticFit.of(network, Adam(network.parameters(), BETAS, decay=0.01)) is None


@pytest.mark.parametrize(("algo", "by_kernels"), [("shac", True), ("bptt", True), ("sapo", False)])
def test_who_uses_it(algo, by_kernels):
    assert (learner(algo=algo).native_fit is not None) is by_kernels


def test_shac_learns_the_same_with_pytorchs_operations():
    ours, theirs = prepared(after=0), prepared(after=0)
    theirs.native_fit = None
    run(ours, 3), run(theirs, 3)
    assert float(ours.value_loss) == pytest.approx(float(theirs.value_loss), rel=1e-9)
    for name, tensor in theirs.state_dict().items():
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=1e-8, atol=1e-9, msg=name)
