"""The study `gradients`: entries, histograms counted by hand, which checkpoints, and what it refuses."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch

import trot.study
from trot.cli import main
from trot.runs.folder import RunFolder
from trot.study.draw_gradients import draw_histograms, draw_norms
from trot.study.gradient_histograms import GradientEntries, choose_checkpoints, cosine
from trot.study.gradients_study import describe
from trot.study.learned import load_learned
from trot.study.objective import episode_objective, window_objective

SMALL = {"worlds": 4, "device": "cpu", "dtype": torch.float64}


def test_entries_are_the_gradients_at_each_checkpoint(docking_run):
    found = trot.study.gradients(docking_run, ["iteration_000004", "initial"], seed=3, **SMALL)
    assert found.checkpoints == ("initial", "iteration_000004") and found.iterations.tolist() == [0, 4]
    for row, name in enumerate(found.checkpoints):
        learned = load_learned(docking_run, name, "cpu", torch.float64)
        for each, make in ((found.episode, episode_objective), (found.window, window_objective)):
            objective = make(learned, 4, 3)
            _, gradient = objective.gradients()
            expected = np.concatenate([part[0].numpy().ravel() for part in gradient.values()])
            np.testing.assert_allclose(each.entries[row], expected, rtol=1e-9, atol=1e-12)
            assert each.norm[row] == pytest.approx(np.sqrt((expected**2).sum()))
            assert each.steps == objective.steps
            _, halves = objective.gradients(parts=2)
            first, second = (np.concatenate([part[k].numpy().ravel() for part in halves.values()]) for k in (0, 1))
            across = sum(a * b for a, b in zip(first, second, strict=True))
            assert each.cosine[row] == pytest.approx(across / np.sqrt((first**2).sum() * (second**2).sum()))
            assert abs(each.cosine[row]) < 0.9999


def test_histograms_count_every_entry_once():
    rows = np.array([[-2.0, -1.9, 0.1, 0.3, 2.0], [0.0, 0.0, 0.5, -0.7, np.inf]])
    edges, counts = GradientEntries(1, rows, np.zeros(2), np.zeros(2)).histogram(bins=4)
    np.testing.assert_array_equal(edges, [-2, -1, 0, 1, 2])
    # What is not finite is in no bin.
    np.testing.assert_array_equal(counts, [[2, 0, 2, 1], [0, 1, 3, 0]])


def test_a_gradient_of_zeros_has_a_histogram():
    edges, counts = GradientEntries(1, np.zeros((1, 5)), np.zeros(1), np.zeros(1)).histogram(bins=3)
    assert edges[0] == -1 and counts.tolist() == [[0, 5, 0]]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [([3, 4], [6, 8], 1.0), ([1, 0], [0, 5], 0.0), ([1, 1], [-1, 0], -np.sqrt(0.5)), ([3e200, 4e200], [3, 4], 1.0)],
)
def test_cosine(first, second, expected):
    assert cosine(np.array(first, float), np.array(second, float)) == pytest.approx(expected, abs=1e-15)


def test_there_is_no_angle_to_what_is_zero_or_not_finite():
    for other in ([0.0, 0.0], [np.inf, 1.0], [np.nan, 1.0]):
        assert np.isnan(cosine(np.ones(2), np.array(other)))


def test_six_checkpoints_are_spread_from_the_first_to_the_last(run):
    names = ["initial", *(f"iteration_{number:06d}" for number in range(100, 1100, 100)), "best", "bad_gradient"]
    for name in names:
        run.save_checkpoint(name, {})
    run.save_checkpoint("last", {"iteration": 1000})
    assert list(choose_checkpoints(run, ()).values()) == [0, 200, 400, 600, 800, 1000]
    # The last one is kept under its number already.
    assert "last" not in choose_checkpoints(run, ())
    run.save_checkpoint("last", {"iteration": 1050})
    assert list(choose_checkpoints(run, ()).items())[-1] == ("last", 1050)
    with pytest.raises(
        ValueError, match="has no checkpoint 'best' of a known iteration; it has: initial, iteration_000100"
    ):
        choose_checkpoints(run, ("best",))


def test_few_checkpoints_are_all_taken(docking_run):
    chosen = choose_checkpoints(RunFolder.open(docking_run), ())
    assert list(chosen.values()) == [0, 2, 4, 6, 8]


def test_the_command_leaves_data_figures_and_a_table(docking_run, tmp_path, capsys):
    given = ["--worlds", "4", "--device", "cpu", "--studies", str(tmp_path), "--checkpoints", "initial", "last"]
    assert main(["study", "gradients", str(docking_run), *given]) == 0
    printed, folder = capsys.readouterr(), tmp_path / "gradients-run"
    assert "\nlast " in printed.out and "100.0/100 %" in printed.err
    found = trot.study.gradients(docking_run, ("initial", "last"), worlds=4, device="cpu")
    rows = list(csv.DictReader((folder / "gradients.csv").open()))
    assert [float(row["episode_norm"]) for row in rows] == found.episode.norm.tolist()
    saved = np.load(folder / "gradients.npz")
    np.testing.assert_array_equal(saved["window_entries"], found.window.entries)
    low, high = saved["window_edges"][50:52]
    middle = (found.window.entries >= low) & (found.window.entries < high)
    np.testing.assert_array_equal(saved["window_counts"][:, 50], middle.sum(axis=1))
    assert saved["window_counts"].sum() == found.window.entries.size
    for name in ("histograms", "norms"):
        assert (folder / f"{name}.png").stat().st_size > 5000 and "<svg" in (folder / f"{name}.svg").read_text()


def test_what_is_not_finite_is_told_and_drawn_around(docking_run):
    found = trot.study.gradients(docking_run, ("initial",), **SMALL)
    wild = found.episode.entries.copy()
    wild[0, 3] = np.inf
    found = replace(found, episode=replace(found.episode, entries=wild, norm=np.array([np.inf])))
    assert "whole episode: at 1 of 1 checkpoints the gradient is not finite" in describe(found)
    texts = [text.get_text() for text in draw_histograms(found).axes[0].texts]
    assert texts == ["iteration 0", "not finite"]
    assert len(draw_norms(found).axes) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--worlds", "3"], "worlds must be an even number of at least 2, for two halves, not 3"),
        (["--worlds", "0"], "worlds must be an even number of at least 2, for two halves, not 0"),
        (["--gamma", "-0.1"], "gamma must be between 0 and 1, not -0.1"),
    ],
)
def test_what_makes_no_study_is_told_in_one_line(options, message, docking_run, tmp_path, capsys):
    assert main(["study", "gradients", str(docking_run), "--device", "cpu", "--studies", str(tmp_path), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
