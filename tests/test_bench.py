"""What the benchmark reads from the kernels' headers, and the figures it works out from what it measured."""

from dataclasses import replace

from bench.report import Report, markdown_table, ratio_table, timing_table
from bench.stages import stage_names
from bench.window import Timing
from trot.sim.build import read_headers


def timing(place: str, worlds: int = 64, kept: float = 4.0, backward: float = 5.0) -> Timing:
    return Timing("Ant", place, worlds, 3.0, kept, backward, 1e6, 1e5, repetitions=5, finite_worlds=worlds)


def test_every_stage_that_the_kernels_time_has_a_name() -> None:
    names = stage_names()
    assert len(set(names)) == len(names)
    assert names[0] == "KINEMATICS"
    source = read_headers("entry.h")
    assert all(f"lap(clock, {name})" in source for name in names)


def test_table_is_markdown() -> None:
    table = markdown_table(["robot", "ms"], [["Ant", "1.0"], ["Hopper", "12.5"]])
    assert table.splitlines() == ["| robot  |   ms |", "| ------ | ---: |", "| Ant    |  1.0 |", "| Hopper | 12.5 |"]


def test_ratios_compare_within_a_place() -> None:
    timings = [
        timing("CPU, 1 thread"),
        timing("CUDA graph", kept=4.0, backward=6.0),
        timing("CUDA graph", worlds=1024, kept=6.0, backward=6.5),
    ]
    rows = ratio_table(Report("a machine", gpu=None, timings=timings)).splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells == [["Ant", "CPU, 1 thread", "1.25", ""], ["Ant", "CUDA graph", "1.50", "1.25"]]


def test_worlds_that_blew_up_are_told_below_the_times() -> None:
    sound = timing("CUDA", worlds=1024)
    assert timing_table([sound]).endswith("States and gradients were finite in every world of every row.")
    told = timing_table([sound, replace(timing("CUDA"), finite_worlds=61)]).splitlines()[-1]
    assert "NOT FINITE in 3 of 1,088 worlds" in told
