"""A policy's network with frozen weights by PyTorch's operations and by one kernel each way, in captured CUDA graphs.

python -m bench.policy                                 the tuned policies of Ant, Humanoid and muscle Humanoid
python -m bench.policy --tasks ant --rows 64 --members 1 16
python -m bench.policy --device cpu --tasks ant --rows 64 --members 1 --tiles 4 --repeats 1

A graph has 32 calls, as a window has steps. Microseconds are of one call. Errors are by the largest number, against
PyTorch's operations in float64.
"""

from __future__ import annotations

import copy
import statistics
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import tyro
from torch import Tensor, nn

from bench.report import describe_machine, gpu_name, markdown_table
from bench.window import timed
from trot.envs.registry import make_env
from trot.learn.algorithms import find_algorithm
from trot.learn.algorithms.shac_settings import ShacSettings
from trot.learn.frozen_network import TILE_ROWS, FrozenLayout, FrozenNetwork, NetworkShape, choose_layout, fitting_rows
from trot.learn.members import weights_of
from trot.learn.train import choose_device

CALLS, MOST_ROWS, H200_PROCESSORS = 32, 16_384, 132
HEAD = ["task", "members", "rows of each", "widths", "by", "rows of a tile", "threads", "forward, us", "adjoint, us",
        "copy, us", "error forward", "error adjoint", "same bits again"]  # fmt: skip

Call = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class PolicyBenchSettings:
    """What to measure."""

    tasks: tuple[str, ...] = ("ant", "humanoid", "muscle_humanoid")
    """Tasks by name, with the policy that is tuned for them."""
    rows: tuple[int, ...] = (64, 256, 1024, 4096)
    """Of each member. More than 16384 in all are left out."""
    members: tuple[int, ...] = (1, 16)
    """So many policies in one batch."""
    tiles: tuple[int, ...] = TILE_ROWS
    """Rows of a tile, besides those that are chosen. Too many are left out."""
    more_threads: bool = False
    """Measure blocks of 512 threads too, for tiles of 4 rows. For layers of 400, 200 and 100 a block has too few
    registers for so many, and the launch fails."""
    device: str = "auto"
    """auto takes CUDA where there is a GPU. On the CPU the kernel is one thread: its errors tell, its time does not."""
    repeats: int = 20
    """Replays of which the median time is printed."""


@dataclass
class Case:
    """A network, and what goes into its calls and back."""

    network: nn.Sequential
    inputs: list[Tensor]
    outputs_bar: list[Tensor]

    @classmethod
    def draw(cls, task: str, members: int, rows: int, device: str) -> Case:
        settings = find_algorithm("shac").paper_settings(task)
        assert isinstance(settings, ShacSettings)
        stacked = None if members == 1 else members
        torch.manual_seed(0)
        policy = settings.agent(make_env(task, 1, device)).make_policy(stacked).to(device)
        # As a learner keeps them.
        weights_of(policy, stacked)
        network = policy.network.requires_grad_(False)
        front = (rows,) if stacked is None else (members, rows)
        first, last = network[0].weight, network[-1].weight
        assert isinstance(first, Tensor) and isinstance(last, Tensor)
        widths = first.shape[-1], last.shape[-2]
        inputs, bars = (
            [torch.randn(*front, width, device=device) for _ in range(CALLS)] for width in widths
        )  # fmt: skip
        return cls(network, [tensor.requires_grad_() for tensor in inputs], bars)

    def forward(self, call: Call) -> list[Tensor]:
        return [call(tensor) for tensor in self.inputs]

    def adjoint(self, outputs: list[Tensor]) -> list[Tensor]:
        """From the last call to the first, as through a window. The graph is kept for another time."""
        calls = list(zip(outputs, self.inputs, self.outputs_bar, strict=True))
        found = [torch.autograd.grad(one, of, bar, retain_graph=True)[0] for one, of, bar in reversed(calls)]
        return found[::-1]

    def in_double(self) -> Case:
        """Its first and last call."""
        inputs, bars = ([tensors[0], tensors[-1]] for tensors in (self.inputs, self.outputs_bar))
        return Case(
            copy.deepcopy(self.network).double(),
            [tensor.detach().double().requires_grad_() for tensor in inputs],
            [tensor.double() for tensor in bars],
        )


class Captured:
    """Actions in graphs that share their memory, after they have run once; as they are on the CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.on_cuda = device, device.type == "cuda"
        if self.on_cuda:
            self._side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, action: Callable[[], object]) -> None:
        if not self.on_cuda:
            return
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side):
            action()
        torch.cuda.synchronize(self.device)

    def capture(self, action: Callable[[], list[Tensor]]) -> tuple[Callable[[], object], list[Tensor]]:
        """What repeats it, and where its results are after that."""
        if not self.on_cuda:
            found = action()

            def again() -> None:
                for old, new in zip(found, action(), strict=True):
                    old.data.copy_(new.detach())

            return again, found
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._side):
            found = action()
        return graph.replay, found


@dataclass(frozen=True)
class Measured:
    """A call's microseconds, and what comes out of the first and the last."""

    forward: float
    adjoint: float
    outputs: list[Tensor]
    inputs_bar: list[Tensor]
    same_bits: bool


def _measure(case: Case, call: Call, repeats: int) -> Measured:
    device = case.inputs[0].device
    captured = Captured(device)
    captured.warm_up(lambda: case.adjoint(case.forward(call)))
    forward, outputs = captured.capture(lambda: case.forward(call))
    adjoint, inputs_bar = captured.capture(lambda: case.adjoint(outputs))
    ends: list[list[Tensor]] = []
    for _ in range(2):
        forward()
        adjoint()
        ends.append([tensor.detach().clone() for tensor in (*outputs, *inputs_bar)])
    same = all(one.equal(other) for one, other in zip(*ends, strict=True))
    times: list[list[float]] = [[], []]
    for _ in range(repeats):
        for taken, action in zip(times, (forward, adjoint), strict=True):
            taken.append(timed(device, action)[0])
    there, back = (statistics.median(taken) * 1e3 / CALLS for taken in times)
    first = ends[0]
    return Measured(there, back, [first[0], first[CALLS - 1]], [first[CALLS], first[-1]], same)


def _copy_time(frozen: FrozenNetwork, repeats: int) -> float:
    def copies() -> list[Tensor]:
        for _ in range(CALLS):
            frozen.refresh()
        return []

    captured = Captured(frozen.device)
    captured.warm_up(copies)
    run, _ = captured.capture(copies)
    return statistics.median(timed(frozen.device, run)[0] for _ in range(repeats)) * 1e3 / CALLS


def _error(found: list[Tensor], exact: list[Tensor]) -> str:
    apart = max(float((one - other).abs().max()) for one, other in zip(found, exact, strict=True))
    return f"{apart / max(float(other.abs().max()) for other in exact):.1e}"


def _measure_case(task: str, members: int, rows: int, asked: PolicyBenchSettings, device: str) -> list[list[str]]:
    case = Case.draw(task, members, rows, device)
    shape = NetworkShape.of(case.network)
    assert shape is not None
    exact = case.in_double()
    true = exact.forward(exact.network)
    true_bar = exact.adjoint(true)
    true = [tensor.detach() for tensor in true]
    named = [task, str(members), str(rows), "-".join(str(width) for width in shape.widths)]
    table: list[list[str]] = []

    def add(by: list[str], copying: str, found: Measured) -> None:
        times = [f"{found.forward:.2f}", f"{found.adjoint:.2f}", copying]
        errors = [_error(found.outputs, true), _error(found.inputs_bar, true_bar)]
        table.append([*named, *by, *times, *errors, str(found.same_bits)])
        print(" ".join(table[-1]), flush=True)

    add(["PyTorch", "", ""], "", _measure(case, case.network, asked.repeats))
    processors = H200_PROCESSORS
    if device.startswith("cuda"):
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    chosen = choose_layout(shape, torch.float32, members, rows, processors)
    if chosen is None:
        print(f"{task}, {members} x {rows} rows: PyTorch's operations would be chosen", flush=True)
    fitting = fitting_rows(shape, torch.float32)
    layouts = [FrozenLayout(shape, tile) for tile in fitting if tile in asked.tiles or (chosen and tile == chosen.rows)]
    if asked.more_threads and 4 in fitting_rows(shape, torch.float32, 512):
        layouts.append(replace(FrozenLayout(shape, 4), threads=512))
    for layout in layouts:
        try:
            frozen = FrozenNetwork(case.network, layout)
            frozen.refresh()
            found = _measure(case, frozen, asked.repeats)
            by = "kernel, as chosen" if layout == chosen else "kernel"
            add([by, str(layout.rows), str(layout.threads)], f"{_copy_time(frozen, asked.repeats):.2f}", found)
        except Exception:
            # The others are to be measured all the same.
            print(f"{task}, {members} x {rows} rows, {layout}:\n{traceback.format_exc()}", flush=True)
    return table


def run_policy_bench(settings: PolicyBenchSettings) -> None:
    """Measure and print."""
    device = choose_device(settings.device)
    print(describe_machine(gpu_name() if device.startswith("cuda") else None), flush=True)
    table: list[list[str]] = []
    for task in settings.tasks:
        for members in settings.members:
            for rows in settings.rows:
                if members * rows > MOST_ROWS:
                    continue
                try:
                    table += _measure_case(task, members, rows, settings, device)
                except Exception:
                    print(f"{task}, {members} x {rows} rows:\n{traceback.format_exc()}", flush=True)
    print(f"\n{markdown_table(HEAD, table)}")


if __name__ == "__main__":
    run_policy_bench(tyro.cli(PolicyBenchSettings, description=__doc__))
