"""The study `landscape`: along one weight, as a call and as a command, and what it refuses."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_run import make_run, rewrite_settings
from PIL import Image
from small_run import small_run

import trot.study
from trot.cli import main
from trot.learn.algorithms import find_algorithm
from trot.learn.resume import settings_of
from trot.learn.train import make_learner, make_training_env
from trot.runs.folder import RunFolder
from trot.study.draw_landscape import draw_landscape
from trot.study.landscape_study import describe
from trot.study.learned import load_learned
from trot.study.moved_weights import Moves, one_entry, steepest_entry
from trot.study.objective import episode_objective, window_objective
from trot.study.one_weight import LossCurve, disagreement

SMALL = {"points": 5, "worlds": 3, "device": "cpu", "dtype": torch.float64}
WEIGHT = "network.0.weight[2,1]"


def test_every_point_is_the_policy_with_that_weight_moved(docking_run):
    found = trot.study.landscape(docking_run, weight=WEIGHT, reach=0.5, seed=4, **SMALL)
    np.testing.assert_array_equal(found.shift, [-0.5, -0.25, 0.0, 0.25, 0.5])
    assert (found.weight, found.worlds, found.critic) == (WEIGHT, 3, True)
    learned = load_learned(docking_run, "last", "cpu", torch.float64)
    for curve, make in ((found.episode, episode_objective), (found.window, window_objective)):
        objective = make(learned, 3, 4)
        assert curve.steps == objective.steps
        for index, shift in enumerate(found.shift):
            weights = {name: weight.clone() for name, weight in objective.weights.items()}
            weights["network.0.weight"][2, 1] += shift
            alone = objective.losses(Moves(weights, [], torch.zeros(1, 0)))
            assert curve.loss[index] == pytest.approx(float(alone), rel=1e-12)
        _, gradient = objective.gradients()
        assert curve.derivative[2] == pytest.approx(float(gradient["network.0.weight"][0, 2, 1]), rel=1e-9)
        norm = np.sqrt(sum(float(part.square().sum()) for part in gradient.values()))
        assert curve.gradient_norm == pytest.approx(norm, rel=1e-9)
        inner = [(curve.loss[k + 1] - curve.loss[k - 1]) / 0.5 for k in (1, 2, 3)]
        np.testing.assert_allclose(curve.difference[1:-1], inner, rtol=1e-9)
        assert curve.difference[0] == pytest.approx((curve.loss[1] - curve.loss[0]) / 0.25)


def test_fine_differences_meet_the_derivative(docking_run):
    found = trot.study.landscape(docking_run, reach=1e-4, **SMALL)
    for curve in (found.episode, found.window):
        np.testing.assert_allclose(curve.derivative[1:-1], curve.difference[1:-1], rtol=1e-5)
        assert disagreement(curve) < 1e-5


def test_without_a_name_the_steepest_weight_of_the_window_moves(docking_run):
    found = trot.study.landscape(docking_run, **SMALL)
    _, gradient = window_objective(load_learned(docking_run, "last", "cpu", torch.float64), 3, 0).gradients()
    name, _, index = found.weight.partition("[")
    row, column = map(int, index.rstrip("]").split(","))
    matrices = [part for part in gradient.values() if part.dim() == 3]
    assert len(matrices) == 2
    assert float(gradient[name][0, row, column].abs()) == max(float(part.abs().max()) for part in matrices)


def test_the_steepest_entry_is_one_of_a_layers_weights():
    gradient = {"log_std": torch.tensor([9.0]), "a": torch.tensor([[0.0, 1.0]]), "b": torch.tensor([[0.5], [-2.0]])}
    assert steepest_entry(gradient) == "b[1,0]"


def test_the_whole_episode_can_go_without_a_discount(docking_run):
    discounted, plain = (trot.study.landscape(docking_run, weight=WEIGHT, gamma=g, **SMALL) for g in (None, 1.0))
    np.testing.assert_array_equal(plain.window.loss, discounted.window.loss)
    # Every reward is a cost here, and without a discount late ones count in full.
    assert (plain.episode.loss > discounted.episode.loss + 1e-3).all()


def test_equal_calls_give_equal_numbers(docking_run):
    first, second, other = (trot.study.landscape(docking_run, weight=WEIGHT, seed=s, **SMALL) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.episode.loss, second.episode.loss)
    assert not np.allclose(first.episode.loss, other.episode.loss)


@pytest.mark.parametrize("checkpoint", ["initial", "iteration_000002"])
def test_earlier_checkpoints_have_landscapes_too(checkpoint, docking_run):
    found = trot.study.landscape(docking_run, checkpoint, **SMALL)
    assert np.isfinite(found.window.loss).all() and found.name == f"run, {checkpoint}"


def test_the_first_critic_is_the_one_that_the_training_began_with(docking_run):
    folder = RunFolder.open(docking_run)
    learned = load_learned(docking_run, "initial", "cpu")
    assert learned.worlds is None
    saved = folder.load_checkpoint("initial")["agent"]
    assert all(saved[name].equal(tensor) for name, tensor in learned.agent.saved().items())
    settings = settings_of(folder, "cpu")
    fresh = make_learner(find_algorithm("shac"), make_training_env(settings), settings).critic.state_dict()
    assert fresh.keys() == learned.critic.state_dict().keys()
    assert all(fresh[name].equal(tensor) for name, tensor in learned.critic.state_dict().items())


@pytest.mark.parametrize("algo", ["bptt", "shac-no-critic"])
def test_a_run_without_a_critic_has_a_window_without_a_value(algo, tmp_path):
    run = small_run(tmp_path, "cartpole", "--algo", algo, iterations=2)
    found = trot.study.landscape(run, "best" if "best" in RunFolder.open(run).checkpoint_names() else "last", **SMALL)
    assert not found.critic and found.window.steps == 8
    assert draw_landscape(found).axes[1].get_title("left") == "Window of 8 steps"


def test_the_command_leaves_data_figures_and_a_table(docking_run, tmp_path, capsys):
    given = ["--points", "5", "--worlds", "2", "--device", "cpu", "--studies", str(tmp_path)]
    assert main(["study", "landscape", str(docking_run), *given]) == 0
    folder = tmp_path / "landscape-run"
    printed = capsys.readouterr()
    assert "whole episode       24" in printed.out and str(folder / "landscape.png") in printed.out
    assert "100.0/100 %" in printed.err
    rows = list(csv.DictReader((folder / "landscape.csv").open()))
    losses = [float(row["window_loss"]) for row in rows]
    found = trot.study.landscape(docking_run, points=5, worlds=2, device="cpu")
    np.testing.assert_array_equal(losses, found.window.loss)
    assert (folder / "command.txt").read_text().startswith("trot study landscape ")
    pixels = np.asarray(Image.open(folder / "landscape.png").convert("L"))
    # In each quarter there is a curve.
    height, width = pixels.shape
    assert all((part < 200).mean() > 0.005 for half in np.split(pixels[: height // 2 * 2, : width // 2 * 2], 2)
               for part in np.split(half, 2, axis=1))  # fmt: skip
    assert "<svg" in (folder / "landscape.svg").read_text()


def test_a_derivative_that_is_not_finite_leaves_a_gap_and_is_told(docking_run):
    found = trot.study.landscape(docking_run, **SMALL)
    wild = replace(found.episode, derivative=np.array([1e30, -np.inf, np.nan, 1.0, 2.0]))
    found = replace(found, episode=wild)
    assert "whole episode: the derivative is not finite at 2 of 5 points" in describe(found)
    panel = draw_landscape(found).axes[2]
    assert panel.get_yscale() == "symlog" and np.isnan(panel.lines[0].get_ydata()[1:3]).all()


def test_disagreement_is_a_ratio_of_medians():
    curve = LossCurve(
        3, np.zeros(5), np.array([9.0, 2.0, 3.0, 5.0, 9.0]), np.array([0.0, 1.0, -1.0, 2.0, 0.0]), gradient_norm=1.0
    )
    # Apart by 1, 4 and 3; differences of size 1, 1 and 2.
    assert disagreement(curve) == 3.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--points", "4"], "points must be an odd number of at least 3"),
        (["--worlds", "0"], "worlds must be at least 1, not 0"),
        (["--points", "0"], "points must be an odd number of at least 3"),
        (["--reach", "0"], "reach must be above 0, not 0"),
        (["--gamma", "1.5"], "gamma must be between 0 and 1, not 1.5"),
        (["--weight", "0,1"], "a weight is given as name[row,column], such as log_std[0], not '0,1'"),
        (["--weight", "layer[0]"], "the policy has no weights 'layer'; it has: log_std, network.0.weight"),
        (["--weight", "network.0.weight[8,0]"], "network.0.weight[8,0] is outside of network.0.weight, whose shape is"),
        (["--weight", "network.0.weight[1]"], "network.0.weight[1] is outside of network.0.weight, whose shape is"),
        (["--checkpoint", "best"], "keeps the policy alone, without the critic that its loss ends with"),
        (["--checkpoint", "none"], "has no checkpoint 'none'; it has: initial, iteration_000002"),
        (["--worlds", "1000000000000"], "Use fewer worlds"),
    ],
)
def test_what_makes_no_landscape_is_told_in_one_line(options, message, docking_run, tmp_path, capsys):
    given = ["--device", "cpu", "--studies", str(tmp_path)]
    assert main(["study", "landscape", str(docking_run), *given, *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_what_has_no_policy_is_told_in_one_line(tmp_path, capsys):
    run, _ = make_run(tmp_path)
    bare = RunFolder.create(tmp_path, "bare", run.settings)
    refused = {
        "cartpole": "'cartpole' is a task, which has no policy yet. Train one, and give its run folder",
        str(tmp_path / "nowhere"): "no such run folder",
        str(bare.path): "has no checkpoints. Train it: trot resume",
    }
    rewrite_settings(run, lambda settings: settings.update(algo="ppo"))
    refused[str(run.path)] = (
        "learned by ppo, not by gradients through the simulation. Give a run of: shac, shac-no-critic, bptt"
    )
    for subject, message in refused.items():
        assert main(["study", "landscape", subject, "--device", "cpu", "--studies", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


def test_one_weight_alone_moves():
    weights = {"a": torch.ones(2, 3), "b": torch.ones(2)}
    direction = one_entry(weights, " a[1, 2] ")
    assert direction["a"].nonzero().tolist() == [[1, 2]] and direction["a"].sum() == 1 and not direction["b"].any()
