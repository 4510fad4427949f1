"""A policy by one kernel each way on the CPU, against the policy itself in PyTorch."""

import math

import pytest
import torch

from trot.envs.mirror import Mirror
from trot.learn.networks import Policy
from trot.learn.shared_network import SharedNetwork
from trot.learn.shared_policy import SharedPolicy

OBSERVATIONS, ACTIONS = 21, 6
# Some change places, some sign, some both, and some nothing.
MIRROR = Mirror(
    observation=(1, -2, 3, 5, 4, -7, -6, *range(8, 20), -20, 21), action=(2, 1, -3, 4, -6, -5)
)  # fmt: skip
ROWS = [1, 64, 200]


def policy_of(mirror=None, members=None, dtype=torch.float64, kind="gaussian", squash="tanh"):
    torch.manual_seed(5)
    policy = Policy(OBSERVATIONS, ACTIONS, (40, 24), kind, -0.5, mirror=mirror, members=members, squash=squash)
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return policy.to(dtype).requires_grad_(False)


def constants(members, dtype=torch.float64):
    shape = (OBSERVATIONS,) if members is None else (members, 1, OBSERVATIONS)
    return torch.randn(shape, dtype=dtype), torch.rand(shape, dtype=dtype) + 0.5


def kernel_of(policy, shift, scale):
    network = SharedNetwork.of(policy.network)
    assert network is not None
    return SharedPolicy.of(policy, network, shift, scale)


@pytest.mark.parametrize("members", [None, 3])
@pytest.mark.parametrize("mirror", [None, MIRROR], ids=["", "mirrored"])
@pytest.mark.parametrize("rows", ROWS)
def test_it_is_the_policy(rows, mirror, members):
    policy, (shift, scale) = policy_of(mirror, members), constants(members)
    shape = (rows,) if members is None else (members, rows)
    x = (2 * torch.randn(*shape, OBSERVATIONS, dtype=torch.float64)).requires_grad_()
    noise, bar = (torch.randn(*shape, ACTIONS, dtype=torch.float64) for _ in range(2))
    results = kernel_of(policy, shift, scale)(x, noise), policy((x - shift) * scale, noise)
    torch.testing.assert_close(*results, rtol=1e-11, atol=1e-12)
    found, expected = (torch.autograd.grad(result, x, bar)[0] for result in results)
    assert expected.abs().max() > 0.01, "a gradient of zeros would prove nothing"
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_a_mirrored_observation_leads_to_the_mirrored_action():
    kernel = kernel_of(
        policy_of(MIRROR), *(one(OBSERVATIONS, dtype=torch.float64) for one in (torch.zeros, torch.ones))
    )

    def mirrored(rows, places):
        index = torch.tensor([abs(place) - 1 for place in places])
        return rows[:, index] * torch.tensor([math.copysign(1, place) for place in places], dtype=torch.float64)

    # Without noise: its deviations are not alike on both sides.
    x, noise = torch.randn(50, OBSERVATIONS, dtype=torch.float64), torch.zeros(50, ACTIONS, dtype=torch.float64)
    found = kernel(mirrored(x, MIRROR.observation), noise)
    torch.testing.assert_close(found, mirrored(kernel(x, noise), MIRROR.action), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 4e-7), (torch.float64, 1e-15)], ids=str)
def test_the_tanh_keeps_its_digits_from_tiny_to_huge(dtype, digits):
    policy = policy_of(dtype=dtype)
    for parameter in policy.network.parameters():
        parameter.zero_()
    policy.log_std.zero_()
    kernel = kernel_of(policy, torch.zeros(OBSERVATIONS, dtype=dtype), torch.ones(OBSERVATIONS, dtype=dtype))
    sizes = torch.cat([torch.logspace(-30, 1.5, 300, dtype=dtype), torch.linspace(0.2, 0.3, 60, dtype=dtype)])
    noise = torch.cat([sizes, -sizes]).view(-1, ACTIONS)
    found = kernel(torch.zeros(len(noise), OBSERVATIONS, dtype=dtype), noise)
    torch.testing.assert_close(found, noise.double().tanh().to(dtype), rtol=digits, atol=0)


def test_same_bits_for_any_number_of_threads(threads):
    policy, (shift, scale) = policy_of(MIRROR, dtype=torch.float32), constants(None, torch.float32)
    x, noise = torch.randn(3000, OBSERVATIONS, requires_grad=True), torch.randn(3000, ACTIONS)
    found = []
    for count in (1, 2, 5):
        threads(count)
        actions = kernel_of(policy, shift, scale)(x, noise)
        found.append((actions, *torch.autograd.grad(actions.square().sum(), x)))
    assert all(a.equal(b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("mirror", [None, MIRROR], ids=["", "mirrored"])
def test_a_row_that_is_not_finite_spoils_no_other(mirror):
    kernel = kernel_of(policy_of(mirror), *constants(None))
    x, noise = (torch.randn(70, width, dtype=torch.float64) for width in (OBSERVATIONS, ACTIONS))
    broken = x.clone()
    broken[3, 2] = float("nan")
    ours, theirs = kernel(broken, noise), kernel(x, noise)
    assert ours[3].isnan().all()
    others = [row for row in range(70) if row != 3]
    assert ours[others].equal(theirs[others])


def test_weights_that_change_before_the_way_back_are_told():
    policy, (shift, scale) = policy_of(), constants(None)
    x = torch.randn(3, OBSERVATIONS, dtype=torch.float64, requires_grad=True)
    actions = kernel_of(policy, shift, scale)(x, torch.randn(3, ACTIONS, dtype=torch.float64))
    policy.network[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        actions.sum().backward()


@pytest.mark.parametrize(
    ("kind", "squash"), [("state_dependent", "tanh"), ("deterministic", "tanh"), ("gaussian", "clamp")]
)
def test_what_the_kernels_are_not_for(kind, squash):
    row = torch.zeros(OBSERVATIONS, dtype=torch.float64)
    assert kernel_of(policy_of(kind=kind, squash=squash), row, row) is None
    assert kernel_of(policy_of(), torch.zeros(()), torch.ones(())) is None, "observations that are not normalised"
