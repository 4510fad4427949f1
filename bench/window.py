"""Timing one window of 32 control steps: as a user calls it, and on CUDA also replayed from graphs without Python."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from bench.places import Place
from bench.robots import CONTROL_DT, CONTROL_STEPS, Robot, draw_controls, draw_start
from trot.sim.model import Model
from trot.sim.state import State
from trot.sim.step import step
from trot.sim.threads import set_num_threads

Result = TypeVar("Result")


@dataclass(frozen=True)
class Timing:
    """One window, as medians over its repetitions."""

    robot: str
    place: str
    worlds: int
    forward_ms: float
    """Without gradient."""
    kept_ms: float
    """Forward, keeping the trajectory for the backward pass."""
    backward_ms: float
    substeps_per_second: float
    """Physics substeps of all worlds, forward without gradient."""
    gradient_substeps_per_second: float
    """Physics substeps of all worlds, forward and backward."""
    repetitions: int
    finite_worlds: int
    """Worlds whose last state and whose gradients are all finite."""

    @property
    def gradient_ms(self) -> float:
        """Forward (kept) and backward."""
        return self.kept_ms + self.backward_ms


@dataclass(frozen=True)
class Window:
    """A robot at its start, with the controls of every control step."""

    robot: Robot
    model: Model
    start: State
    controls: list[Tensor]

    @classmethod
    def draw(cls, robot: Robot, model: Model, worlds: int, device: torch.device) -> Window:
        return cls(robot, model, draw_start(robot, model, worlds, device), draw_controls(model, worlds, device))

    def forward(self, controls: list[Tensor]) -> State:
        """The state after the last control step."""
        state = self.start
        for control in controls:
            state = step(self.model, state, control, CONTROL_DT, self.robot.substeps)
        return state

    def fresh_controls(self) -> list[Tensor]:
        """The controls as leaves that want a gradient and have no past: no sums, no stream remembered by autograd."""
        return [control.detach().clone().requires_grad_() for control in self.controls]


@dataclass(frozen=True)
class Sample:
    """One repetition, in milliseconds, and what came out of it."""

    forward: float
    kept: float
    backward: float
    end: State
    gradients: list[Tensor]


def measure(window: Window, place: Place, repeats: int, seconds: float = 2.0) -> Timing:
    """Median times of a window; of fewer repetitions where they take longer than `seconds`, but of one at least."""
    set_num_threads(place.threads)
    torch.set_num_threads(place.threads)
    repetition = GraphWindow(window).repetition if place.graph else lambda: _eager_repetition(window)
    # The first one loads kernels and memory; it is not counted.
    sample = repetition()
    times: list[tuple[float, float, float]] = []
    start = time.perf_counter()
    while len(times) < repeats and (not times or time.perf_counter() - start < seconds):
        sample = repetition()
        times.append((sample.forward, sample.kept, sample.backward))
    forward, kept, backward = (statistics.median(column) for column in zip(*times, strict=True))
    worlds = window.start.num_worlds
    substeps = worlds * window.robot.window_substeps
    return Timing(
        window.robot.name, place.name, worlds, forward, kept, backward,
        substeps_per_second=substeps / forward * 1e3,
        gradient_substeps_per_second=substeps / (kept + backward) * 1e3,
        repetitions=len(times),
        finite_worlds=_finite_worlds(sample),
    )  # fmt: skip


def timed(device: torch.device, action: Callable[[], Result]) -> tuple[float, Result]:
    """Milliseconds and result. On CUDA from event to event on the current stream, Python's gaps included."""
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        begin.record()
        result = action()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end), result
    start = time.perf_counter()
    result = action()
    return (time.perf_counter() - start) * 1e3, result


def _eager_repetition(window: Window) -> Sample:
    device = window.start.joint_q.device
    with torch.no_grad():
        forward, _ = timed(device, lambda: window.forward(window.controls))
    controls = window.fresh_controls()
    kept, end = timed(device, lambda: window.forward(controls))
    loss = end.joint_q.sum() + end.joint_qd.sum()
    backward, _ = timed(device, loss.backward)
    gradients = [control.grad for control in controls if control.grad is not None]
    return Sample(forward, kept, backward, end.detach(), gradients)


class GraphWindow:
    """A window captured in three CUDA graphs, so that each part can be timed: without gradient, forward, backward.

    Forward and backward share one pool: the trajectory lives there, written by one replay and read by the next. What
    the graphs read from outside it, they know by address only, so all of that is kept here.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.device = window.start.joint_q.device
        _warm_up(window, self.device)
        self.controls = window.fresh_controls()
        self.seeds = [torch.ones_like(window.start.joint_q), torch.ones_like(window.start.joint_qd)]
        self.forward, self.kept, self.backward = (torch.cuda.CUDAGraph() for _ in range(3))

        with torch.no_grad(), torch.cuda.graph(self.forward):
            self.forward_end = window.forward(window.controls)
        with torch.cuda.graph(self.kept):
            end = window.forward(self.controls)
        with torch.cuda.graph(self.backward, pool=self.kept.pool()):
            gradients = torch.autograd.grad([end.joint_q, end.joint_qd], self.controls, self.seeds)
        self.end, self.gradients = end.detach(), list(gradients)

    def repetition(self) -> Sample:
        """Replay the three in the order they were captured in."""
        forward, kept, backward = (
            timed(self.device, graph.replay)[0] for graph in (self.forward, self.kept, self.backward)
        )
        return Sample(forward, kept, backward, self.end, self.gradients)


def _warm_up(window: Window, device: torch.device) -> None:
    """Load kernels before a capture, on a side stream: work on the default stream would stand in the capture's way."""
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        with torch.no_grad():
            window.forward(window.controls)
        controls = window.fresh_controls()
        end = window.forward(controls)
        torch.autograd.grad(end.joint_q.sum() + end.joint_qd.sum(), controls)
    torch.cuda.current_stream(device).wait_stream(side)
    torch.cuda.synchronize(device)


def _finite_worlds(sample: Sample) -> int:
    assert len(sample.gradients) == CONTROL_STEPS
    finite = sample.end.finite
    for gradient in sample.gradients:
        finite = finite & gradient.isfinite().all(dim=1)
    return int(finite.sum())
