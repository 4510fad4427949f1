"""Policies that come with trot: kept and read again, damaged ones named, and the one for CartPole swings up."""

import json

import pytest
import torch
from made_run import make_run

from trot.demo import SOLVED
from trot.envs.registry import TASKS, make_env
from trot.learn.evaluate import evaluate
from trot.learn.packaged_policy import POLICIES, load_packaged, main, package_policy, packaged_tasks


def test_a_policy_is_kept_and_read_again(tmp_path):
    run, best = make_run(tmp_path)
    folder = tmp_path / "policies"
    about = package_policy(run, "trot train cartpole --seed 0", folder=folder, episodes=4)
    assert sorted(file.name for file in folder.iterdir()) == ["cartpole.json", "cartpole.pt"]
    assert packaged_tasks(folder) == ["cartpole"]
    found = load_packaged("cartpole", folder)
    seen = torch.linspace(-2, 2, 5).expand(3, 5)
    assert torch.equal(found.agent(seen), best(seen))
    assert found.command == "trot train cartpole --seed 0" and found.episodes == 4
    assert found.mean_return == pytest.approx(evaluate(best, "cartpole", 4).mean_return, abs=0.05)
    assert not any(weight.requires_grad for weight in found.agent.parameters())

    with pytest.raises(FileNotFoundError, match="no policy comes with trot for the task 'ant'"):
        load_packaged("ant", folder)
    told = json.loads(about.read_text())
    for damage in ({**told, "agent": {**told["agent"], "hidden": [7]}}, {**told, "agent": None}, {}, []):
        about.write_text(json.dumps(damage))
        with pytest.raises(ValueError, match="cannot be read"):
            load_packaged("cartpole", folder)
    about.write_text(json.dumps(told))
    (folder / "cartpole.pt").write_bytes((folder / "cartpole.pt").read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        load_packaged("cartpole", folder)


def test_a_task_of_a_file_is_not_kept(tmp_path):
    run, _ = make_run(tmp_path)
    run.settings["task"] = "my/task.py:Walker"
    with pytest.raises(ValueError, match=r"not for 'my/task.py:Walker'"):
        package_policy(run, "trot train", folder=tmp_path)


def test_command_keeps_a_policy(tmp_path, monkeypatch, capsys):
    run, _ = make_run(tmp_path)
    kept = {}

    def keep(run, command, checkpoint):
        kept.update(path=run.path, command=command, checkpoint=checkpoint)
        return "there"

    monkeypatch.setattr("trot.learn.packaged_policy.package_policy", keep)
    main([str(run.path), "trot train cartpole", "--checkpoint", "last"])
    assert kept == {"path": run.path, "command": "trot train cartpole", "checkpoint": "last"}
    assert capsys.readouterr().out == "there\n"


def test_what_comes_with_trot_is_small_fits_its_task_and_returns_what_it_says():
    assert "cartpole" in packaged_tasks()
    for task in packaged_tasks():
        assert task in TASKS
        assert (POLICIES / f"{task}.pt").stat().st_size < 1_000_000
        found = load_packaged(task)
        found.agent.require_fit(make_env(task, 1))
        assert found.command.startswith(f"trot train {task}") and found.date > "2026"


def test_the_pole_swings_up():
    found = load_packaged("cartpole")
    again = evaluate(found.agent, "cartpole", found.episodes, seed=7).mean_return
    assert again > SOLVED
    assert again == pytest.approx(found.mean_return, abs=40)
