"""What more CPU threads bring: the hand-over of work, windows of physics, and an iteration of SHAC.

python -m bench.threads                          1, 2, 4 ... threads up to all cores; a minute and a half on 16
python -m bench.threads --threads 1 16 --worlds 64
python -m bench.threads --python                 beside them, threads that wake up in Python, as off Linux
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import tyro

from bench.places import Place, up_to_all_cores
from bench.report import describe_machine, markdown_table
from bench.robots import ANT, HOPPER, HUMANOID, Robot
from bench.window import Timing, Window, measure
from trot.learn.algorithms import find_algorithm
from trot.learn.iteration_time import IterationTime, measure_iterations
from trot.sim import crew, launch
from trot.sim.load import load_model
from trot.sim.step import Pass, Physics, prepare
from trot.sim.threads import cores, set_num_threads

CPU = torch.device("cpu")
SECONDS = 0.5
"""Repetitions of one window, after one that does not count."""
BLOCK = 16
"""Worlds that one thread steps together, in single precision."""


@dataclass(frozen=True)
class ThreadBenchSettings:
    """What to measure."""

    threads: tuple[int, ...] = ()
    """Counts of threads. Without any: 1, 2, 4 and so on up to all cores."""
    worlds: tuple[int, ...] = (64, 256, 1024)
    shac_worlds: int = 256
    """Humanoids of the iteration of SHAC; 0 leaves it out."""
    python: bool = False
    """Measure the most threads again where each wakes up in Python."""


@dataclass(frozen=True)
class Way:
    """So many threads, and how they hear of work."""

    threads: int
    python: bool = False

    @property
    def name(self) -> str:
        return f"{self.threads}, Python" if self.python else str(self.threads)

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Work is shared like this inside."""
        before = crew.HAS_CREW
        crew.HAS_CREW = before and not self.python
        set_num_threads(self.threads)
        try:
            yield
        finally:
            crew.HAS_CREW = before


def run_thread_bench(settings: ThreadBenchSettings) -> None:
    """Measure and print, one table after the other."""
    counts = settings.threads or up_to_all_cores()
    ways = [Way(count) for count in counts]
    if settings.python:
        ways.append(Way(max(counts), python=True))
    torch.set_num_threads(1)
    print(describe_machine(None), f"{cores()} of them for this process", sep="; ", flush=True)
    handed = [[way.name, *(f"{us:.0f}" for us in _hand_over(way))] for way in ways]
    _print_table("A step of one block of Hoppers for each thread, µs", ["threads", "at once", "after 2 ms"], handed)
    for robot in (ANT, HUMANOID):
        _print_windows(robot, ways, settings.worlds)
    if settings.shac_worlds:
        _print_iterations([way for way in ways if way.threads in (min(counts), max(counts))], settings.shac_worlds)


def _hand_over(way: Way) -> tuple[float, float]:
    """Median µs of a step that is hardly any work: steps one after the other, and steps with a pause before each."""
    model = load_model(HOPPER.file)
    state = model.default_state(BLOCK * way.threads)
    control = torch.zeros(state.num_worlds, model.num_controls)
    physics = Physics(prepare(model, state, 1, None)[1], 0.001, 1)

    def steps(count: int, pause: float) -> float:
        times = []
        for _ in range(count):
            if pause:
                time.sleep(pause)
            ran = Pass(physics, state.joint_q, state.joint_qd, control, None)
            start = time.perf_counter()
            ran.forward(keep=False)
            times.append(time.perf_counter() - start)
        return statistics.median(times) * 1e6

    worth = launch.WORTH_A_THREAD, launch.WORTH_A_PYTHON_THREAD
    launch.WORTH_A_THREAD = launch.WORTH_A_PYTHON_THREAD = 1
    try:
        with way.taken():
            steps(50, 0.0)
            return steps(2000, 0.0), steps(200, 0.002)
    finally:
        launch.WORTH_A_THREAD, launch.WORTH_A_PYTHON_THREAD = worth


def _print_windows(robot: Robot, ways: list[Way], worlds: tuple[int, ...]) -> None:
    model, rows = load_model(robot.file), []
    for count in worlds:
        window = Window.draw(robot, model, count, CPU)
        first: Timing | None = None
        for way in ways:
            print(f"{robot.name}, {count} worlds, {way.name} threads", file=sys.stderr, flush=True)
            with way.taken():
                timing = measure(window, Place(way.name, CPU, threads=way.threads), 5, SECONDS)
            first = first or timing
            times = (timing.forward_ms, timing.kept_ms, timing.backward_ms)
            ratios = (first.forward_ms / timing.forward_ms, first.gradient_ms / timing.gradient_ms)
            rows.append([
                str(count), way.name, *(f"{ms:.2f}" for ms in times), *(f"{ratio:.2f}" for ratio in ratios),
            ])  # fmt: skip
    torch.set_num_threads(1)
    head = ["worlds", "threads", "forward ms", "kept ms", "backward ms", "forward, times", "with gradient, times"]
    _print_table(f"{robot.name}: a window of 32 control steps, and times as fast as the first row", head, rows)


def _print_iterations(ways: list[Way], worlds: int) -> None:
    algorithm = find_algorithm("shac")
    settings = replace(algorithm.paper_settings("humanoid"), num_worlds=worlds)
    rows: list[list[str]] = []
    first: IterationTime | None = None
    for way in ways:
        print(f"SHAC, {way.name} threads", file=sys.stderr, flush=True)
        with way.taken():
            found = measure_iterations(algorithm, "humanoid", settings, "cpu", 5)
        first = first or found
        parts = [f"{ms:.1f}" for ms in (*found.phases.values(), found.total)]
        rows.append([way.name, *parts, f"{first.total / found.total:.2f}"])
    assert first is not None, "there is at least one number of threads"
    head = ["threads", *first.phases, "iteration", "times"]
    _print_table(f"One iteration of SHAC, {worlds} Humanoids, ms", head, rows)


def _print_table(title: str, head: list[str], rows: list[list[str]]) -> None:
    print(f"\n### {title}\n\n{markdown_table(head, rows)}", flush=True)


if __name__ == "__main__":
    description = (__doc__ or "").partition("\n")[0]
    run_thread_bench(tyro.cli(ThreadBenchSettings, prog="python -m bench.threads", description=description))
