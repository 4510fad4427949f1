"""What the benchmark reads from other programs' output and from the kernels' headers."""

import pytest

from bench.peers import PrototypeTiming, parse_prototype
from bench.report import Report, markdown_table
from bench.requirements import requirements
from bench.stages import stage_names
from bench.window import Timing
from trot.sim.build import read_headers

PROTOTYPE_OUTPUT = """\
ant       cpu   N lanes=1 aos shared=0 storeL=1 threads=1 envs=64 load=0.1s | z 0.654 finite True,True |g| 4.23e-02
   episode 32x16 wall: fwd     7.0 fwd+save     8.8 bwd    10.4 ms (cpu 7/9/10) | substep, all envs:   13.6 us
"""


def timing(place: str, worlds: int = 64, kept: float = 4.0, backward: float = 5.0) -> Timing:
    return Timing("Ant", place, worlds, 3.0, kept, backward, 1e6, 1e5, repetitions=5, finite_worlds=worlds)


def test_prototype_milliseconds_are_read_from_its_line() -> None:
    assert parse_prototype(PROTOTYPE_OUTPUT) == (7.0, 8.8, 10.4)


def test_output_without_milliseconds_is_shown() -> None:
    with pytest.raises(ValueError, match="Segmentation fault"):
        parse_prototype("Segmentation fault")


def test_prototype_is_compared_at_its_quicker_way() -> None:
    compared = PrototypeTiming("Ant", "CPU, 1 thread", (6.0, 9.0, 12.0), (5.0, 9.0, 6.0), (4.0, 8.0, 8.0))
    assert compared.ratios == (1.2, 1.0, 2.0)


def test_every_stage_that_the_kernels_time_has_a_name() -> None:
    names = stage_names()
    assert len(set(names)) == len(names)
    assert names[0] == "KINEMATICS"
    source = read_headers("entry.h")
    assert all(f"lap(clock, {name})" in source for name in names)


def test_table_is_markdown() -> None:
    table = markdown_table(["robot", "ms"], [["Ant", "1.0"], ["Hopper", "12.5"]])
    assert table.splitlines() == ["| robot  |   ms |", "| ------ | ---: |", "| Ant    |  1.0 |", "| Hopper | 12.5 |"]


def test_only_what_was_measured_is_required() -> None:
    assert requirements(Report("a machine", gpu=None)) == []


def test_gpu_requirements_stand_for_their_own_gpu() -> None:
    timings = [timing("CUDA graph"), timing("CUDA graph", worlds=1024, kept=6.0, backward=6.0)]
    on_h200 = requirements(Report("a machine", "NVIDIA H200", timings))
    kept = {row.measured: row.ok for row in on_h200 if "H200" in row.what}
    assert kept == {"4.0 / 5.0": True, "1.33": False}
    assert not any("H200" in row.what for row in requirements(Report("a machine", "another GPU", timings)))
