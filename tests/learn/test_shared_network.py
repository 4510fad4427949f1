"""A network by kernels on the CPU, against PyTorch's layers and finite differences."""

import pytest
import torch
from torch.autograd import gradcheck

from trot.learn.networks import perceptron
from trot.learn.shared_network import MOST_WEIGHTS, SharedNetwork

# Layers that fill whole vectors and some that do not, one wider than what comes out, and no hidden layer at all.
NETWORKS = [(37, (64, 64), 8), (76, (256, 128), 21), (5, (7, 33), 40), (3, (), 2)]
ROWS = [1, 64, 200]


def network_of(inputs, hidden, outputs, members=None, dtype=torch.float64):
    torch.manual_seed(inputs)
    network = perceptron(inputs, hidden, outputs, members=members).to(dtype)
    for parameter in network.parameters():
        # Normalisations begin with ones and zeros, which would hide a mistake.
        torch.nn.init.normal_(parameter, std=0.3)
    return network.requires_grad_(False)


def shared(network):
    found = SharedNetwork.of(network)
    assert found is not None
    return found


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("widths", NETWORKS)
def test_it_is_pytorchs_network(widths, rows):
    network = network_of(*widths)
    x = torch.randn(rows, widths[0], dtype=torch.float64, requires_grad=True)
    bar = torch.randn(rows, widths[2], dtype=torch.float64)
    ours, theirs = shared(network)(x), network(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    found, expected = (torch.autograd.grad(result, x, bar)[0] for result in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_by_finite_differences():
    network = shared(network_of(5, (7, 33), 4))
    assert gradcheck(network, torch.randn(3, 5, dtype=torch.float64, requires_grad=True))


def test_rows_with_several_axes_or_apart_in_memory():
    network = network_of(5, (7, 33), 4)
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(shared(network)(x), network(x))
    apart = torch.randn(5, 90, dtype=torch.float64).T
    torch.testing.assert_close(shared(network)(apart), network(apart))


def test_each_member_has_its_own_weights():
    network = network_of(6, (9, 17), 3, members=3)
    x = torch.randn(3, 70, 6, dtype=torch.float64, requires_grad=True)
    ours, theirs = shared(network)(x), network(x)
    torch.testing.assert_close(ours, theirs)
    found, expected = (torch.autograd.grad(result.square().sum(), x)[0] for result in (ours, theirs))
    torch.testing.assert_close(found, expected)
    one = torch.randn(70, 6, dtype=torch.float64)
    torch.testing.assert_close(shared(network)(one), network(one.expand(3, -1, -1)))


def test_same_bits_for_any_number_of_threads(threads):
    network = shared(network_of(76, (256, 128), 21, dtype=torch.float32))
    x = torch.randn(1000, 76, requires_grad=True)
    found = []
    for count in (1, 2, 5):
        threads(count)
        y = network(x)
        found.append((y, *torch.autograd.grad(y.square().sum(), x)))
    assert all(a.equal(b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_a_row_that_is_not_finite_spoils_no_other():
    network = shared(network_of(5, (7, 33), 4))
    x = torch.randn(70, 5, dtype=torch.float64)
    broken = x.clone()
    broken[3, 2] = float("nan")
    ours, theirs = network(broken), network(x)
    assert ours[3].isnan().all()
    others = [row for row in range(70) if row != 3]
    assert ours[others].equal(theirs[others])


def test_weights_that_change_before_the_way_back_are_told():
    network = network_of(5, (7,), 4)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    y = shared(network)(x)
    network[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_what_the_kernels_are_not_for():
    width = int(MOST_WEIGHTS**0.5) + 1
    assert SharedNetwork.of(network_of(width, (width,), 1)) is None
    assert SharedNetwork.of(perceptron(5, (8,), 3, activation="silu")) is None


def weighed(widths, members=None, dtype=torch.float64):
    network = network_of(*widths, members=members, dtype=dtype).requires_grad_(True)
    return network, list(network.parameters())


# Rows in one block, in one part, in parts of the least length, and in as many as there may be.
@pytest.mark.parametrize("rows", [1, 64, 200, 3000])
@pytest.mark.parametrize("widths", NETWORKS)
def test_the_weights_get_pytorchs_gradient(widths, rows):
    network, parameters = weighed(widths)
    x = torch.randn(rows, widths[0], dtype=torch.float64, requires_grad=True)
    bar = torch.randn(rows, widths[2], dtype=torch.float64)
    for wanted in (parameters, [x, *parameters]):
        found, expected = (torch.autograd.grad(one(x), wanted, bar) for one in (shared(network), network))
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11 * rows)


def test_the_weights_gradient_by_finite_differences():
    network, parameters = weighed((5, (7, 9), 4))
    x = torch.randn(70, 5, dtype=torch.float64)

    def run(*weights):
        with torch.no_grad():
            for parameter, weight in zip(parameters, weights, strict=True):
                parameter.copy_(weight)
        return shared(network)(x)

    bar = torch.randn(70, 4, dtype=torch.float64)
    start = [parameter.detach().clone() for parameter in parameters]
    found = torch.autograd.grad(run(*start), parameters, bar)
    for k, gradient in enumerate(found):
        step = 1e-6
        for place in range(gradient.numel()):
            ends = []
            for sign in (1, -1):
                moved = [one.clone() for one in start]
                moved[k].view(-1)[place] += sign * step
                ends.append((run(*moved).detach() * bar).sum())
            assert float(gradient.view(-1)[place]) == pytest.approx(
                float(ends[0] - ends[1]) / (2 * step), rel=1e-6, abs=1e-6
            )


def test_the_weights_of_each_member_get_its_own_gradient():
    network, parameters = weighed((6, (9, 17), 3), members=3)
    x = torch.randn(3, 700, 6, dtype=torch.float64)
    found, expected = (torch.autograd.grad(one(x).square().sum(), parameters) for one in (shared(network), network))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_weights_gradient_has_the_same_bits_for_any_number_of_threads(threads):
    network, parameters = weighed((76, (256, 128), 21), dtype=torch.float32)
    x, found = torch.randn(2048, 76), []
    for count in (1, 2, 5):
        threads(count)
        found.append(torch.autograd.grad(shared(network)(x).square().sum(), parameters))
    assert all(a.equal(b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_without_a_gradient_the_weights_get_none():
    network, parameters = weighed((5, (7,), 4))
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        assert not shared(network)(x).requires_grad
    network.requires_grad_(False)
    shared(network)(x).sum().backward()
    assert x.grad is not None and all(parameter.grad is None for parameter in parameters)
