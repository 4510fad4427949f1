"""Runs with pushes, noise and delay: trained, resumed, evaluated and exported."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from alike import same_bits
from small_run import small_run
from small_shac import SMALL

import trot
from trot.cli import main
from trot.learn.algorithms import find_algorithm
from trot.learn.resume import settings_of
from trot.runs.folder import RunFolder

RANDOM = trot.Randomize(
    mass=(0.9, 1.1),
    push_interval=0.05,
    push_speed=0.2,
    push_turning=0.3,
    observation_noise={"joints": 0.05, "pitch": 0.02},
    action_delay=(0, 2),
)
OPTIONS = (
    *("--randomize.mass", "0.9", "1.1", "--randomize.push-interval", "0.05", "--randomize.push-speed", "0.2"),
    *("--randomize.push-turning", "0.3", "--randomize.observation-noise", "joints", "0.05", "pitch", "0.02"),
    *("--randomize.action-delay", "0", "2"),
)


def learner(algo, seed):
    algorithm = find_algorithm(algo)
    changes = SMALL if algo == "shac" else {"num_worlds": 4, "horizon": 6, "batch": 16, "memory": 400, "hidden": (8,)}
    settings = replace(algorithm.resolve("hopper"), **changes)
    return algorithm.learner(trot.make_env("hopper", 4, seed=seed, randomize=RANDOM), settings, seed)


@pytest.mark.parametrize("algo", ["shac", "sac"])
def test_learning_goes_on_to_the_bit(algo, tmp_path):
    first, resumed = learner(algo, 0), learner(algo, 5)
    for _ in range(6):
        first.iterate()
    torch.save(first.state_dict(), tmp_path / "state.pt")
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for _ in range(6):
        first.iterate()
        resumed.iterate()
        assert resumed.metrics.equal(first.metrics)
    assert same_bits(resumed.state_dict(), first.state_dict())
    assert first.env.worlds.past_actions.abs().sum() > 0


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return RunFolder.open(small_run(tmp_path_factory.mktemp("runs"), "hopper", *OPTIONS, iterations=3))


def test_settings_hold_all_of_it(run):
    assert settings_of(run, "cpu").randomize == RANDOM
    assert run.settings["randomize"] == json.loads(json.dumps(asdict(RANDOM)))
    assert main(["resume", str(run.path), "--iterations", "5"]) == 0
    assert len(run.read_metrics()) == 5


def test_it_is_played_with_or_without(run, capsys):
    returns = []
    for options in ([], ["--randomize"]):
        assert main(["eval", str(run.path), "--checkpoint", "last", "--episodes", "4", "--in", "mujoco", *options]) == 0
        head, *lines = capsys.readouterr().out.splitlines()
        assert head.startswith("hopper: checkpoint last")
        told = [line for line in lines if line.startswith("random as in training: ")]
        assert len(told) == len(options)
        returns.append([line.split()[1:5] for line in lines if line.startswith("deterministic")])
    assert told[0].endswith("action_delay (0, 2)") and "mass (0.9, 1.1)" in told[0] and "friction" not in told[0]
    assert len(returns[0]) == 2 and all(one != other for one, other in zip(*returns, strict=True))


def test_a_run_without_any_says_so(tmp_path, capsys):
    path = small_run(tmp_path, "hopper", iterations=1)
    assert main(["eval", str(path), "--checkpoint", "last", "--episodes", "2", "--randomize"]) == 2
    assert "was trained with nothing random in its worlds" in capsys.readouterr().err


def test_what_is_exported_knows_of_it(run):
    pytest.importorskip("onnxruntime")
    assert main(["export", str(run.path), "--checkpoint", "last"]) == 0
    told = json.loads((run.path / "export" / "policy.json").read_text())
    assert told["action_delay"] == [0, 2] and told["trained_with"]["push_interval"] == 0.05
