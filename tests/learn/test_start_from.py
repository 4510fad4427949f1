"""`--start-from`: a run begins with the policy of another one, and `ppo-finish` holds it until it can judge it."""

import json
import re

import docking
import pytest
import torch
from small_shac import SMALL, copies, same

import trot
from trot.cli import main
from trot.learn.agent import load_agent
from trot.learn.algorithms.ppo_finish import PPO_FINISH, PpoFinish, PpoFinishSettings
from trot.learn.train import parse_settings
from trot.runs.folder import RunFolder

TASK = f"{docking.__file__}:Docking"
ARGUMENTS = ["--device", "cpu", "--num-worlds", "4", "--horizon", "8"]
SHAC = [*ARGUMENTS, "--iterations", "3", "--actor-hidden", "8", "--critic-hidden", "8"]
FINISH = ["--algo", "ppo-finish", *ARGUMENTS, "--hidden", "8", "--value-hidden", "8", "--batches", "2"]


@pytest.fixture(scope="module")
def shac(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    assert main(["train", TASK, *SHAC, "--runs", str(root), "--name", "shac"]) == 0
    return RunFolder.open(root / "shac")


def agents_differ(first, second):
    return not same(first.state_dict().values(), second.state_dict().values())


def test_it_begins_with_the_best_policy_and_its_statistics(shac, tmp_path):
    start = ["train", TASK, *FINISH, "--start-from", str(shac.path), "--runs", str(tmp_path)]
    assert main([*start, "--iterations", "3", "--value-only-iterations", "2"]) == 0
    run = RunFolder.open(tmp_path / "Docking-ppo-finish-0")
    assert run.settings["start_from"] == str(shac.path)
    best, began = load_agent(shac, "best"), load_agent(run, "initial")
    assert not agents_differ(began, best) and best.normalizer.count > 1
    assert agents_differ(load_agent(run, "last"), best)


def test_what_goes_on_is_staggered_unless_told_otherwise(shac):
    begin = [TASK, *ARGUMENTS]
    goes_on = [*begin, "--start-from", str(shac.path)]
    options = (begin, goes_on, [*goes_on, "--no-staggered"])
    assert [parse_settings(one).settings.staggered for one in options] == [False, True, False]


def test_a_run_that_was_stopped_at_once_begins_there_again(shac, tmp_path):
    start = ["train", TASK, *FINISH, "--start-from", str(shac.path), "--runs", str(tmp_path)]
    assert main([*start, "--iterations", "2", "--value-only-iterations", "0"]) == 0
    run = RunFolder.open(tmp_path / "Docking-ppo-finish-0")
    whole = load_agent(run, "last")
    rows = [{name: row[name] for name in row if name != "seconds"} for row in run.read_metrics()]
    for name in set(run.checkpoint_names()) - {"initial"}:
        (run.path / "checkpoints" / f"{name}.pt").unlink()
    # Also where the other run is gone by then.
    saved = json.loads((run.path / "settings.json").read_text())
    del saved["checksum"]
    (run.path / "settings.json").write_text(json.dumps({**saved, "start_from": "gone"}))
    assert main(["resume", str(run.path)]) == 0
    assert not agents_differ(load_agent(run, "last"), whole)
    assert [{name: row[name] for name in row if name != "seconds"} for row in run.read_metrics()] == rows


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        (["--algo", "ppo-finish", "--batches", "2"], {"hidden": [8], "symmetric": False, "activation": "elu"}),
        (["--algo", "rpo", "--critic-hidden", "4"], {"actor_hidden": [8], "activation": "elu", "policy": "gaussian"}),
        (["--critic-hidden", "4"], {"actor_hidden": [8], "critic_hidden": [4]}),
    ],
)
def test_the_form_of_the_policy_is_that_of_the_other_run_unless_given(shac, tmp_path, options, taken):
    start = ["train", TASK, *ARGUMENTS, *options, "--start-from", str(shac.path), "--runs", str(tmp_path)]
    assert main([*start, "--iterations", "1", "--name", "second"]) == 0
    settings = RunFolder.open(tmp_path / "second").settings["settings"]
    assert {name: settings[name] for name in taken} == taken


def test_from_python_the_form_is_taken_too(shac, tmp_path):
    run = trot.train(
        TASK, algo="ppo-finish", start_from=shac.path, runs=tmp_path, iterations=1, worlds=4, horizon=8, batches=2,
        device="cpu",
    )  # fmt: skip
    assert run.settings["settings"]["hidden"] == [8]


def test_then_ppo_is_the_second_command(tmp_path, monkeypatch):
    small = PpoFinishSettings(num_worlds=4, horizon=8, batches=2, iterations=2)
    monkeypatch.setitem(PPO_FINISH.presets, "tuned", lambda task: small)
    first = ["train", TASK, *SHAC, "--runs", str(tmp_path), "--seeds", "3-4", "--name", "both", "--keep-every", "2"]
    assert main([*first, "--then", "ppo"]) == 0
    for seed in (3, 4):
        whole = RunFolder.open(tmp_path / f"both-{seed}-ppo-finish")
        assert whole.settings["start_from"] == str(tmp_path / f"both-{seed}")
        assert (whole.settings["algo"], whole.settings["seed"]) == ("ppo-finish", seed)
        assert whole.settings["schedule"]["keep_every"] == 2
        best, began = load_agent(RunFolder.open(tmp_path / f"both-{seed}")), load_agent(whole, "initial")
        assert not agents_differ(began, best)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "deterministic"], "one deviation per action, not 'deterministic': give --policy gaussian"),
        (["--algo", "sac"], "from policies of SHAC and its relatives, not from those of sac"),
        (["--then", "sac"], "invalid choice"),
    ],
)
def test_what_ppo_cannot_go_on_with_is_refused_before_the_training(tmp_path, capsys, options, message):
    asked = ["train", TASK, "--device", "cpu", "--runs", str(tmp_path), "--then", "ppo", *options]
    assert main(asked) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        (TASK, [*FINISH, "--hidden", "16"], r"hidden is \(8,\) there and \(16,\) here"),
        (TASK, [*FINISH, "--no-normalize-observations"], "normalize is True there and False here"),
        (TASK, ["--algo", "ppo", *ARGUMENTS, "--hidden", "8"], "squash is tanh there and clamp here"),
        (TASK, [*SHAC, "--policy", "state_dependent"], "kind is gaussian there and state_dependent here"),
        ("hopper", FINISH, "the agent has 2 observations and 1 actions, but the task 'hopper' has 11 and 3"),
        (TASK, [*SHAC, "--seeds", "0-1"], "--start-from is for one run"),
    ],
)
def test_policies_of_another_form_are_refused(shac, tmp_path, capsys, task, options, message):
    options = [task, *options, "--start-from", str(shac.path), "--runs", str(tmp_path)]
    assert main(["train", *options]) == 2
    found = capsys.readouterr().err
    assert re.search(message, found), found
    assert not list(tmp_path.iterdir())


def test_the_value_learns_alone_at_first_and_at_its_own_rate():
    settings = PpoFinishSettings(
        num_worlds=SMALL["num_worlds"], horizon=6, hidden=(8,), value_hidden=(8,), batches=2, value_only_iterations=2
    )
    ppo = PpoFinish(trot.make_env("hopper", 4, dtype=torch.float64), settings)
    policy, value = copies(ppo.agent.policy), copies(ppo.value_head)
    for _ in range(2):
        ppo.iterate()
        assert same(copies(ppo.agent.policy), policy) and not same(copies(ppo.value_head), value)
        assert ppo.rate.item() == pytest.approx(1e-4, rel=1e-6)
    ppo.iterate()
    assert not same(copies(ppo.agent.policy), policy)


def test_samples_are_squashed_as_the_policy_does_it():
    settings = PpoFinishSettings(num_worlds=4, horizon=6, hidden=(8,), batches=2)
    ppo = PpoFinish(trot.make_env("hopper", 4, dtype=torch.float64), settings)
    taken, advance = [], ppo.env.advance

    def watching(action):
        taken.append(action)
        return advance(action)

    ppo.env.advance = watching
    ppo.rollout()
    torch.testing.assert_close(torch.stack(taken), torch.tanh(ppo.window.samples), rtol=1e-14, atol=0)
