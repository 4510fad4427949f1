"""A network with frozen weights by one kernel each way against PyTorch: by one CPU thread, and all on a GPU."""

import itertools
import sys

import pytest
import torch
import warp as wp
from small_shac import learner, run
from torch import nn

from trot.learn.frozen_network import (
    MOST_BYTES,
    PROGRAMS,
    TILE_ROWS,
    FrozenLayout,
    FrozenNetwork,
    NetworkShape,
    Surroundings,
    choose_layout,
    fitting_rows,
    kernels_of,
)
from trot.learn.members import weights_of
from trot.learn.networks import Critic, Linear, Policy, perceptron

HOPPER_GENERATION, PROCESSORS = 90, 132
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ANT, HUMANOID, MUSCLES, WIDE = (37, 128, 64, 32, 8), (76, 256, 128, 21), (71, 512, 256, 152), (76, 400, 200, 100, 21)


def moved(module, seed=0, size=0.1):
    """Away from scales of 1 and biases of 0."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += size * torch.randn_like(parameter)
    return module.requires_grad_(False)


def network_of(widths, seed=0, dtype=torch.float64, **how):
    torch.manual_seed(seed)
    return moved(perceptron(widths[0], widths[1:-1], widths[-1], **how).to(dtype), seed)


def frozen(network, rows=4, threads=256):
    found = FrozenNetwork(network, FrozenLayout(NetworkShape.of(network), rows, threads))
    found.refresh()
    return found


def both_ways(network, inputs, outputs_bar):
    inputs = inputs.detach().requires_grad_()
    outputs = network(inputs)
    (inputs_bar,) = torch.autograd.grad(outputs, inputs, outputs_bar)
    return outputs.detach(), inputs_bar


def assert_pytorchs(network, kernel, *shape):
    weight = next(network.parameters())
    inputs = torch.randn(*shape, network[0].weight.shape[-1], dtype=weight.dtype, device=weight.device)
    expected = network(inputs)
    outputs_bar = torch.randn_like(expected)
    outputs, inputs_bar = both_ways(kernel, inputs, outputs_bar)
    _, expected_bar = both_ways(network, inputs, outputs_bar)
    torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(inputs_bar, expected_bar, rtol=1e-11, atol=1e-11)
    with torch.no_grad():
        assert kernel(inputs).equal(outputs), "the same where nothing is kept for the adjoint"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ["elu", "silu", "relu"])
@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("members", [None, 3])
def test_values_and_derivatives_are_pytorchs(device, activation, layer_norm, members):
    how = {"activation": activation, "layer_norm": layer_norm, "members": members}
    network = network_of((11, 40, 33), **how).to(device)
    assert_pytorchs(network, frozen(network), *([members] if members else []), 10)


ODD_WIDTHS = [(37, 5), (3, 1, 2), (1, 7, 100, 33, 9), (6, 130, 1)]


@pytest.mark.parametrize(
    ("device", "widths", "rows"),
    [
        *[("cpu", widths, rows) for widths, rows in zip(ODD_WIDTHS, TILE_ROWS, strict=True)],
        *[pytest.param("cuda", *case, marks=pytest.mark.gpu) for case in itertools.product(ODD_WIDTHS, TILE_ROWS)],
    ],
    ids=str,
)
def test_widths_that_are_no_multiples_of_anything(device, widths, rows):
    network = network_of(widths).to(device)
    assert_pytorchs(network, frozen(network, rows), 37)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("widths", [ANT, HUMANOID, MUSCLES, WIDE], ids=str)
def test_networks_of_tasks(device, widths):
    network = network_of(widths).to(device)
    assert_pytorchs(network, frozen(network, 8), 13)


@pytest.mark.parametrize("threads", [64, 512])
def test_another_number_of_threads(threads):
    network = network_of((9, 70, 20, 3))
    assert_pytorchs(network, frozen(network, 16, threads), 40)


@pytest.mark.parametrize("device", DEVICES)
def test_weights_of_members_that_lie_side_by_side(device):
    """As a learner keeps them: a parameter's members are not neighbours."""
    network = network_of((9, 20, 12, 3), members=5).to(device)
    weights_of(network, 5)
    assert_pytorchs(network, frozen(network), 5, 7)
    inputs = torch.randn(7, 9, dtype=torch.float64, device=device)
    torch.testing.assert_close(frozen(network)(inputs), network(inputs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "state_dependent", "deterministic"])
@pytest.mark.parametrize("members", [None, 2])
def test_it_stands_in_for_a_policys_network(kind, members):
    torch.manual_seed(0)
    policy = moved(Policy(9, 4, (20, 12), kind, members=members).double())
    front = () if members is None else (members,)
    inputs, noise = torch.randn(*front, 6, 9).double(), torch.randn(*front, 6, 4).double()
    outputs_bar = torch.randn_like(noise)
    expected = both_ways(lambda rows: policy(rows, noise), inputs, outputs_bar)
    calls = []
    kernel = frozen(policy.network)

    def counted(rows):
        calls.append(rows)
        return kernel(rows)

    with policy.standing_in(counted):
        found = both_ways(lambda rows: policy(rows, noise), inputs, outputs_bar)
    assert len(calls) == 1
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    policy(inputs)
    assert len(calls) == 1, "afterwards the network is itself again"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("members", [None, 3])
def test_from_observations_to_actions(device, members):
    """Normalisation, network, noise and tanh in one kernel each way, with statistics and deviations of each member."""
    torch.manual_seed(0)
    policy = moved(Policy(9, 4, (20, 12), members=members).double()).to(device)
    front = () if members is None else (members,)
    observations, noise, shift, scale, bar = (
        torch.randn(*front, rows, width, dtype=torch.float64).to(device)
        for rows, width in ((7, 9), (7, 4), (1, 9), (1, 9), (7, 4))
    )
    kernel, around = frozen(policy.network), Surroundings.of(policy, shift, scale)
    found = both_ways(lambda rows: kernel.act(rows, noise, around), observations, bar)
    expected = both_ways(lambda rows: policy((rows - shift) * scale, noise), observations, bar)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)
    # And finite differences.
    step = 1e-6 * torch.randn_like(observations)
    with torch.no_grad():
        ahead, behind = (kernel.act(observations + sign * step, noise, around) for sign in (1, -1))
    assert ((ahead - behind) * bar).sum().item() / 2 == pytest.approx((found[1] * step).sum().item(), rel=1e-6)


@pytest.mark.parametrize(
    ("how", "known"),
    [
        ({}, True),
        ({"squash": "clamp"}, False),
        ({"kind": "state_dependent"}, False),
        ({"kind": "deterministic"}, False),
    ],
)
def test_which_policies_act_in_one_kernel(how, known):
    policy, row = Policy(9, 4, (20, 12), **how), torch.ones(9)
    assert (Surroundings.of(policy, row, row) is not None) is known
    assert Surroundings.of(policy, torch.zeros(()), torch.ones(())) is None, "observations that are not normalised"


@pytest.mark.parametrize("device", DEVICES)
def test_more_axes_in_front_are_rows(device):
    network = network_of((5, 8, 1)).to(device)
    assert_pytorchs(network, frozen(network), 3, 7)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ["elu", "silu"])
def test_activations_far_from_zero(device, activation):
    network = perceptron(1, (2,), 1, activation=activation, layer_norm=False).double()
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0], [0.5]]))
    network.requires_grad_(False).to(device)
    inputs = (
        torch.tensor([-1e4, -800.0, -40.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 40.0, 1e4]).double().unsqueeze(1).to(device)
    )
    ones = torch.ones_like(inputs)
    for one, other in zip(both_ways(frozen(network), inputs, ones), both_ways(network, inputs, ones), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("activation", ["elu", "silu", "relu"])
def test_a_number_that_is_not_finite_shows_in_its_own_row(activation):
    network = network_of((5, 8, 3), activation=activation)
    inputs = torch.randn(6, 5, dtype=torch.float64)
    inputs[2, 1] = torch.nan
    outputs, inputs_bar = both_ways(frozen(network), inputs, torch.ones(6, 3, dtype=torch.float64))
    for found in (outputs, inputs_bar):
        assert found[2].isnan().all() and found[[0, 1, 3, 4, 5]].isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("widths", [ANT, MUSCLES], ids=str)
def test_in_single_precision_to_its_rounding(device, widths):
    network = network_of(widths, dtype=torch.float32).to(device)
    kernel = frozen(network)
    inputs, outputs_bar = torch.randn(20, widths[0], device=device), torch.randn(20, widths[-1], device=device)
    found = both_ways(kernel, inputs, outputs_bar)
    exact = both_ways(network.double(), inputs.double(), outputs_bar.double())
    for one, other in zip(found, exact, strict=True):
        assert (one.double() - other).abs().max() < 2e-6 * other.abs().max()


def test_it_is_the_network_of_the_last_refresh():
    network = network_of((5, 8, 3))
    kernel, inputs = frozen(network), torch.randn(6, 5, dtype=torch.float64)
    before = kernel(inputs)
    moved(network, seed=1)
    assert kernel(inputs).equal(before)
    kernel.refresh()
    torch.testing.assert_close(kernel(inputs), network(inputs), rtol=1e-12, atol=1e-12)


def test_going_back_through_weights_that_are_gone_is_refused():
    kernel, inputs = frozen(network_of((5, 8, 3))), torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    outputs = kernel(inputs)
    kernel.refresh()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


def test_inputs_of_another_precision_are_refused():
    with pytest.raises(ValueError, match=r"inputs is .* torch\.float32 .* the kernel reads .* torch\.float64"):
        frozen(network_of((5, 8, 3)))(torch.randn(6, 5))


UNKNOWN = [
    nn.Linear(3, 2),
    nn.Sequential(Linear(3, 4), nn.Tanh(), Linear(4, 2)),
    nn.Sequential(Linear(3, 4), nn.ELU(alpha=2.0), Linear(4, 2)),
    nn.Sequential(Linear(3, 4), nn.ELU(), nn.ELU(), Linear(4, 2)),
    nn.Sequential(Linear(3, 4), nn.ELU(), Linear(4, 4), nn.SiLU(), Linear(4, 2)),
    nn.Sequential(Linear(3, 4, bias=False), nn.ELU(), Linear(4, 2)),
    nn.Sequential(Linear(3, 4), nn.ELU(), nn.LayerNorm(4, bias=False), Linear(4, 2)),
    nn.Sequential(Linear(3, 4), nn.ELU(), nn.LayerNorm(4), Linear(4, 4), nn.ELU(), Linear(4, 2)),
    nn.Sequential(Linear(3, 4), nn.ELU(), Linear(4, 2)).half(),
]


@pytest.mark.parametrize("network", UNKNOWN, ids=str)
def test_networks_that_stay_with_pytorch(network):
    assert NetworkShape.of(network) is None


def test_on_the_cpu_pytorch_does_it():
    assert FrozenNetwork.of(network_of((5, 8, 3)), 64) is None


@pytest.mark.parametrize(
    ("widths", "members", "rows", "tile"),
    [
        (ANT, 1, 64, 4),
        (ANT, 16, 64, 8),
        (ANT, 1, 2048, 16),
        (ANT, 16, 2048, 32),
        (MUSCLES, 1, 64, 4),
        (MUSCLES, 1, 4096, 16),
        (MUSCLES, 1, 8192, None),
        ((100, 1024, 1024, 20), 1, 64, None),
    ],
    ids=str,
)
def test_how_many_rows_a_tile_has(widths, members, rows, tile):
    layout = choose_layout(NetworkShape(widths, 0, True, 1e-5), torch.float32, members, rows, PROCESSORS)
    assert (None if layout is None else layout.rows) == tile


def test_layers_too_wide_for_a_block():
    shape = NetworkShape((3, 4000, 1), 0, True, 1e-5)
    assert shape.multiplications * 4 < MOST_BYTES and fitting_rows(shape, torch.float32) == []
    assert choose_layout(shape, torch.float32, 1, 4, PROCESSORS) is None


@pytest.mark.skipif(sys.platform == "darwin", reason="Warp has no CUDA compiler for macOS")
@pytest.mark.parametrize(
    ("widths", "normalized", "rows", "dtype"),
    [(ANT, True, 4, torch.float32), ((5, 7, 100, 33), False, 32, torch.float64)],
    ids=str,
)
def test_the_cuda_source_compiles(widths, normalized, rows, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(wp.config, "optimization_level", 1)
    kernels = kernels_of(FrozenLayout(NetworkShape(widths, 0, normalized, 1e-5), rows), dtype, torch.device("cpu"))
    module = kernels["run_network"].compiled.module
    (path,) = wp.compile_aot_module(module, arch=HOPPER_GENERATION, module_dir=tmp_path, use_ptx=True)
    source = path.read_text()
    assert all(f".entry {program}_" in source for program in PROGRAMS)
    assert "bar.sync" in source, "threads wait for each other"
    assert "atom.global.add.f" not in source, "sums have one order"


@pytest.mark.gpu
@pytest.mark.parametrize("members", [None, 4])
def test_a_captured_graph_gives_the_bits_of_eager_launches(members):
    network = network_of(ANT, dtype=torch.float32, members=members).cuda()
    front = () if members is None else (members,)
    inputs, outputs_bar = torch.randn(*front, 64, ANT[0]).cuda(), torch.randn(*front, 64, ANT[-1]).cuda()
    kernel = FrozenNetwork.of(network, 64)

    def run():
        kernel.refresh()
        return both_ways(kernel, inputs, outputs_bar)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        captured = run()
    for seed in range(3):
        moved(network, seed)
        inputs.normal_()
        eager = run()
        graph.replay()
        torch.cuda.synchronize()
        assert all(one.equal(other) for one, other in zip(captured, eager, strict=True))
        expected = both_ways(network, inputs, outputs_bar)
        for one, other in zip(eager, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_who_uses_it_on_cuda():
    assert FrozenNetwork.of(network_of(ANT, dtype=torch.float32).cuda(), 64) is not None
    assert FrozenNetwork.of(network_of((100, 1024, 1024, 20), dtype=torch.float32).cuda(), 64) is None


@pytest.mark.parametrize("algo", ["shac", "shac-mixed", "sapo", "rpo", "ahac"])
def test_a_learner_learns_the_same_by_it(algo):
    changes = {"shortest_horizon": 3} if algo == "ahac" else {}
    plain, by_kernel = (learner(algo=algo, **changes) for _ in range(2))
    by_kernel.frozen_policy = frozen(by_kernel.policy.network)
    if type(by_kernel.target_critic) is Critic:
        by_kernel.frozen_target = frozen(by_kernel.target_critic.network, 16)
    for one in (plain, by_kernel):
        run(one, 3)
    for (name, one), other in zip(plain.policy.named_parameters(), by_kernel.policy.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8, msg=name)
    torch.testing.assert_close(plain.metrics, by_kernel.metrics, rtol=1e-5, atol=1e-7, equal_nan=True)
