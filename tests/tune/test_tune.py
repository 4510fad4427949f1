"""`trot tune`: what it finds, what it leaves, and that a search that was stopped or killed goes on to the bit."""

import csv
import json
import math
import os
import shlex
import shutil
import signal
from pathlib import Path

import pytest
import torch
from alike import same_bits
from ctrl_c import ctrl_c_in_iteration, timeless_rows
from kicked_weight import BEST_RATE, KICKED, cost
from killed_trot import KilledTrot
from made_run import make_run, rewrite_settings
from small_run import DOCKING

from trot.cli import main
from trot.learn.algorithms import shac as shac_module
from trot.runs.folder import RunFolder
from trot.tune.search import Asked, make_groups

TOY = f"{Path(__file__).parents[1] / 'helpers' / 'kicked_weight.py'}:{KICKED.name.upper()}"
ROUNDS, EACH, MEMBERS = 3, 4, 4
SMALL = ("num_worlds=4", "horizon=8", "actor_hidden=8", "critic_hidden=8", "critic_passes=2", "save_every=3")
SEARCH = ["tune", DOCKING, "--over", "actor_lr=log:1e-4:1e-1", "gamma=log1m:0.8:0.99", "--set", *SMALL]
SEARCH += ["--members", str(MEMBERS), "--rounds", str(ROUNDS), "--iterations", str(EACH), "--device", "cpu"]


def tune(root, *more):
    return main([*SEARCH, "--runs", str(root), *more])


def toy(root, *more, over="rate=log:2.5e-3:0.25"):
    given = ["--over", over, "--members", "8", "--rounds", "4", "--iterations", "2", "--device", "cpu"]
    return main(["tune", DOCKING, "--algo", TOY, *given, "--runs", str(root), *more])


def search(root, name="tune-Docking"):
    return json.loads((root / name / "tune.json").read_text())["groups"]


def table(root, name="tune-Docking"):
    with (root / name / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def trials(root):
    return sorted(path for path in (root / "tune-Docking").iterdir() if path.name.startswith("trial-"))


def left(root):
    """All that a search leaves, but for the time that it took."""
    found = {"search": search(root), "table": {row["trial"]: row for row in table(root)}}
    for path in trials(root):
        run = RunFolder.open(path)
        found[path.name] = {
            "settings": run.settings,
            "rows": {str(row["iteration"]): row for row in timeless_rows(path)},
            "files": sorted(str(file.relative_to(path)) for file in path.rglob("[!.]*.pt")),
            **{name: without_times(run.load_checkpoint(name)) for name in run.checkpoint_names()},
        }
    return found


def without_times(saved):
    return {name: part for name, part in saved.items() if name not in ("seconds", "metrics_checksum")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What nothing stops."""
    root = tmp_path_factory.mktemp("whole")
    assert tune(root) == 0
    return root


def test_the_best_rate_is_found(tmp_path, capsys):
    assert toy(tmp_path) == 0
    found = search(tmp_path)[""]
    for places, scores in zip(found["places"], found["scores"], strict=True):
        for number, score in zip(places, scores, strict=True):
            rate = found["trials"][number]["values"]["rate"]
            expected = None if rate > 3 * BEST_RATE else pytest.approx(-cost(rate), rel=1e-5, abs=1e-7)
            assert score == expected
    best = [max(score for score in scores if score is not None) for scores in found["scores"]]
    assert best == sorted(best) and best[-1] > best[0]
    assert None in found["scores"][0], "rates beyond what can be learned by were tried, and given up"
    rate = float(table(tmp_path)[0]["rate"])
    # Twenty trials in all: no further off than twenty that are spread evenly over the two decades would be at worst.
    assert len(found["trials"]) == 20 and abs(math.log10(rate / BEST_RATE)) < 2 / 20 / 2
    assert float(table(tmp_path)[0]["return"]) == best[-1]
    printed = capsys.readouterr().out
    assert f"--rate {rate!r}" in printed.splitlines()[-2] and "without a return" in printed
    assert printed.count("Round ") == 4


def test_groups_are_searched_one_after_the_other(tmp_path, capsys):
    assert toy(tmp_path, "--groups", "offset=0,5", "--rounds", "1", "--members", "4") == 0
    assert list(search(tmp_path)) == ["offset-0", "offset-5"]
    assert len(table(tmp_path)) == 2 * 4
    best = table(tmp_path)[0]
    assert best["trial"].startswith("offset-5") and float(best["return"]) > 4
    run = RunFolder.open(tmp_path / "tune-Docking" / best["trial"])
    assert run.settings["settings"]["offset"] == 5
    command = capsys.readouterr().out.splitlines()[-2]
    assert "--offset 5 " in command


def test_every_trial_is_a_run_folder(whole, capsys, tmp_path):
    found = search(whole)[""]
    assert len(trials(whole)) == len(found["trials"]) == MEMBERS + (ROUNDS - 1) * MEMBERS // 2
    for path, trial in zip(trials(whole), found["trials"], strict=True):
        run = RunFolder.open(path)
        settings = run.settings["settings"]
        assert {name: settings[name] for name in trial["values"]} == trial["values"]
        lasted = [round_ for round_, places in enumerate(found["places"]) if trial["number"] in places]
        assert [row["iteration"] for row in timeless_rows(path)] == [*range(1, (lasted[-1] + 1) * EACH + 1)]
        parent = None if trial["parent"] is None else trials(whole)[trial["parent"]]
        begun = trial["first_round"] * EACH
        assert run.settings["trial"] == {"number": trial["number"], "from": parent and parent.name, "iteration": begun}
        if parent is not None:
            assert (
                timeless_rows(path)[:begun] == timeless_rows(parent)[:begun]
                and timeless_rows(path)[begun] != timeless_rows(parent)[begun]
            )
        assert main(["eval", str(path), "--episodes", "2", "--device", "cpu"]) == 0
    assert main(["list", "--root", str(whole)]) == 0
    assert "trial-03" in capsys.readouterr().out


def test_a_trial_learns_what_a_run_with_its_settings_learns(whole, tmp_path, capsys):
    assert tune(whole) == 0, "a search that is over prints its table again"
    command = shlex.split(capsys.readouterr().out.splitlines()[-2])
    assert command[:3] == ["trot", "train", DOCKING]
    first = search(whole)[""]["trials"][1]["values"]
    # Another trial than the best one: its values at the place of the best one's.
    for name, value in first.items():
        command[command.index(f"--{name.replace('_', '-')}") + 1] = repr(value)
    assert main([*command[1:], "--device", "cpu", "--runs", str(tmp_path), "--name", "alone"]) == 0
    ours, alone = timeless_rows(trials(whole)[1]), timeless_rows(tmp_path / "alone")
    assert len(alone) == ROUNDS * EACH
    for found, expected in zip(ours, alone, strict=False):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_restarted_trial_goes_on_as_its_parent_would_with_other_settings(whole, tmp_path):
    child = next(trial for trial in search(whole)[""]["trials"] if trial["parent"] is not None)
    path, parent = trials(whole)[child["number"]], trials(whole)[child["parent"]]
    copy = tmp_path / "copy"
    shutil.copytree(parent, copy)
    checkpoints = copy / "checkpoints"
    shutil.copyfile(checkpoints / f"iteration_{EACH:06d}.pt", checkpoints / "last.pt")
    rewrite_settings(RunFolder.open(copy), lambda settings: settings["settings"].update(child["values"]))
    # At the end of a round a trial counts as finished; with the number of iterations it goes on.
    assert main(["resume", str(copy), "--iterations", str(ROUNDS * EACH)]) == 0
    assert child["first_round"] == 1
    for found, expected in zip(timeless_rows(path), timeless_rows(copy), strict=False):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_after_ctrl_c_it_goes_on_to_the_bit(whole, tmp_path, monkeypatch, capsys):
    for iteration in (2, 5):
        ctrl_c_in_iteration(monkeypatch, iteration)
        assert tune(tmp_path) == 130
        monkeypatch.undo()
        again = f"trot {shlex.join([*SEARCH, '--runs', str(tmp_path)])}"
        assert capsys.readouterr().out.splitlines()[-1].endswith(f". Go on: {again}")
    # Iterations 2 and 7: in the first round, and in the second one.
    assert [len(scores["scores"]) for scores in search(tmp_path).values()] == [1]
    # As if it had been killed while it made the new trials' folders, and while it saved.
    made = trials(tmp_path)
    (made[4] / "checkpoints" / "last.pt").unlink()
    shutil.rmtree(made[5])
    last = made[0] if (made[0] / "checkpoints" / f"iteration_{EACH:06d}.pt").exists() else made[1]
    shutil.copyfile(last / "checkpoints" / f"iteration_{EACH:06d}.pt", last / "checkpoints" / "last.pt")
    assert tune(tmp_path) == 0
    assert "; 1 rounds are over" in capsys.readouterr().out
    assert same_bits(left(tmp_path), left(whole))


@pytest.mark.campaign
@pytest.mark.skipif(os.name == "nt", reason="Windows has no fork()")
def test_a_search_that_is_killed_goes_on_to_the_bit(whole, tmp_path):
    def command(root):
        return [*SEARCH, "--runs", str(tmp_path / root)]

    with KilledTrot([*command("first"), "--rounds", "1"]) as trot:
        _, seconds = trot.run(command("timed"))
        codes = [trot.run(command("killed"), share * seconds, signal.SIGKILL)[0] for share in (0.5, 0.6)]
        assert trot.run(command("killed"))[0] == 0
    assert -signal.SIGKILL in codes
    assert same_bits(left(tmp_path / "killed"), left(whole))


def test_a_trial_whose_gradient_fails_is_given_up_and_its_place_goes_on(tmp_path, monkeypatch, capsys):
    exact, calls = shac_module.policy_loss, []

    def spoilt(*given):
        calls.append(None)
        return exact(*given) * torch.tensor([1.0, float("nan") if len(calls) == 2 else 1.0, 1.0, 1.0])

    monkeypatch.setattr(shac_module, "policy_loss", spoilt)
    assert tune(tmp_path) == 0
    found = search(tmp_path)[""]
    assert found["scores"][0][1] is None and found["places"][1][1] != 1
    assert None not in found["scores"][1] and None not in found["scores"][2]
    assert "1 without a return" in capsys.readouterr().out
    assert (trials(tmp_path)[1] / "checkpoints" / "bad_gradient.pt").exists()


def test_another_search_in_the_same_folder_is_refused(whole, capsys):
    before = left(whole)
    assert tune(whole, "--members", "6", "--seed", "3") == 2
    said = capsys.readouterr().err
    assert "holds another search: members was 4 and is 6, seed was 0 and is 3. Give the same options again" in said
    assert same_bits(left(whole), before)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--members", "1"], "--members must be at least 2, not 1"),
        (["--rounds", "0"], "--rounds must be at least 1, not 0"),
        (["--iterations", "0"], "--iterations must be at least 1, not 0"),
        (["--iterations", "2"], "a round of 2 iterations is 16 steps, and an episode of"),
        (["--over", "adam_betas=0:1"], "--over cannot search for adam_betas"),
        (["--over", "gamma=0.5:1.5"], "--over gamma: gamma must be between 0 and 1, not 1.5"),
        (["--algo", "ppo"], "'ppo' cannot learn with several settings in one batch; shac, shac-no-critic and bptt can"),
        (["--set", "actor_lr=1e-3"], "--set actor_lr=1e-3: actor_lr is what --over or --groups varies"),
        (["--set", "seed=1"], "--set seed=1: a search gives its trials their seed itself"),
        (["--set", "view=true"], "--set view: trials learn in one batch, and view is for a run"),
        (["--set", "horizon"], "--set takes NAME=VALUE, not 'horizon'"),
        (["--set", "horizont=8"], "perhaps you meant --horizon"),
        (["--groups", "horizon="], "--groups takes NAME=A,B, and widths of layers as 128x64, not 'horizon='"),
        (["--groups", "target_keep=0.5,no"], "no"),
        (["--groups", "horizon=8", "horizon=16"], "--groups names horizon twice"),
        (["--groups", "gamma=0.9,0.8"], "--groups gamma=0.9,0.8: gamma is what --over or --groups varies"),
    ],
)
def test_mistakes_are_named_before_anything_is_made(tmp_path, capsys, options, said):
    assert tune(tmp_path, *options) == 2
    printed = capsys.readouterr().err
    assert said in printed and printed.startswith("trot tune: ") and printed.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_trials_have_no_run_to_start_from(tmp_path, capsys):
    make_run(tmp_path)
    assert tune(tmp_path / "tuned", "--set", f"start_from={tmp_path / 'cartpole'}") == 2
    said = "trot tune: --set start_from: trials learn in one batch, and start_from is for a run"
    assert capsys.readouterr().err.startswith(said)
    assert not (tmp_path / "tuned").exists()


def test_groups_are_every_combination_and_networks_may_differ():
    asked = Asked(
        "hopper",
        ("gamma=0.9:0.99",),
        4,
        2,
        None,
        "shac",
        None,
        ("horizon=16,32", "critic_hidden=4x4,6"),
        ("num_worlds=8",),
        1,
        "cpu",
    )
    groups = make_groups(asked)
    found = [(one.name, one.base.settings.horizon, one.base.settings.critic_hidden) for one in groups]
    assert found == [
        ("horizon-16_critic_hidden-4x4", 16, (4, 4)),
        ("horizon-16_critic_hidden-6", 16, (6,)),
        ("horizon-32_critic_hidden-4x4", 32, (4, 4)),
        ("horizon-32_critic_hidden-6", 32, (6,)),
    ]
    assert {(one.base.settings.num_worlds, one.base.seed, one.iterations, one.rounds) for one in groups} == {
        (8, 1, 1000, 2)
    }
    # Half of the tuned 2000 iterations in each of two rounds; groups draw apart.
    assert len({tuple(trial.values["gamma"] for trial in one.begin().trials) for one in groups}) == 4
