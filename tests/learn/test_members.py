"""Networks with members: each is what it would be alone, in what it gives, how it begins, and how it learns."""

import math

import pytest
import torch
from torch import nn

from trot.learn.networks import (
    GRADIENT_BLOCK,
    Critic,
    Linear,
    MemberLinear,
    Policy,
    _MemberProduct,
    orthogonal_,
    perceptron,
    stack_members,
    take_member,
)
from trot.learn.optimizer import Adam

MEMBERS, ROWS, INPUTS, OUTPUTS = 3, 4, 5, 2
EXACT = {"rtol": 1e-12, "atol": 1e-12}
KINDS = ["gaussian", "state_dependent", "deterministic"]
SHARED = pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])


def scrambled(module, seed=0):
    """Other weights than the initial ones, so that no bias is 0 and no scale is 1, in float64."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module.double()


def normal(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows_of(shared, width=INPUTS):
    return normal(ROWS, width) if shared else normal(MEMBERS, ROWS, width)


def of_member(rows, index):
    return rows[index] if rows.dim() == 3 else rows


def same(found, expected):
    torch.testing.assert_close(found, expected, **EXACT)


def same_as_alone(together, singles, inputs, *others):
    """Compare outputs, and gradients by weights and inputs, of a product with the same random numbers."""
    inputs = inputs.clone().requires_grad_()
    output = together(inputs, *others)
    assert len(output) == MEMBERS
    cotangent = normal(*output.shape, seed=2)
    by_weights = torch.autograd.grad(output, [inputs, *together.parameters()], cotangent, materialize_grads=True)
    expected = []
    for index, single in enumerate(singles):
        alone = of_member(inputs, index).detach().clone().requires_grad_()
        value = single(alone, *(of_member(other, index) for other in others))
        same(output[index], value)
        parameters = [alone, *single.parameters()]
        expected.append(torch.autograd.grad(value, parameters, cotangent[index], materialize_grads=True))
    by_inputs, *by_weights = by_weights
    alone, *weights_alone = (torch.stack(gradients) for gradients in zip(*expected, strict=True))
    same(by_inputs, alone if inputs.dim() == 3 else alone.sum(dim=0))
    assert len(by_weights) == len(weights_alone) > 0
    for found, gradients in zip(by_weights, weights_alone, strict=True):
        same(found, gradients.view_as(found))


@SHARED
@pytest.mark.parametrize("activation", ["elu", "relu", "silu"])
@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("hidden", [(), (7, 6)])
def test_each_member_is_the_single_network_with_its_weights(hidden, layer_norm, activation, shared):
    kind = {"activation": activation, "layer_norm": layer_norm}
    singles = [scrambled(perceptron(INPUTS, hidden, OUTPUTS, **kind), seed) for seed in range(MEMBERS)]
    same_as_alone(stack_members(singles), singles, rows_of(shared))
    together = scrambled(perceptron(INPUTS, hidden, OUTPUTS, **kind, members=MEMBERS))
    same_as_alone(together, [take_member(together, index) for index in range(MEMBERS)], rows_of(shared))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noisy", [True, False])
@SHARED
def test_each_member_of_a_policy_is_the_single_policy(kind, noisy, shared):
    form = {"activation": "silu", "layer_norm": False} if kind == "gaussian" else {}
    together = scrambled(Policy(INPUTS, OUTPUTS, (7,), kind, members=MEMBERS, **form))
    singles = [Policy(INPUTS, OUTPUTS, (7,), kind, **form).double() for _ in range(MEMBERS)]
    for index, single in enumerate(singles):
        single.network = take_member(together.network, index)
        if kind == "gaussian":
            assert together.log_std.shape == (MEMBERS, OUTPUTS)
            single.log_std.data.copy_(together.log_std[index])
    noise = [normal(MEMBERS, ROWS, OUTPUTS, seed=3)] if noisy else []
    same_as_alone(together, singles, rows_of(shared), *noise)


@SHARED
def test_each_member_of_a_critic_is_the_single_critic(shared):
    together = scrambled(Critic(INPUTS, (7, 6), members=MEMBERS))
    singles = [Critic(INPUTS, (7, 6)).double() for _ in range(MEMBERS)]
    for index, single in enumerate(singles):
        single.network = take_member(together.network, index)
    inputs = rows_of(shared)
    assert together(inputs).shape == (MEMBERS, ROWS)
    same_as_alone(together, singles, inputs)


def test_members_draw_what_as_many_single_networks_draw_one_after_another():
    form = {"activation": "relu", "layer_norm": True}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        together = perceptron(INPUTS, (7, 6), OUTPUTS, **form, members=MEMBERS)
        after = torch.random.get_rng_state()
        torch.manual_seed(5)
        singles = [perceptron(INPUTS, (7, 6), OUTPUTS, **form) for _ in range(MEMBERS)]
        assert torch.random.get_rng_state().equal(after)
    for index, single in enumerate(singles):
        found, expected = take_member(together, index).state_dict(), single.state_dict()
        assert found.keys() == expected.keys()
        assert all(found[name].equal(expected[name]) for name in expected)
    assert not singles[0][0].weight.equal(singles[1][0].weight)


def test_members_of_a_policy_begin_as_single_ones_do():
    gaussian = Policy(INPUTS, OUTPUTS, (7,), initial_log_std=-2.5, members=MEMBERS)
    assert (gaussian.log_std == -2.5).all() and gaussian.log_std.requires_grad
    mean, log_std = Policy(INPUTS, OUTPUTS, (7,), "state_dependent", -1.5, members=MEMBERS).distribution(
        torch.randn(ROWS, INPUTS)
    )
    assert mean.shape == log_std.shape == (MEMBERS, ROWS, OUTPUTS)
    assert (log_std == -1.5).all() and mean.std(dim=1).min() > 0.01
    assert not mean[0].allclose(mean[1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Critic(11, (64, 24), members=MEMBERS).network,
        lambda: Policy(11, 3, (64, 24), "deterministic", members=MEMBERS).network,
        lambda: perceptron(11, (64, 24), 3, members=MEMBERS),
    ],
)
def test_every_member_begins_orthogonal_with_gain_root_2(make):
    network = make()
    orthogonal_(network)
    layers = [layer for layer in network if isinstance(layer, MemberLinear)]
    assert len(layers) == 3
    for layer in layers:
        assert (layer.bias == 0).all() and layer.weight.is_leaf and layer.weight.requires_grad
        assert not layer.weight[0].allclose(layer.weight[1], atol=0.1)
        for weight in layer.weight.detach():
            rows, columns = weight.shape
            gram = weight @ weight.T if rows <= columns else weight.T @ weight
            torch.testing.assert_close(gram, 2 * torch.eye(min(rows, columns)), rtol=0, atol=1e-5)
            assert float(torch.linalg.matrix_norm(weight, 2)) == pytest.approx(math.sqrt(2), rel=1e-5)


@pytest.mark.parametrize("layer_norm", [True, False])
def test_members_taken_out_and_stacked_again_are_the_same(layer_norm):
    together = scrambled(perceptron(INPUTS, (7, 6), OUTPUTS, layer_norm=layer_norm, members=MEMBERS))
    before = torch.random.get_rng_state()
    taken = [take_member(together, index) for index in range(MEMBERS)]
    assert torch.random.get_rng_state().equal(before), "to take one out draws no random numbers"
    again = stack_members(taken).state_dict()
    assert again.keys() == together.state_dict().keys()
    assert all(tensor.equal(again[name]) and tensor.dtype == again[name].dtype == torch.float64
               for name, tensor in together.state_dict().items())  # fmt: skip
    assert all(isinstance(one[0], Linear) and isinstance(one[-1], Linear) for one in taken)
    # A copy: what becomes of it does not reach the others.
    with torch.no_grad():
        for parameter in taken[1].parameters():
            parameter.zero_()
    assert all(tensor.equal(again[name]) for name, tensor in together.state_dict().items())
    assert all(parameter.requires_grad for parameter in taken[0].parameters())


@pytest.mark.parametrize("layer_norm", [True, False])
def test_members_that_learn_together_learn_what_each_would_alone(layer_norm):
    singles = [scrambled(perceptron(INPUTS, (7,), OUTPUTS, layer_norm=layer_norm), seed) for seed in range(MEMBERS)]
    together = stack_members(singles)
    inputs, targets = normal(10, ROWS, INPUTS), normal(10, MEMBERS, ROWS, OUTPUTS, seed=4)

    def steps(network, targets):
        """Ten, towards these targets; the sum over members, so that no member feels how many others there are."""
        parameters = list(network.parameters())
        adam = Adam(parameters, (0.7, 0.95))
        adam.rate.fill_(0.01)
        for x, target in zip(inputs, targets, strict=True):
            loss = (network(x) - target).square().sum()
            adam.step(torch.autograd.grad(loss, parameters))

    before = [parameter.detach().clone() for parameter in together.parameters()]
    steps(together, targets)
    assert all((new - old).abs().min() > 1e-4 for new, old in zip(together.parameters(), before, strict=True))
    for index, single in enumerate(singles):
        steps(single, targets[:, index])
        for found, expected in zip(take_member(together, index).parameters(), single.parameters(), strict=True):
            same(found, expected)


def test_networks_of_different_layers_are_not_stacked():
    elu, relu = (perceptron(INPUTS, (7,), OUTPUTS, activation=activation) for activation in ("elu", "relu"))
    with pytest.raises(ValueError, match="members must have the same layers, not ELU beside ReLU"):
        stack_members([elu, relu])
    with pytest.raises(ValueError, match="at least one network"):
        perceptron(INPUTS, (7,), OUTPUTS, members=0)
    with pytest.raises(ValueError, match="shorter"):
        stack_members([elu, nn.Sequential(*list(elu)[:2])])


@SHARED
@pytest.mark.parametrize("rows", [256, GRADIENT_BLOCK, 3 * GRADIENT_BLOCK, 3 * GRADIENT_BLOCK + 1])
@pytest.mark.parametrize("needed", [(True, True, True), (False, True, True), (True, False, False)])
def test_a_product_in_blocks_of_rows_is_the_plain_one(shared, rows, needed):
    """What GPUs use, in float64 on the CPU."""
    inputs, weight, bias = normal(MEMBERS, rows, INPUTS), normal(MEMBERS, OUTPUTS, INPUTS), normal(MEMBERS, OUTPUTS)
    if shared:
        inputs = normal(rows, INPUTS).expand(MEMBERS, -1, -1)
    tensors = [tensor.requires_grad_(asked) for tensor, asked in zip((inputs, weight, bias), needed, strict=True)]
    asked = [tensor for tensor in tensors if tensor.requires_grad]
    found = _MemberProduct.apply(*tensors)
    expected = torch.einsum("mri,moi->mro", inputs, weight) + bias.unsqueeze(1)
    same(found, expected)
    cotangent = normal(*found.shape, seed=2)
    for one, other in zip(*(torch.autograd.grad(part, asked, cotangent) for part in (found, expected)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
        assert one.is_contiguous()
