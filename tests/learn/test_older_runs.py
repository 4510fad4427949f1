"""A run that the first version wrote: it is read as it is, and goes on to where that version would have come.

version_1_run is a Hopper's in four worlds, stopped after four iterations of eight; uninterrupted.csv holds what the
first version wrote for all eight without a stop.
"""

import csv
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from made_run import make_run, rewrite_settings

from trot.cli import main
from trot.learn.agent import load_agent
from trot.learn.algorithms import find_algorithm
from trot.learn.algorithms.shac import Shac
from trot.learn.algorithms.shac_settings import ShacSettings
from trot.learn.saved_settings import settings_from
from trot.learn.schedule import Schedule
from trot.runs.folder import RunFolder
from trot.runs.older_settings import upgraded_settings
from trot.view.motion.record import record

KEPT = Path(__file__).parent / "version_1_run"


@pytest.fixture
def path(tmp_path):
    shutil.copytree(KEPT, tmp_path / "old", ignore=shutil.ignore_patterns("uninterrupted.csv"))
    return tmp_path / "old"


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def first_version(name):
    return torch.load(KEPT / "checkpoints" / f"{name}.pt", weights_only=True)


def rows_of_an_uninterrupted_run():
    with (KEPT / "uninterrupted.csv").open(newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


@pytest.mark.parametrize("checkpoint", ["initial", "best", "last"])
def test_its_agents_act_as_their_weights_say(path, checkpoint):
    saved = first_version(checkpoint)["agent"]
    policy, statistics = saved["policy"], saved["normalizer"]
    observation = torch.randn(5, 11, generator=torch.Generator().manual_seed(0))
    # Normalise, linear, ELU, layer norm, linear, tanh.
    shift, scale = statistics["mean"].float(), (statistics["variance"] + 1e-5).rsqrt().float()
    hidden = (observation - shift) * scale @ policy["network.0.weight"].T + policy["network.0.bias"]
    hidden = torch.where(hidden > 0, hidden, hidden.exp() - 1)
    centred = hidden - hidden.mean(dim=1, keepdim=True)
    hidden = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    hidden = hidden * policy["network.2.weight"] + policy["network.2.bias"]
    expected = torch.tanh(hidden @ policy["network.3.weight"].T + policy["network.3.bias"])
    agent = load_agent(RunFolder.open(path), checkpoint)
    torch.testing.assert_close(agent(observation), expected, rtol=0, atol=1e-6)
    assert agent.policy.log_std.equal(policy["log_std"])


def test_whoever_reads_it_changes_nothing(path, tmp_path, capsys):
    before = contents(path)
    assert main(["eval", str(path), "--episodes", "2", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith(f"hopper: checkpoint best of {path}, 2 episodes each")

    assert main(["list", "--root", str(tmp_path)]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.split() == ["hopper", "shac", "0", "4/8", "-", "0:00:00", "no", str(path)]

    for figure in ("health", "timing"):
        file = tmp_path / f"{figure}.png"
        assert main(["plot", str(path), f"--{figure}", "--out", str(file)]) == 0
        assert file.stat().st_size > 1000
    # No episode has finished in so few steps, so that there is no curve to draw.
    assert main(["plot", str(path), "--out", str(tmp_path / "curves.png")]) == 2
    assert "no finished episode in any run" in capsys.readouterr().err

    motion = record(str(path), steps=5, worlds=2)
    assert motion.task == "hopper" and motion.joint_q.shape == (6, 2, 6)
    assert contents(path) == before


def test_it_goes_on_to_where_the_first_version_would_have_come(path, capsys):
    before = contents(path)
    assert main(["resume", str(path)]) == 0
    assert "hopper: on from iteration 4, on cpu" in capsys.readouterr().out
    run = RunFolder.open(path)
    found, expected = run.read_metrics(), rows_of_an_uninterrupted_run()
    assert [row["iteration"] for row in found] == list(range(1, 9))
    # What was there stays, to the byte.
    assert (path / "metrics.csv").read_bytes().startswith(before["metrics.csv"])
    for row, wanted in zip(found[4:], expected[4:], strict=True):
        assert row.keys() == wanted.keys()
        for name in row.keys() - {"seconds"}:
            # Another processor rounds differently.
            assert row[name] == pytest.approx(wanted[name], rel=1e-4), name
    assert found[-1]["seconds"] > found[3]["seconds"]

    last = run.load_checkpoint("last")
    assert last["iteration"] == 8 and last["finished"]
    assert all(tensor.isfinite().all() for tensor in last["agent"].values())
    assert main(["resume", str(path)]) == 0
    assert "is finished: 8 iterations" in capsys.readouterr().out
    assert main(["list", "--root", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-2] == "yes"
    figure = path / "curves.png"
    assert main(["plot", str(path), "--out", str(figure)]) == 0
    assert figure.stat().st_size > 1000


def test_after_that_its_settings_are_of_todays_form(path):
    assert main(["resume", str(path)]) == 0
    today, old = (json.loads((folder / "settings.json").read_text()) for folder in (path, KEPT))
    # What SHAC has got since is off.
    later = {"clip_worlds": 0.0, "compare_halves": False, "symmetric": False, "staggered": False}
    assert today["settings"] == {**old["shac"], **later} and "shac" not in today
    assert settings_from(today["settings"], ShacSettings, "SHAC").actor_hidden == (8,)
    assert today["label"] == "SHAC"
    assert today["agent"] == {
        "num_observations": 11,
        "num_actions": 3,
        "hidden": [8],
        "kind": "gaussian",
        "initial_log_std": -1.0,
        "activation": "elu",
        "layer_norm": True,
        "normalize": True,
        "clip_observations": None,
        "squash": "tanh",
        "log_std_bounds": None,
        "mirror": None,
    }
    same = ("task", "algo", "preset", "seed", "device", "iterations", "schedule", "randomize")
    # A limit of minutes came later; a run without one has none. So did pushes, noise and delay.
    old["schedule"]["minutes"] = None
    old["randomize"] |= {"push_interval": 0.0, "push_speed": 0.0, "push_turning": 0.0}
    old["randomize"] |= {"observation_noise": [], "action_delay": [0, 0]}
    assert {name: today[name] for name in same} == {name: old[name] for name in same}
    assert Schedule(**today["schedule"]).save_every == 4
    assert today.keys() == {*same, "settings", "label", "agent", "checksum"}
    # Checkpoints of both forms lie side by side.
    run = RunFolder.open(path)
    for checkpoint in ("initial", "best", "last"):
        load_agent(run, checkpoint)


@pytest.mark.parametrize("algo", ["shac", "shac-no-critic", "bptt", "sapo", "rpo", "ahac", "shac-mixed"])
@pytest.mark.parametrize("later", ["symmetric", "staggered"])
def test_a_run_from_before_something_could_be_had_was_without_it(algo, later):
    today = asdict(find_algorithm(algo).resolve("ant"))
    before = {name: value for name, value in today.items() if name != later}
    upgraded = upgraded_settings({"algo": algo, "settings": before})
    assert upgraded["settings"] == {**today, later: False}


def test_a_run_from_before_agents_were_cut_and_clipped_still_loads(tmp_path):
    run, agent = make_run(tmp_path)

    def as_before(settings):
        for name in ("clip_observations", "squash", "log_std_bounds"):
            del settings["agent"][name]

    loaded = load_agent(rewrite_settings(run, as_before))
    assert loaded.description == agent.description
    far = torch.full((1, 5), 1e3)
    assert loaded(far).equal(agent(far))


def window_after_the_checkpoint():
    """The fifth iteration's, as the first version kept one whose gradient had failed."""
    learner = first_version("last")["learner"]
    tensors = learner["tensors"].items()
    generator = torch.Generator()
    generator.set_state(learner["generator"])
    return {
        "offence": 1,
        "task": "hopper",
        "shac": json.loads((KEPT / "settings.json").read_text())["shac"],
        "randomize": None,
        "noise": torch.randn(8, 4, 3, generator=generator),
        "start": learner["env"]["worlds"],
        "modules": {
            module: {name.removeprefix(f"{module}."): value for name, value in tensors if name.startswith(f"{module}.")}
            for module in ("policy", "target_critic", "normalizer")
        },
    }


def test_a_window_that_the_first_version_kept_is_run_again(tmp_path, capsys, monkeypatch):
    traces, run_again = [], Shac.run_again

    def watched(self, noise):
        traces.append(run_again(self, noise))
        return traces[-1]

    monkeypatch.setattr(Shac, "run_again", watched)
    file = tmp_path / "bad_gradient.pt"
    torch.save(window_after_the_checkpoint(), file)
    assert main(["replay-fault", str(file)]) == 0
    head, single, double = capsys.readouterr().out.splitlines()
    assert head == "hopper: a window of 8 steps in 4 worlds"
    # What that version wrote of this window.
    row = rows_of_an_uninterrupted_run()[4]
    for trace, line, dtype in zip(traces, (single, double), ("float32", "float64"), strict=True):
        steps = trace.adjoint.mean(dim=1)
        assert float(trace.reward.mean()) == pytest.approx(row["reward"], rel=1e-4)
        found = {"adjoint_first": steps[0], "adjoint_median": steps.median(), "adjoint_last": steps[-1]}
        assert {name: float(value) for name, value in found.items()} == pytest.approx(
            {name: row[name] for name in found}, rel=1e-4
        )
        assert line.startswith(f"{dtype}: all adjoints are finite; the largest, {float(trace.adjoint.max()):.3g},")


def test_a_gradient_that_failed_in_the_first_version_is_explained(tmp_path, capsys):
    window = window_after_the_checkpoint()
    # The value behind the window is no number, in any world; its gradient runs backward from the last step.
    window["modules"]["target_critic"]["network.3.weight"].fill_(torch.nan)
    file = tmp_path / "bad_gradient.pt"
    torch.save(window, file)
    assert main(["replay-fault", str(file)]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    told = "the state adjoint of world 3 stops being finite at step 7; 4 worlds in all"
    assert lines == [f"float32: {told}", f"float64: {told}"]


def test_a_checkpoint_from_before_muscles_had_activations_goes_on(tmp_path):
    """To the bit as one that nothing was taken from."""
    train = ["train", "cartpole", "--device", "cpu", "--runs", str(tmp_path), "--num-worlds", "4", "--iterations"]
    for name in ("whole", "older"):
        assert main([*train, "2", "--name", name]) == 0
    older = RunFolder.open(tmp_path / "older")
    saved = older.load_checkpoint("last")
    del saved["learner"]["bad_window.start_activation"]
    del saved["learner"]["_extra_state"]["env"]["worlds"]["activation"]
    older.save_checkpoint("last", saved)
    for name in ("whole", "older"):
        assert main(["resume", str(tmp_path / name), "--iterations", "4"]) == 0
    first, second = (RunFolder.open(tmp_path / name).load_checkpoint("last")["learner"] for name in ("whole", "older"))
    assert first.keys() == second.keys()
    assert all(first[key].equal(second[key]) for key in first if isinstance(first[key], torch.Tensor))
