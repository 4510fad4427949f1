"""CUDA's fit of a critic against PyTorch's autograd and Adam: its arithmetic by one CPU thread, and all on a GPU."""

import copy
import sys

import pytest
import torch
import warp as wp
from small_critic import BETAS, assert_same, by_pytorch, critic_of, window

from trot.learn.critic_fit import PerceptronShape
from trot.learn.critic_fit_cuda import MOST_WORK, PROGRAM, CudaCriticFit, TileLayout, kernel_of, tile_rows
from trot.learn.members import weights_of
from trot.learn.networks import perceptron
from trot.learn.optimizer import Adam, MemberAdam

HOPPER_GENERATION = 90
# Layers that fill whole tiles and some that leave remainders, more and fewer of them; rows of a tile.
NETWORKS = [(37, (64, 64), 64), (5, (7, 100, 33), 16), (16, (16,), 8), (76, (128, 128), 32)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def adam_of(network, members=None, rate=0.5**8):
    parameters = list(network.parameters())
    adam = (
        Adam(parameters, BETAS) if members is None else MemberAdam(weights_of(network, members)[0], parameters, BETAS)
    )
    # A power of two, because the rate is kept in float32.
    adam.rate.fill_(rate)
    return adam


def fit_of(network, adam, rows=None, blocks=None):
    return CudaCriticFit(list(network.parameters()), PerceptronShape.of(network), adam, rows, blocks)


def everything(network, adam):
    return [*(parameter.detach().clone() for parameter in network.parameters()), *(b.clone() for b in adam.buffers())]


def same(first, second):
    return all(one.equal(other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("inputs", "hidden", "tile"), NETWORKS)
@pytest.mark.parametrize("rows", [4 * 64, 4 * 29])
@pytest.mark.parametrize("largest", [0.3, 1e6])
def test_a_fit_is_pytorchs_own(device, inputs, hidden, tile, rows, largest):
    ours = critic_of(inputs, hidden).to(device)
    theirs = copy.deepcopy(ours)
    if device == "cuda":
        tile = tile_rows((inputs, *hidden, 1), torch.float64)
    adam = adam_of(ours)
    reference = torch.optim.Adam(theirs.parameters(), lr=0.5**8, betas=BETAS)
    fit = fit_of(ours, adam, tile)
    for _ in range(2):
        x, y = (part.to(device) for part in window(inputs, rows))
        loss = fit(x, y, 4, 3, largest)
        assert loss.item() == pytest.approx(by_pytorch(theirs, reference, x, y, 4, 3, largest), rel=1e-12)
    assert adam.steps == 2 * 4 * 3
    assert_same(ours, adam, theirs, reference)


@pytest.mark.parametrize("device", DEVICES)
def test_in_single_precision_to_its_rounding(device):
    ours = critic_of(37, (64, 64), dtype=torch.float32).to(device)
    exact = copy.deepcopy(ours).double()
    x, y = (part.to(device) for part in window(37, 512, dtype=torch.float32))
    single = fit_of(ours, adam_of(ours, rate=1e-3))(x, y, 4, 4, 1.0)
    double = fit_of(exact, adam_of(exact, rate=1e-3))(x.double(), y.double(), 4, 4, 1.0)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=0)
    for one, other in zip(ours.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=2e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_elu_far_from_zero(device):
    """e^x underflows there, and must not lose the slope."""
    network = perceptron(1, (2,), 1).double()
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0], [0.5]]))
        network[-1].weight.copy_(torch.tensor([[1.0, -2.0]]))
    network.to(device)
    x = torch.tensor([-1e4, -800.0, -40.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 1e4]).double().unsqueeze(1).to(device)
    y = torch.zeros(len(x), dtype=torch.float64, device=device)
    # Adam's mean after a first step of rate 0, from which nothing is clipped.
    adam = adam_of(network, rate=0.0)
    fit_of(network, adam)(x, y, 1, 1, torch.inf)
    loss = torch.nn.functional.mse_loss(network(x).squeeze(-1), y)
    gradient = torch.autograd.grad(loss, list(network.parameters()))
    for one, other in zip(adam.moments()[0], gradient, strict=True):
        torch.testing.assert_close(one / (1 - BETAS[0]), other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_each_member_is_fitted_alone(device):
    members, inputs, hidden = 3, 9, (20, 12)
    together = critic_of(inputs, hidden, members=members).to(device)
    parameters = list(together.parameters())
    alone = [critic_of(inputs, hidden).to(device) for _ in range(members)]
    with torch.no_grad():
        for member, network in enumerate(alone):
            for own, all_of_them in zip(network.parameters(), parameters, strict=True):
                own.copy_(all_of_them[member])
    adam = adam_of(together, members)
    rates, largest = (torch.tensor(each, device=device) for each in ([0.5**7, 0.0, 0.5**9], [0.2, 1.0, 1e6]))
    adam.rate.copy_(rates)
    x, y = (part.to(device) for part in window(inputs, 4 * 40, members))
    losses = fit_of(together, adam)(x, y, 4, 2, largest)
    assert adam.steps.tolist() == [8, 8, 8]
    for member, network in enumerate(alone):
        single = adam_of(network, rate=float(rates[member]))
        loss = fit_of(network, single)(x[member], y[member], 4, 2, float(largest[member]))
        assert loss == losses[member]
        assert same(list(network.parameters()), [one[member] for one in parameters])
        for one, other in zip(single.moments(), adam.moments(), strict=True):
            assert same(one, [moment[member] for moment in other])


@pytest.mark.parametrize("where", ["inputs", "targets"])
def test_a_number_that_is_not_finite_shows(where):
    network = critic_of(5, (8, 8))
    x, y = window(5, 70)
    (x if where == "inputs" else y)[3] = torch.nan
    assert fit_of(network, adam_of(network))(x, y, 1, 1, 1.0).isnan()
    assert all(parameter.isnan().all() for parameter in network.parameters())


def test_rows_that_no_batch_would_have_are_refused():
    network = critic_of(5, (8,))
    with pytest.raises(ValueError, match="70 rows do not split into 4 batches"):
        fit_of(network, adam_of(network))(*window(5, 70), 4, 1, 1.0)


def test_inputs_of_another_precision_are_refused():
    network = critic_of(5, (8,))
    with pytest.raises(ValueError, match=r"inputs is .* torch\.float32 .* the kernel reads .* torch\.float64"):
        fit_of(network, adam_of(network))(*window(5, 70, dtype=torch.float32), 1, 1, 1.0)


@pytest.mark.parametrize(
    ("inputs", "hidden", "rows"),
    [(37, (64, 64), 64), (76, (128, 128), 32), (71, (256, 256), 16), (71, (400, 200, 100), None), (37, (), None)],
)
def test_how_many_rows_fit_and_which_networks_stay_with_pytorch(inputs, hidden, rows):
    assert tile_rows((inputs, *hidden, 1), torch.float32) == rows


def test_on_the_cpu_another_one_fits():
    network = critic_of(5, (8,))
    assert CudaCriticFit.of(network, adam_of(network), 70) is None


@pytest.mark.skipif(sys.platform == "darwin", reason="Warp has no CUDA compiler for macOS")
@pytest.mark.parametrize(
    ("widths", "dtype"), [((37, 64, 64, 1), torch.float32), ((5, 7, 100, 33, 1), torch.float64)], ids=str
)
def test_the_cuda_source_compiles(widths, dtype, tmp_path):
    kernel = kernel_of(TileLayout(widths, tile_rows(widths, dtype)), dtype, torch.device("cpu"))
    module = kernel.compiled.module
    (path,) = wp.compile_aot_module(module, arch=HOPPER_GENERATION, module_dir=tmp_path, use_ptx=True)
    source = path.read_text()
    assert f".entry {PROGRAM}_" in source
    assert "bar.sync" in source and "ld.acquire.gpu" in source, "threads and blocks wait for each other"
    assert "ld.global.nc" not in source, "weights that another block wrote must not come from a read-only cache"
    assert "atom.global.add.f" not in source, "sums have one order"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("inputs", "hidden", "members"), [(37, (64, 64), None), (76, (128, 128), 5), (53, (256, 256), 2)]
)
def test_the_same_bits_with_any_number_of_blocks_again_and_again(inputs, hidden, members):
    x, y = (part.cuda() for part in window(inputs, 4 * 500, *([members] if members else []), dtype=torch.float32))
    found = []
    for blocks in (None, None, None, 1, 2, 4, 8):
        network = critic_of(inputs, hidden, dtype=torch.float32, members=members).cuda()
        adam = adam_of(network, members)
        loss = fit_of(network, adam, blocks=blocks)(x, y, 4, 16, 1.0)
        found.append([loss, *everything(network, adam)])
    assert all(same(found[0], other) for other in found[1:])


@pytest.mark.gpu
def test_more_members_than_multiprocessors_are_fitted_in_turn():
    members = torch.cuda.get_device_properties(0).multi_processor_count + 3
    network = critic_of(5, (8,), members=members).cuda()
    alone = critic_of(5, (8,)).cuda()
    with torch.no_grad():
        for own, all_of_them in zip(alone.parameters(), network.parameters(), strict=True):
            own.copy_(all_of_them[-1])
    x, y = (part.cuda() for part in window(5, 4 * 70, members))
    fit_of(network, adam_of(network, members))(x, y, 4, 2, 1.0)
    fit_of(alone, adam_of(alone))(x[-1], y[-1], 4, 2, 1.0)
    assert same(list(alone.parameters()), [parameter[-1] for parameter in network.parameters()])


@pytest.mark.gpu
def test_a_captured_graph_gives_the_bits_of_eager_launches():
    x, y = (part.cuda() for part in window(37, 4 * 512, dtype=torch.float32))
    eager, captured = (critic_of(37, (64, 64), dtype=torch.float32).cuda() for _ in range(2))
    adams = [adam_of(network) for network in (eager, captured)]
    fits = [fit_of(network, adam) for network, adam in zip((eager, captured), adams, strict=True)]
    before = [tensor.clone() for tensor in everything(captured, adams[1])]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fits[1](x, y, 4, 16, 1.0)
    torch.cuda.synchronize()
    with torch.no_grad():
        for tensor, old in zip([*captured.parameters(), *adams[1].buffers()], before, strict=True):
            tensor.copy_(old)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        graph_loss = fits[1](x, y, 4, 16, 1.0)
    for _ in range(3):
        loss = fits[0](x, y, 4, 16, 1.0)
        graph.replay()
        torch.cuda.synchronize()
        assert loss.equal(graph_loss)
        assert same(everything(eager, adams[0]), everything(captured, adams[1]))


@pytest.mark.gpu
def test_who_uses_it_on_cuda():
    network = critic_of(37, (64, 64), dtype=torch.float32).cuda()
    adam, small = adam_of(network), 512
    assert CudaCriticFit.of(network, adam, small) is not None
    assert CudaCriticFit.of(network, adam, MOST_WORK) is None
    wide = critic_of(76, (400, 200, 100), dtype=torch.float32).cuda()
    assert CudaCriticFit.of(wide, adam_of(wide), small) is None
