"""Return and time against the horizon, worked by hand from metrics written by hand."""

import csv
from math import isnan, sqrt

import pytest
from made_metrics import make_run

from trot.compare.plan import make_members
from trot.study.draw_horizon import draw_horizon
from trot.study.horizon_curve import horizon_curve
from trot.study.horizon_study import HorizonSettings, horizon_curves, lag_notes
from trot.study.study_folder import StudyFolder
from trot.study.training_study import Trained, write_rows
from trot.view.plots.curves import CURVE_COLUMNS, load_runs


@pytest.fixture(autouse=True)
def any_machine(monkeypatch):
    monkeypatch.setattr("trot.runs.folder.describe_machine", dict)


@pytest.fixture
def curve(tmp_path):
    """Windows of 16 steps: best 30 and 50 in 4 and 6 s; of 4 steps: 20 in 2 s, by one seed."""
    long = [make_run(tmp_path, [10, 30, 20, 5], seed=0), make_run(tmp_path, [10, 50, 20], seed=1, seconds=2.0)]
    short = [make_run(tmp_path, [None, 20], name="short")]
    runs = {16: load_runs(long, CURVE_COLUMNS), 4: load_runs(short, CURVE_COLUMNS)}
    return horizon_curve("my.py:Ant", runs, samples=64)


def test_means_and_deviations_by_hand(curve):
    assert curve.horizons.tolist() == [4, 16] and curve.num_worlds.tolist() == [16, 4]
    assert curve.best_return.tolist() == [20, 40] and curve.seconds.tolist() == [2, 5]
    assert isnan(curve.best_deviation[0]) and curve.best_deviation[1] == pytest.approx(20 / sqrt(2))
    assert isnan(curve.seconds_deviation[0]) and curve.seconds_deviation[1] == pytest.approx(2 / sqrt(2))
    assert (
        curve.sentence == "Ant: the best return is that of h = 16; windows 4 times as long take 2.5 times as much time."
    )
    assert curve.cells == [
        ["h", "worlds", "seeds", "best return", "seconds"],
        ["4", "16", "1", "20.0", "2"],
        ["16", "4", "2", "40.0 ± 14.1", "5 ± 1.414"],
    ]


def test_the_file_holds_the_numbers_of_every_task(curve, tmp_path):
    folder = StudyFolder(tmp_path)
    write_rows(folder, "horizon.csv", [("one", curve.rows), ("two", curve.rows)])
    with (tmp_path / "horizon.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["task"], row["horizon"], row["worlds"], row["seeds"]) for row in rows] == [
        ("one", "4", "16", "1"), ("one", "16", "4", "2"), ("two", "4", "16", "1"), ("two", "16", "4", "2"),
    ]  # fmt: skip
    assert float(rows[1]["best_return_mean"]) == 40 and float(rows[1]["seconds_mean"]) == 5
    assert float(rows[1]["best_return_deviation"]) == pytest.approx(20 / sqrt(2))
    assert rows[0]["best_return_deviation"] == ""


def test_the_figure_shows_return_and_time(curve):
    returns, seconds = draw_horizon([curve]).axes
    assert returns.lines[0].get_xdata().tolist() == seconds.lines[0].get_xdata().tolist() == [4, 16]
    assert returns.lines[0].get_ydata().tolist() == [20, 40] and seconds.lines[0].get_ydata().tolist() == [2, 5]
    (guide,) = [line for line in seconds.lines if line.get_label() == "in proportion to h"]
    assert guide.get_ydata().tolist() == [2, 8]
    (bars,) = [segments for line in returns.collections if len(segments := line.get_segments())]
    assert bars[1][:, 1] == pytest.approx([40 - 20 / sqrt(2), 40 + 20 / sqrt(2)])
    assert [label.get_text() for label in returns.get_xticklabels()] == ["4", "16"]
    assert returns.get_title("left") == "Ant" and returns.get_ylabel() == "Best return"
    assert seconds.get_ylabel() == "Training time (s)" and seconds.get_xlabel() == "Horizon h (steps)"


def test_runs_are_sorted_by_the_horizon_that_they_were_given(tmp_path):
    settings = HorizonSettings(device="cpu", horizons=(16, 4), samples=64)
    members = make_members("cartpole", settings.variants("cartpole"), (0,), tmp_path, "cpu", None, [], [])
    paths = [make_run(tmp_path, [number], task="cartpole", name=one.name) for number, one in enumerate(members)]
    trained = Trained("", list(zip(members, load_runs(paths, CURVE_COLUMNS), strict=True)), [])
    (curve,) = horizon_curves(trained)
    assert curve.horizons.tolist() == [4, 16] and curve.num_worlds.tolist() == [16, 4]
    assert curve.best_return.tolist() == [1, 0]


def test_runs_whose_worlds_hardly_finished_an_episode_are_named(tmp_path):
    variants = HorizonSettings(device="cpu", horizons=(16, 4), samples=64).variants("cartpole")
    members = make_members("cartpole", variants, (0,), tmp_path, "cpu", None, [], [])
    # In 4 worlds three episodes each, in 16 worlds fewer.
    counts = [[4.0, 12.0], [16.0, 47.0]]
    paths = [
        make_run(tmp_path, [1, 2], name=member.name, episodes=episodes)
        for member, episodes in zip(members, counts, strict=True)
    ]
    runs = list(zip(members, load_runs(paths, CURVE_COLUMNS), strict=True))
    (note,) = lag_notes(Trained("", runs, []))
    assert note.startswith("Fewer than 3 episodes per world: cartpole-h4-0. ")
    assert not lag_notes(Trained("", runs[:1], []))


@pytest.mark.parametrize(("task", "samples"), [("ant", 2048), ("hopper", 8192), ("my.py:Walker", 2048)])
def test_longer_windows_have_fewer_worlds(task, samples):
    variants = HorizonSettings(device="cpu").variants(task)
    given = [dict(zip(one.options[::2], one.options[1::2], strict=True)) for one in variants]
    assert [one["--horizon"] for one in given] == ["4", "8", "16", "32", "64", "128"]
    assert {int(one["--horizon"]) * int(one["--worlds"]) for one in given} == {samples}
    # Whatever the default has become, the study is of the paper's claim.
    assert {one["--preset"] for one in given} == {"paper"}


@pytest.mark.parametrize("horizon", [0, -4, 24, 4096])
def test_a_horizon_that_does_not_divide_the_samples_is_refused(horizon):
    with pytest.raises(ValueError, match=f"a horizon of {horizon} does not divide the 2048 samples"):
        HorizonSettings(device="cpu", horizons=(4, horizon)).variants("ant")
