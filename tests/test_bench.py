"""What the benchmark reads from the kernels' headers, and the figures it works out from what it measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.apart import ApartBenchSettings, run_apart_bench
from bench.census import CensusSettings, reason_kind, run_census
from bench.every_kernel import EveryKernelSettings, run_every_kernel
from bench.report import Report, markdown_table, ratio_table, timing_table
from bench.scale import (
    Batch,
    Measured,
    ScaleBenchSettings,
    how_many_fit,
    run_scale_bench,
    scale_table,
    told,
)
from bench.scale_child import measure
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


# Large batches.

GIB = 2**30


def batch(worlds: int, rate: float, gib: float, members: int | None = None) -> Measured:
    return Measured(Batch("ant", worlds, members), True, 100.0, rate, int(gib * GIB))


def test_how_many_worlds_fit_by_the_two_largest_batches() -> None:
    # 1 GiB for 512 worlds more; 90 % of 20 GiB leave room for 15 GiB on top of the 3 GiB.
    known = [batch(64, 1.0, 2.5), batch(512, 2.0, 3.0), batch(1024, 3.0, 4.0)]
    assert how_many_fit(known, 20 * GIB) == 512 + 15 * 512
    assert how_many_fit([*known, Measured(Batch("ant", 10**6), fits=False)], 20 * GIB) == 512 + 15 * 512
    assert how_many_fit([*known[:2], batch(64, 3.0, 4.0, members=16)], 20 * GIB) == 512 + 15 * 512
    assert how_many_fit(known[:1], 20 * GIB) is None
    assert how_many_fit([known[0], batch(64, 1.0, 2.5, members=1)], 20 * GIB) is None
    assert how_many_fit([batch(64, 1.0, 2.5), batch(128, 1.0, 2.5)], 20 * GIB) is None


def test_where_more_worlds_stop_paying_is_told_and_what_does_not_fit() -> None:
    measured = [batch(64, 1e5, 1.0), batch(256, 3.7e5, 1.5), batch(1024, 4e5, 3.5), batch(64, 9e5, 2.0, members=16)]
    # Members are other runs: their rate is none that more worlds could reach.
    assert told(measured, 10 * GIB) == "90% of the highest rate is reached with 256 worlds."
    lines = told([*measured, Measured(Batch("ant", 65536), fits=False)], 10 * GIB).splitlines()
    assert lines[1:] == ["ant, 65,536 worlds do not fit into 10 GiB; about 3,136 in all would."]
    assert "the most that was tried" in told(measured[:2], 10 * GIB)
    assert told([Measured(Batch("ant", 64, 4), fits=False)], GIB) == (
        "ant, 4 x 64 worlds do not fit into 1 GiB; fewer are to be tried."
    )
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in scale_table(measured[2:]).splitlines()]
    assert cells[2:] == [
        ["1", "1", "1,024", "100.0", "400,000", "400,000", "3.50"],
        ["1", "16", "64", "100.0", "900,000", "56,250", "2.00"],
    ]


def test_a_batch_is_measured_in_a_process_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    run_scale_bench(ScaleBenchSettings(("cartpole",), worlds=(4,), members=(), device="cpu", iterations=1))
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    ((_, _, worlds, milliseconds, rate, *_),) = ([cell.strip() for cell in row] for row in rows)
    # 32 steps in each of four worlds.
    assert worlds == "4"
    assert float(rate.replace(",", "")) == pytest.approx(32 * 4 / float(milliseconds) * 1e3, rel=0.01)


def test_mistakes_and_too_many_worlds_are_no_surprise(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="worlds must be at least 1, not 0"):
        run_scale_bench(ScaleBenchSettings(worlds=(64, 0), device="cpu"))
    # The limit is for the process of its own alone.
    monkeypatch.setattr("bench.scale_child._limit_memory", lambda: None)
    found = measure("cartpole", "shac", "cpu", worlds=10**9, members=None, iterations=1)
    assert found == {"fits": False}


# Processes that share nothing, and every kernel once.


def test_the_work_of_processes_is_that_of_one_times_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    run_apart_bench(ApartBenchSettings((1, 2), robot="ant", worlds=1, seconds=0.1))
    rows = [line.strip("|").split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("|")][2:]
    (one, alone, _, *first), (two, beside, _, *second) = ([float(cell) for cell in row] for row in rows)
    assert (one, two, first) == (1, 2, [1, 1])
    assert second[0] == pytest.approx(2 * alone / beside, rel=0.1)


def test_every_kernel_runs_and_what_is_not_finite_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = EveryKernelSettings(("hopper",), ("cartpole",), substeps=1, device="cpu")
    run_every_kernel(settings)
    assert capsys.readouterr().out == "1 robots and 1 tasks ran on cpu\n"
    monkeypatch.setattr("bench.every_kernel.CONTROL_DT", 1e30)
    with pytest.raises(RuntimeError, match=r"hopper: its .* is not finite"):
        run_every_kernel(settings)


# The census.

ROBOT = (
    "<mujoco><worldbody><body><joint axis='0 1 0'/><geom size='0.1' pos='0.3 0 0'/>"
    "<body pos='1 0 0'><joint/><geom size='0.1'/></body></body></worldbody></mujoco>"
)
INERTIAL = "<mass value='1'/><inertia ixx='1' iyy='1' izz='1' ixy='0' ixz='0' iyz='0'/>"
LINK = f"<link name='{{}}'><inertial>{INERTIAL}</inertial></link>"
JOINT = "<joint name='{0}{1}' type='{2}'><parent link='{0}'/><child link='{1}'/></joint>"


def urdf(*kinds: str) -> str:
    names = "abcdef"[: len(kinds) + 1]
    joints = [JOINT.format(names[i], names[i + 1], kind) for i, kind in enumerate(kinds)]
    return f"<robot name='r'>{''.join(map(LINK.format, names))}{''.join(joints)}</robot>"


def test_census_counts_robots_and_leaves_out_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {
        "robot.xml": ROBOT,
        "sunk.xml": ROBOT.replace("<worldbody>", "<option density='9'/><worldbody>"),
        "broken.xml": ROBOT.replace("<joint/>", "<joint type='odd'/>"),
        "scene.xml": "<mujoco><include file='robot.xml'/><worldbody><geom size='1'/></worldbody></mujoco>",
        "fragment.xml": "<mujoco><actuator><motor joint='unknown'/></actuator></mujoco>",
        "whole.xml": ROBOT.replace("<mujoco>", "<mujoco><include file='parts.xml'/>"),
        "parts.xml": "<mujoco><default><default class='a'/></default></mujoco>",
        "user.xml": ROBOT.replace("<mujoco>", "<mujoco><include file='fragment.xml'/>").replace(
            "<joint/>", "<joint name='unknown'/>", 1
        ),
        "stone.xml": "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>",
        "arm.urdf": urdf("continuous", "continuous"),
        "door.urdf": urdf("continuous", "fixed"),
        "page.xml": "<html/>",
        "torn.xml": "<mujoco>",
        "bug.urdf": urdf("continuous", "continuous").replace("ixx='1'", "ixx='9'"),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    census = run_census(CensusSettings((tmp_path,), accelerations=True))
    loads = {file.path.name: not verdict.reasons for file, verdict in census.verdicts.items()}
    assert loads == {
        "robot.xml": True, "whole.xml": True, "user.xml": True, "arm.urdf": True,
        "sunk.xml": False, "broken.xml": False, "bug.urdf": False,
    }  # fmt: skip
    assert (census.scenes, census.fragments, census.no_robots) == (1, 1, 5)
    errors = [verdict.acceleration_error for verdict in census.verdicts.values() if not verdict.reasons]
    assert all(error is not None and error < 1e-12 for error in errors)
    printed = capsys.readouterr().out
    assert "| URDF |      2 | 1 (50 %) |" in printed
    assert "| MJCF |      5 | 3 (60 %) |" in printed
    assert "option density asks for a fluid" in printed


def test_census_outlives_a_file_that_takes_too_long(tmp_path: Path) -> None:
    (tmp_path / "robot.xml").write_text(ROBOT)
    census = run_census(CensusSettings((tmp_path,), limit=1e-3))
    (verdict,) = census.verdicts.values()
    assert verdict.reasons == ["takes longer than 0.001 s"]


def test_reasons_are_the_same_whatever_the_names() -> None:
    one = reason_kind("geom 'foot' is a mesh: 12 points of its convex hull touch the ground.")
    many = reason_kind(
        "geoms 'a', 'b', 'c', 'd' and 9 more are each a mesh: 7 points of its convex hull touch the ground."
    )
    assert one == many == "geom '...' is a mesh: # points of its convex hull touch the ground."
    bodies = reason_kind("a mesh of bodies 'a' and 'b' is left out: there is no file 'x/y.stl'.")
    assert bodies == reason_kind("a mesh of body 'c' is left out: there is no file 'z.stl'.")
