"""What processes that share nothing gain from more cores: the most that threads could.

python -m bench.apart                            1, 2, 4 ... processes up to all cores, 64 worlds each
python -m bench.apart --processes 1 8 16 --robot ant

Where two cores of a machine are two threads of one, or where its clock falls as more of them work, sixteen processes
do less than sixteen times the work of one.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Literal

import torch
import tyro

from bench.places import Place, up_to_all_cores
from bench.report import describe_machine, markdown_table
from bench.robots import ANT, HUMANOID
from bench.window import Window, measure
from trot.sim.load import load_model
from trot.sim.threads import cores

ROBOTS = {"ant": ANT, "humanoid": HUMANOID}
ENOUGH = 10**6
"""Repetitions: the seconds end them."""
SECONDS_FOR_KERNELS = 120.0
"""After which the others give up on a process that has not begun."""


@dataclass(frozen=True)
class ApartBenchSettings:
    """What to measure."""

    processes: tuple[int, ...] = ()
    """Counts of processes. Without any: 1, 2, 4 and so on up to all cores."""
    robot: Literal["ant", "humanoid"] = "humanoid"
    worlds: int = 64
    """Of each process, on one thread."""
    seconds: float = 4.0
    """How long they all work at once."""


def run_apart_bench(settings: ApartBenchSettings) -> None:
    """Measure and print."""
    counts = settings.processes or up_to_all_cores()
    print(describe_machine(None), f"{cores()} of them for this process", sep="; ", flush=True)
    rows: list[list[str]] = []
    first: tuple[float, float] | None = None
    for count in counts:
        forward, gradient = _together(settings, count)
        first = first or (forward, gradient)
        times = (count / counts[0] * before / now for before, now in zip(first, (forward, gradient), strict=True))
        rows.append([str(count), f"{forward:.1f}", f"{gradient:.1f}", *(f"{ratio:.2f}" for ratio in times)])
    head = ["processes", "forward ms", "with gradient ms", "work of the first row, times", "with gradient, times"]
    title = f"A window of {settings.worlds} {ROBOTS[settings.robot].name}s in each of so many processes"
    print(f"\n### {title}\n\n{markdown_table(head, rows)}", flush=True)


def _together(settings: ApartBenchSettings, count: int) -> tuple[float, float]:
    """Median ms over processes that work at the same time: forward, and with gradient."""
    fresh = get_context("spawn")
    # All begin when the last has its kernels.
    barrier, answers = fresh.Barrier(count), fresh.SimpleQueue()
    working = [fresh.Process(target=_work, args=(settings, barrier, answers)) for _ in range(count)]
    for process in working:
        process.start()
    for process in working:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"one of {count} processes ended with exit code {process.exitcode}")
    forward, gradient = zip(*(answers.get() for _ in working), strict=True)
    return statistics.median(forward), statistics.median(gradient)


def _work(settings: ApartBenchSettings, barrier: Barrier, answers: SimpleQueue[tuple[float, float]]) -> None:
    robot, cpu = ROBOTS[settings.robot], torch.device("cpu")
    window = Window.draw(robot, load_model(robot.file), settings.worlds, cpu)
    place = Place("one thread", cpu)
    measure(window, place, 1)
    barrier.wait(SECONDS_FOR_KERNELS)
    timing = measure(window, place, ENOUGH, settings.seconds)
    answers.put((timing.forward_ms, timing.gradient_ms))


if __name__ == "__main__":
    description = (__doc__ or "").partition("\n")[0]
    run_apart_bench(tyro.cli(ApartBenchSettings, prog="python -m bench.apart", description=description))
