"""Policy and value function: layers against NumPy, initial weights, samples and their gradients by hand."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from trot.learn.networks import Critic, Policy, move_towards, perceptron

KINDS = ["gaussian", "state_dependent", "deterministic"]


def linear_layers(network):
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


def by_numpy(network, x):
    """Linear, ELU, LayerNorm (biased variance, 1e-5 below the root) per hidden layer, then Linear."""
    weights = {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}
    layers = [int(name.split(".")[0]) for name in weights if name.endswith("weight")]
    *hidden, last = layers
    for linear, norm in zip(hidden[::2], hidden[1::2], strict=True):
        x = x @ weights[f"{linear}.weight"].T + weights[f"{linear}.bias"]
        x = np.where(x > 0, x, np.expm1(x))
        x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        x = x * weights[f"{norm}.weight"] + weights[f"{norm}.bias"]
    return x @ weights[f"{last}.weight"].T + weights[f"{last}.bias"]


def scramble(module):
    """Other weights than the initial ones, so that no bias is 0 and no scale is 1."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module.double()


def test_layers_come_in_the_order_linear_elu_layer_norm():
    network = perceptron(5, (7, 6), 2)
    block = [nn.Linear, nn.ELU, nn.LayerNorm]
    for layer, kind in zip(network, [*block, *block, nn.Linear], strict=True):
        assert isinstance(layer, kind)
    assert [(layer.in_features, layer.out_features) for layer in linear_layers(network)] == [(5, 7), (7, 6), (6, 2)]


@pytest.mark.gpu
def test_networks_on_the_gpu_are_those_of_the_cpu(rng):
    network = perceptron(5, (70, 60), 2).double()
    inputs = torch.tensor(rng.normal(size=(3, 4, 5)))
    torch.testing.assert_close(network.cuda()(inputs.cuda()).cpu(), network.cpu()(inputs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("hidden", [(), (7,), (7, 6)])
def test_networks_against_numpy(rng, hidden):
    x = rng.normal(size=(4, 5))
    network = scramble(perceptron(5, hidden, 2))
    np.testing.assert_allclose(network(torch.from_numpy(x)).detach(), by_numpy(network, x), rtol=1e-12, atol=1e-12)
    critic = scramble(Critic(5, hidden))
    value = critic(torch.from_numpy(x))
    np.testing.assert_allclose(value.detach(), by_numpy(critic.network, x)[:, 0], rtol=1e-12, atol=1e-12)


def test_the_value_of_a_window_has_its_steps_and_worlds():
    critic, window = Critic(5, (8,)), torch.randn(6, 4, 5)
    assert critic(window).shape == (6, 4)
    torch.testing.assert_close(critic(window)[2], critic(window[2]))


@pytest.mark.parametrize("make", [lambda: Critic(11, (64, 24)), lambda: Policy(11, 3, (64, 24), "deterministic")])
def test_critic_and_deterministic_policy_begin_orthogonal_with_gain_root_2(make):
    layers = linear_layers(make())
    assert len(layers) == 3
    for layer in layers:
        rows, columns = layer.weight.shape
        gram = layer.weight @ layer.weight.T if rows <= columns else layer.weight.T @ layer.weight
        torch.testing.assert_close(gram, 2 * torch.eye(min(rows, columns)), rtol=0, atol=1e-5)
        assert (layer.bias == 0).all()


def test_a_gaussian_policy_begins_as_pytorch_makes_its_layers():
    torch.manual_seed(5)
    policy = Policy(11, 3, (64, 32))
    torch.manual_seed(5)
    for layer, (inputs, outputs) in zip(linear_layers(policy), [(11, 64), (64, 32), (32, 3)], strict=True):
        plain = nn.Linear(inputs, outputs)
        assert layer.weight.equal(plain.weight) and layer.bias.equal(plain.bias)
        assert layer.weight.abs().max() <= 1 / math.sqrt(inputs) and (layer.bias != 0).any()


@pytest.mark.parametrize("kind", KINDS)
def test_layer_norms_begin_as_identity(kind):
    norms = [layer for layer in Policy(5, 2, (8, 8), kind).modules() if isinstance(layer, nn.LayerNorm)]
    assert len(norms) == 2
    assert all((norm.weight == 1).all() and (norm.bias == 0).all() for norm in norms)


def test_one_free_deviation_per_action():
    policy = Policy(5, 3, (8,))
    assert policy.log_std.tolist() == [-1, -1, -1] and policy.log_std.requires_grad
    assert Policy(5, 3, (8,), initial_log_std=-2.5).log_std.tolist() == [-2.5] * 3
    assert not any(name == "log_std" for kind in KINDS[1:] for name, _ in Policy(5, 3, (8,), kind).named_parameters())


def test_an_action_is_tanh_of_mean_plus_deviation_times_noise(rng):
    policy = scramble(Policy(5, 3, (8,)))
    x, noise = rng.normal(size=(4, 5)), rng.normal(size=(4, 3))
    mean, deviation = by_numpy(policy.network, x), np.exp(policy.log_std.detach().numpy())
    x, noise = torch.from_numpy(x), torch.from_numpy(noise)
    np.testing.assert_allclose(policy(x, noise).detach(), np.tanh(mean + deviation * noise.numpy()), rtol=1e-12)
    np.testing.assert_allclose(policy(x).detach(), np.tanh(mean), rtol=1e-12)
    assert policy(x, torch.zeros_like(noise)).equal(policy(x))


def test_the_gradient_by_the_deviation_by_hand(rng):
    policy = scramble(Policy(5, 3, (8,)))
    x, noise = torch.from_numpy(rng.normal(size=(4, 5))), torch.from_numpy(rng.normal(size=(4, 3)))
    action = policy(x, noise)
    action.sum().backward()
    # d tanh(m + e^s n) / ds = (1 - a^2) e^s n, summed over worlds.
    expected = ((1 - action**2) * policy.log_std.exp() * noise).sum(dim=0)
    torch.testing.assert_close(policy.log_std.grad, expected, rtol=1e-12, atol=1e-15)


def test_without_noise_the_deviation_has_no_gradient():
    policy = Policy(5, 3, (8,))
    policy(torch.randn(4, 5)).sum().backward()
    assert policy.log_std.grad is None


def test_a_state_dependent_deviation_begins_the_same_everywhere():
    policy = Policy(5, 3, (8,), "state_dependent", initial_log_std=-1.5)
    mean, log_std = policy.distribution(torch.randn(20, 5))
    assert mean.shape == log_std.shape == (20, 3)
    assert (log_std == -1.5).all() and mean.std(dim=0).min() > 0.01


def test_a_state_dependent_deviation_depends_on_the_state_once_it_has_learned(rng):
    policy = scramble(Policy(5, 3, (8,), "state_dependent"))
    x, noise = rng.normal(size=(4, 5)), rng.normal(size=(4, 3))
    output = by_numpy(policy.network, x)
    mean, log_std = output[:, :3], output[:, 3:]
    assert log_std.std(axis=0).min() > 0.1
    found = policy(torch.from_numpy(x), torch.from_numpy(noise)).detach()
    np.testing.assert_allclose(found, np.tanh(mean + np.exp(log_std) * noise), rtol=1e-10)


def test_a_state_dependent_deviation_learns_from_the_first_step():
    policy = Policy(5, 3, (8,), "state_dependent")
    policy(torch.randn(4, 5), torch.randn(4, 3)).sum().backward()
    last = linear_layers(policy)[-1]
    assert (last.weight.grad[3:] != 0).any(dim=1).all() and (last.bias.grad[3:] != 0).all()


def test_a_deterministic_policy_ignores_noise(rng):
    policy, x = scramble(Policy(5, 3, (8,), "deterministic")), rng.normal(size=(4, 5))
    found = policy(torch.from_numpy(x), torch.from_numpy(rng.normal(size=(4, 3))))
    np.testing.assert_allclose(found.detach(), np.tanh(by_numpy(policy.network, x)), rtol=1e-12)
    assert policy.distribution(torch.from_numpy(x))[1] is None


@pytest.mark.parametrize(("keep", "expected"), [(0.0, 6.0), (0.2, 5.0), (0.5, 3.5), (0.995, 1.025), (1.0, 1.0)])
def test_a_target_keeps_its_share(keep, expected):
    target, source = Critic(4, (8,)).double(), Critic(4, (8,)).double()
    with torch.no_grad():
        for ours, theirs in zip(target.parameters(), source.parameters(), strict=True):
            ours.fill_(1.0), theirs.fill_(6.0)
    addresses = [parameter.data_ptr() for parameter in target.parameters()]
    move_towards(target, source, keep)
    for ours, theirs in zip(target.parameters(), source.parameters(), strict=True):
        torch.testing.assert_close(ours, torch.full_like(ours, expected), rtol=1e-15, atol=1e-15)
        assert (theirs == 6).all()
    # In place, for CUDA graphs.
    assert addresses == [parameter.data_ptr() for parameter in target.parameters()]


def test_a_clamped_policy_cuts_what_tanh_would_squash(rng):
    policy = scramble(Policy(5, 3, (8,), squash="clamp"))
    x, noise = rng.normal(size=(40, 5)), rng.normal(size=(40, 3))
    mean, deviation = by_numpy(policy.network, x), np.exp(policy.log_std.detach().numpy())
    sample = mean + deviation * noise
    assert (sample > 1).any() and (sample < -1).any() and (np.abs(sample) < 1).any()
    x, noise = torch.from_numpy(x), torch.from_numpy(noise)
    np.testing.assert_allclose(policy(x, noise).detach(), np.clip(sample, -1, 1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(policy(x).detach(), np.clip(mean, -1, 1), rtol=1e-12, atol=1e-12)


def test_a_deviation_stays_within_its_bounds_and_has_no_gradient_beyond_them(rng):
    policy = scramble(Policy(5, 3, (8,), "state_dependent", log_std_bounds=(-1.0, 0.5)))
    x = rng.normal(size=(40, 5))
    log_std = by_numpy(policy.network, x)[:, 3:]
    inside = (log_std > -1) & (log_std < 0.5)
    assert (log_std < -1).any() and (log_std > 0.5).any() and inside.any()
    _, found = policy.distribution(torch.from_numpy(x))
    np.testing.assert_allclose(found.detach(), np.clip(log_std, -1, 0.5), rtol=1e-12)
    last = linear_layers(policy)[-1]
    (by_bias,) = torch.autograd.grad(found.sum(), last.bias)
    assert by_bias.tolist() == [0, 0, 0, *inside.sum(axis=0)]
