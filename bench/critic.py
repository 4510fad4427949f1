"""The fit of SHAC's critic by PyTorch's operations and by one kernel, on the same rows, both in captured CUDA graphs.

python -m bench.critic                                 one Ant, Humanoid and muscle Humanoid, and sixteen of each
python -m bench.critic --tasks ant --members 16
python -m bench.critic --device cpu --tasks ant --members 1 --passes 1 --repeats 1

Errors are of the weights after one fit, by the largest weight, against PyTorch's operations in float64.
"""

from __future__ import annotations

import copy
import statistics
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import tyro
from torch import Tensor, nn

from bench.report import describe_machine, gpu_name, markdown_table
from bench.window import timed
from trot.envs.registry import make_env
from trot.learn.algorithms import find_algorithm
from trot.learn.algorithms.shac_settings import ShacSettings
from trot.learn.critic_fit import PerceptronShape
from trot.learn.critic_fit_cuda import TILE_ROWS, CudaCriticFit, tile_rows
from trot.learn.members import in_rows, side_by_side, weights_of
from trot.learn.networks import Critic
from trot.learn.optimizer import Adam, MemberAdam, clip_, clip_members_
from trot.learn.train import choose_device

RATE, MAX_NORM = 1e-3, 1.0
HEAD = ["task", "members", "widths", "by", "rows of a tile", "blocks", "ms", "error", "same bits again"]


@dataclass(frozen=True)
class CriticBenchSettings:
    """What to measure."""

    tasks: tuple[str, ...] = ("ant", "humanoid", "muscle_humanoid")
    """Tasks by name, with the critic and the batches that are tuned for them."""
    members: tuple[int, ...] = (1, 16)
    """So many critics in one batch."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU. On the CPU the kernel is one thread: its errors tell, its time does not."""
    blocks: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Thread blocks that share a member, powers of two, besides the number that is chosen. Too many are left out."""
    passes: int = 16
    """Over the batches of a window."""
    repeats: int = 20
    """Fits of which the median time is printed."""


@dataclass
class Case:
    """A critic, its optimiser and a window of rows, as they are before each fit."""

    network: nn.Sequential
    optimizer: Adam | MemberAdam
    members: int | None
    inputs: Tensor
    targets: Tensor
    batches: int
    passes: int

    @classmethod
    def draw(cls, inputs: int, settings: ShacSettings, members: int, passes: int, device: str) -> Case:
        stacked = None if members == 1 else members
        torch.manual_seed(0)
        network = Critic(inputs, settings.critic_hidden, members=stacked).to(device).network
        shape = (() if stacked is None else (members,)) + (settings.horizon, settings.num_worlds)
        x, y = torch.randn(*shape, inputs, device=device), 3 * torch.randn(shape, device=device)
        return cls(network, _adam(network, stacked), stacked, x, y, settings.critic_batches, passes)

    def in_double(self) -> Case:
        network = copy.deepcopy(self.network).double()
        inputs, targets = self.inputs.double(), self.targets.double()
        return Case(network, _adam(network, self.members), self.members, inputs, targets, self.batches, self.passes)

    def state(self) -> list[Tensor]:
        """All that a fit changes."""
        return [*(parameter.detach() for parameter in self.network.parameters()), *self.optimizer.buffers()]

    def by_pytorch(self) -> None:
        """As Shac.fit_critic does it."""
        parameters = list(self.network.parameters())
        inputs, targets = self.inputs.chunk(self.batches, dim=-3), self.targets.chunk(self.batches, dim=-2)
        for _ in range(self.passes):
            for some, wanted in zip(inputs, targets, strict=True):
                error = in_rows(self.network, self.members, some).squeeze(-1) - wanted
                loss = error.square().mean(dim=(-2, -1))
                gradients = list(torch.autograd.grad(loss, parameters, torch.ones_like(loss)))
                if self.members is None:
                    clip_(gradients, MAX_NORM)
                else:
                    gradients = [side_by_side(gradients)]
                    clip_members_(gradients[0], MAX_NORM)
                self.optimizer.step(gradients)

    def kernel(self, rows: int | None, blocks: int | None) -> CudaCriticFit:
        shape = PerceptronShape.of(self.network)
        assert shape is not None
        return CudaCriticFit(list(self.network.parameters()), shape, self.optimizer, rows, blocks)


def _adam(network: nn.Module, members: int | None) -> Adam | MemberAdam:
    parameters = list(network.parameters())
    weights = weights_of(network, members)
    adam = Adam(parameters, (0.7, 0.95)) if members is None else MemberAdam(weights[0], parameters, (0.7, 0.95))
    adam.rate.fill_(RATE)
    return adam


def _captured(device: torch.device, action: Callable[[], object]) -> Callable[[], object]:
    """The action in a graph, after it has run once; as it is on the CPU."""
    side = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    if side is None:
        action()
        return action
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        action()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        action()
    return graph.replay


@dataclass(frozen=True)
class Fitted:
    """How long a fit takes, and what it makes of the same beginning."""

    milliseconds: float
    weights: list[Tensor]
    same_bits: bool


def _measure(case: Case, action: Callable[[], object], repeats: int) -> Fitted:
    state = case.state()
    before = [tensor.clone() for tensor in state]
    run = _captured(case.inputs.device, action)
    ends: list[list[Tensor]] = []
    for _ in range(2):
        for tensor, old in zip(state, before, strict=True):
            tensor.copy_(old)
        run()
        ends.append([tensor.clone() for tensor in state])
    same = all(one.equal(other) for one, other in zip(*ends, strict=True))
    times = [timed(case.inputs.device, run)[0] for _ in range(repeats)]
    for tensor, old in zip(state, before, strict=True):
        tensor.copy_(old)
    return Fitted(statistics.median(times), ends[0][: len(list(case.network.parameters()))], same)


def _error(found: list[Tensor], exact: list[Tensor]) -> float:
    apart = max(float((one - other).abs().max()) for one, other in zip(found, exact, strict=True))
    return apart / max(float(other.abs().max()) for other in exact)


def _measure_case(task: str, members: int, asked: CriticBenchSettings, device: str) -> list[list[str]]:
    settings = find_algorithm("shac").paper_settings(task)
    assert isinstance(settings, ShacSettings)
    inputs = make_env(task, 1, device).num_observations
    case = Case.draw(inputs, settings, members, asked.passes, device)
    batch_rows = settings.horizon * settings.num_worlds // settings.critic_batches
    widths = (inputs, *settings.critic_hidden, 1)
    exact = case.in_double()
    exact.by_pytorch()
    true = [parameter.detach() for parameter in exact.network.parameters()]
    named = [task, str(members), "-".join(str(width) for width in widths)]
    rows: list[list[str]] = []

    def add(by: str, tile: str, blocks: str, fitted: Fitted) -> None:
        error = f"{_error(fitted.weights, true):.1e}"
        rows.append([*named, by, tile, blocks, f"{fitted.milliseconds:.2f}", error, str(fitted.same_bits)])
        print(" ".join(rows[-1]), flush=True)

    add("PyTorch", "", "", _measure(case, case.by_pytorch, asked.repeats))
    chosen = tile_rows(widths, torch.float32)
    if chosen is None:
        print(f"{task}: {widths} do not fit: PyTorch fits this critic", flush=True)
        return rows
    # From few blocks, which hardly wait for each other, to many.
    _, best = (fit := case.kernel(None, None)).grid(fit.slots(batch_rows))
    choices = [(chosen, blocks) for blocks in sorted({*asked.blocks, best})]
    choices += [(tile, best) for tile in TILE_ROWS[torch.float32] if tile < chosen]
    same_tiles: list[list[Tensor]] = []
    for tile, blocks in choices:
        try:
            fit = case.kernel(tile, blocks)
            groups, shared_by = fit.grid(fit.slots(batch_rows))
            if blocks != shared_by:
                continue
            action = partial(fit, case.inputs, case.targets, case.batches, case.passes, MAX_NORM)
            fitted = _measure(case, action, asked.repeats)
            how = "kernel, as chosen" if (tile, blocks) == (chosen, best) else "kernel"
            add(how, str(fit.layout.rows), f"{groups} x {shared_by}", fitted)
            if tile == chosen:
                same_tiles.append(fitted.weights)
        except Exception:
            # The others are to be measured all the same.
            print(f"{task}, {members} members, tiles of {tile} rows, {blocks} blocks:\n{traceback.format_exc()}")
    equal = all(one.equal(other) for end in same_tiles for one, other in zip(end, same_tiles[0], strict=True))
    print(f"{task}, {members} members: the same bits with any number of blocks: {equal}", flush=True)
    return rows


def run_critic_bench(settings: CriticBenchSettings) -> None:
    """Measure and print."""
    device = choose_device(settings.device)
    print(describe_machine(gpu_name() if device.startswith("cuda") else None), flush=True)
    rows: list[list[str]] = []
    for task in settings.tasks:
        for members in settings.members:
            try:
                rows += _measure_case(task, members, settings, device)
            except Exception:
                print(f"{task}, {members} members:\n{traceback.format_exc()}", flush=True)
    print(f"\n{markdown_table(HEAD, rows)}")


if __name__ == "__main__":
    run_critic_bench(tyro.cli(CriticBenchSettings, description=__doc__))
