"""The numbers of a comparison, worked by hand from metrics written by hand."""

import csv
from math import sqrt

import numpy as np
import pytest
from made_metrics import make_run, rewrite_seconds

from trot.compare.levels import choose_reference, default_levels, first_passage, reached
from trot.compare.report import make_report, write_report
from trot.view.plots.curves import CURVE_COLUMNS, load_runs, up_to


@pytest.fixture(autouse=True)
def any_machine(monkeypatch):
    monkeypatch.setattr("trot.runs.folder.describe_machine", dict)


@pytest.fixture
def runs(tmp_path):
    """Two seeds of SHAC, whose rows are 100 steps and a second apart, and of BPTT: 1000 steps and half a second."""
    make_run(tmp_path, [None, 0, 100, 80], algo="shac", seed=0, steps=100, seconds=1.0)
    make_run(tmp_path, [20, 40, 140, 120], algo="shac", seed=1, steps=100, seconds=1.0)
    make_run(tmp_path, [-40, 0, 60], algo="bptt", seed=0, steps=1000, seconds=0.5)
    make_run(tmp_path, [-20, 20, 40], algo="bptt", seed=1, steps=1000, seconds=0.5)
    return load_runs([tmp_path / f"ant-{algo}-{seed}" for seed in (0, 1) for algo in ("shac", "bptt")], CURVE_COLUMNS)


def test_ends_by_hand(runs):
    shac, bptt = make_report("", runs, (), ()).ends
    assert (shac.algo, shac.label, shac.num_runs) == ("shac", "SHAC", 2)
    # First 0 and 20, best 100 and 140, last 80 and 120; the standard deviation of two numbers is their distance / √2.
    assert shac.first.mean == 10 and shac.best.mean == 120 and shac.final.mean == 100
    assert shac.best.deviation == pytest.approx(40 / sqrt(2)) and shac.final.deviation == pytest.approx(40 / sqrt(2))
    assert (shac.steps.mean, shac.steps.deviation, shac.seconds.mean) == (400, 0, 4)
    assert bptt.first.mean == -30 and bptt.best == bptt.final and bptt.best.mean == 50
    assert bptt.best.deviation == pytest.approx(20 / sqrt(2))
    assert (bptt.steps.mean, bptt.seconds.mean) == (3000, 1.5)


def test_levels_lie_between_the_worst_beginning_and_the_best_of_shac(runs):
    levels = [effort.level for effort in make_report("", runs, (), ()).efforts[::2]]
    # From -30 to 120: a quarter of the way is -30 + 150 / 4.
    assert [(level.value, level.reason) for level in levels] == [
        (7.5, "25 % of the way to SHAC's best"),
        (45.0, "50 % of the way to SHAC's best"),
        (50.0, "where BPTT ends"),
        (82.5, "75 % of the way to SHAC's best"),
        (105.0, "90 % of the way to SHAC's best"),
    ]


def test_efforts_and_ratios_by_hand(runs):
    found = {(effort.level.value, effort.algo): effort for effort in make_report("", runs, (), ()).efforts}
    shac, bptt = found[7.5, "shac"], found[7.5, "bptt"]
    # Seed 0 passes between steps 200 (return 0) and 300 (return 100), seed 1 was there in its first row, at step 100.
    assert shac.steps.mean == pytest.approx((207.5 + 100) / 2)
    assert shac.steps.deviation == pytest.approx(107.5 / sqrt(2))
    assert shac.seconds.mean == pytest.approx((2.075 + 1) / 2)
    assert shac.steps_ratio == shac.seconds_ratio == 1 and shac.num_there == 2
    # 2000 + 1000 · 7.5 / 60 and 1000 + 1000 · 27.5 / 40.
    assert bptt.steps.mean == pytest.approx((2125 + 1687.5) / 2)
    assert bptt.steps_ratio == pytest.approx(1906.25 / 153.75)
    assert bptt.seconds.mean == pytest.approx(0.953125)
    assert bptt.seconds_ratio == pytest.approx(0.953125 / 1.5375)
    # One of the two comes there, at 2000 + 1000 · 50 / 60; SHAC at 250 and 210.
    shac, bptt = found[50.0, "shac"], found[50.0, "bptt"]
    assert (bptt.num_there, bptt.num_runs, bptt.steps.deviation) == (1, 2, None)
    assert bptt.steps_ratio == pytest.approx(2000 * (1 + 5 / 12) / 230)
    shac, bptt = found[105.0, "shac"], found[105.0, "bptt"]
    assert shac.num_there == 1 and shac.steps.mean == pytest.approx(265)
    assert bptt.num_there == 0
    assert bptt.steps is bptt.seconds is bptt.steps_ratio is bptt.seconds_ratio is None


def test_the_first_algorithm_is_the_reference_where_shac_is_not(runs):
    assert choose_reference(["ppo", "shac"]) == "shac" and choose_reference(["ppo", "sac"]) == "ppo"
    alone = [run for run in runs if run.algo == "bptt"]
    report = make_report("", alone, (), ())
    assert report.reference == "bptt" and {effort.steps_ratio for effort in report.efforts} <= {1, None}
    # From -30 to 50.
    assert [effort.level.value for effort in report.efforts] == [-10, 10, 30, 42]


def test_a_reference_that_learns_nothing_gives_no_shares_of_the_way(tmp_path):
    make_run(tmp_path, [5, 4], algo="shac")
    make_run(tmp_path, [6, 9], algo="bptt")
    ends = [reached([run]) for run in load_runs([tmp_path], CURVE_COLUMNS)]
    assert [level.reason for level in default_levels(ends, "shac")] == ["where BPTT ends"]


def test_given_levels_are_taken_and_a_reference_that_never_comes_there_has_no_ratio(runs):
    efforts = make_report("", runs, (-25.0, 1000.0), ()).efforts
    assert [(effort.level.value, effort.algo, effort.num_there) for effort in efforts] == [
        (-25.0, "shac", 2), (-25.0, "bptt", 2), (1000.0, "shac", 0), (1000.0, "bptt", 0),
    ]  # fmt: skip
    assert efforts[2].steps_ratio is None
    # BPTT's first rows: one lies below, one at -20 above it.
    assert efforts[1].steps.mean == pytest.approx((1000 + 1000 * 15 / 40 + 1000) / 2)


def test_a_passage_is_the_first_one():
    x, returns = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 4.0, 1.0, 9.0])
    assert first_passage(x, returns, 2.0) == 1.5
    assert first_passage(x, returns, 4.0) == 2.0
    assert first_passage(x, returns, 5.0) == 3.5
    assert first_passage(x, returns, -1.0) == 1.0
    assert first_passage(x, returns, 9.1) is None


def test_the_files_hold_the_numbers(tmp_path, runs):
    report = make_report("ant", runs, (50.0, 1000.0), ["Left out: one."])
    names = [path.name for path in write_report(report, runs, tmp_path)]
    assert names == ["table.md", "returns.csv", "levels.csv", "curves.png", "curves.svg"]
    assert (tmp_path / "curves.png").read_bytes()[1:4] == b"PNG" and "<svg" in (tmp_path / "curves.svg").read_text()
    with (tmp_path / "returns.csv").open() as file:
        shac, bptt = csv.DictReader(file)
    assert (shac["algorithm"], bptt["algorithm"], shac["seeds"]) == ("shac", "bptt", "2")
    assert float(bptt["best_return_mean"]) == 50 and float(bptt["steps_mean"]) == 3000
    assert float(shac["final_return_deviation"]) == pytest.approx(40 / sqrt(2))
    with (tmp_path / "levels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["return"], row["algorithm"], row["seeds_there"]) for row in rows] == [
        ("50.0", "shac", "2"), ("50.0", "bptt", "1"), ("1000.0", "shac", "0"), ("1000.0", "bptt", "0"),
    ]  # fmt: skip
    assert float(rows[0]["steps_mean"]) == 230 and float(rows[0]["seconds_ratio"]) == 1
    assert rows[1]["steps_deviation"] == rows[2]["steps_mean"] == rows[3]["steps_ratio"] == ""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (tmp_path / "table.md").read_text().splitlines()
        if line.startswith("|") and "--" not in line
    ]
    assert lines == [
        ["algorithm", "seeds", "best return", "return at the end", "samples", "seconds"],
        ["SHAC", "2", "120.0 ± 28.3", "100.0 ± 28.3", "400 ± 0", "4 ± 0"],
        ["BPTT", "2", "50.0 ± 14.1", "50.0 ± 14.1", "3000 ± 0", "1.5 ± 0"],
        ["return", "", "algorithm", "seeds", "samples", "x SHAC", "seconds", "x SHAC"],
        ["50.0", "given", "SHAC", "2 of 2", "230 ± 28.28", "1", "2.3 ± 0.2828", "1"],
        ["50.0", "given", "BPTT", "1 of 2", "2833", "12.3", "1.417", "0.616"],
        ["1000.0", "given", "SHAC", "0 of 2", "never", "", "never", ""],
        ["1000.0", "given", "BPTT", "0 of 2", "never", "", "never", ""],
    ]
    assert "Left out: one." in report.text and report.text.startswith("# ant\n")


def test_without_matplotlib_there_are_tables_and_a_line_about_it(tmp_path, runs, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    names = [path.name for path in write_report(make_report("", runs, (), ()), runs, tmp_path)]
    assert names == ["table.md", "returns.csv", "levels.csv"]
    assert capsys.readouterr().err.startswith('the curves need Matplotlib: pip install "trot[plot]"')


def test_a_run_cut_off_ends_with_the_look_that_found_its_time_up(tmp_path):
    path = make_run(tmp_path, [1, 2, 3, 4, 5, 6])
    rewrite_seconds(path, [2.0, 2.0, 4.0, 4.0, 7.0, 9.0])
    (run,) = load_runs([path], CURVE_COLUMNS)
    for seconds, rows in ((1, 2), (2, 2), (2.001, 4), (4, 4), (5, 5), (9, 6), (100, 6)):
        assert up_to(run, seconds).columns["episode_return"].tolist() == list(range(1, rows + 1))
