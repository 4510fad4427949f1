"""Studies of trainings as a user meets them: interrupted, gone on with, with a run that fails, with mistakes."""

import csv
import os
from pathlib import Path

import pytest
from children_here import run_children_here
from ctrl_c import ctrl_c_after_first_row, timeless_rows

import trot.study
from trot.cli import main
from trot.compare.train_members import only_here
from trot.runs.folder import RunFolder
from trot.study.ablations import CriticSettings, DeterministicSettings
from trot.study.horizon_study import HorizonSettings

TASK = f"{Path(__file__).parents[1] / 'helpers' / 'docking.py'}:Docking"
SMALL = ["critic_passes=1", "save_every=1000"]
SMALLER = [*SMALL, "num_worlds=4", "horizon=8"]
SMALLEST = [*SMALLER, "actor_hidden=8", "critic_hidden=8"]


def command(root, study, *options, changes):
    return ["study", study, TASK, "--device", "cpu", "--studies", str(root), *options, "--set", *changes]


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send to one process")
def test_an_interrupted_study_goes_on_to_the_same_numbers(tmp_path, capsys):
    arguments = command(tmp_path, "deterministic", "--iterations", "200", changes=SMALLEST)
    folder = tmp_path / "deterministic-Docking"
    first, second = (folder / f"Docking-{name}-0" for name in ("stochastic", "deterministic"))
    stopped = ctrl_c_after_first_row(arguments, first)[-1]
    assert stopped.startswith("Stopped; 0 of 2 runs are finished. Go on: trot study deterministic ")
    assert stopped.endswith("--set " + " ".join(SMALLEST))
    assert 0 < len(timeless_rows(first)) < 200 and not second.exists()
    assert main(arguments) == 0
    assert "2 runs: 0 finished, 1 to go on with, 1 to begin" in capsys.readouterr().out
    assert not (tmp_path / "deterministic-Docking-2").exists()
    options = [part for change in SMALLEST for part in ("--" + change.replace("_", "-")).split("=")]
    whole = ["train", TASK, "--iterations", "200", "--device", "cpu", "--runs", str(tmp_path), "--name", "whole"]
    assert main([*whole, *options]) == 0
    assert timeless_rows(first) == timeless_rows(tmp_path / "whole") != timeless_rows(second)
    assert RunFolder.open(second).settings["settings"]["policy"] == "deterministic"
    capsys.readouterr()
    # Nothing is left to train: it is drawn again.
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "to begin" not in printed and (folder / "table.md").read_text() in printed
    assert (folder / "command.txt").read_text().startswith("trot study deterministic ")
    with (folder / "returns.csv").open() as file:
        found = {row["variant"]: float(row["final_return_mean"]) for row in csv.DictReader(file)}
    ends = {path.name.split("-")[1]: timeless_rows(path)[-1]["episode_return"] for path in (first, second)}
    assert found == pytest.approx(ends)
    assert main(command(tmp_path, "deterministic", "--iterations", "201", changes=SMALLEST)) == 2
    assert "was trained with other settings: iterations was 200 and is 201" in capsys.readouterr().err
    assert "--iterations 200 " in (folder / "command.txt").read_text(), "a command that is refused leaves no trace"


@pytest.mark.slow
def test_the_horizon_is_varied_at_constant_samples(tmp_path, capsys, monkeypatch):
    run_children_here(monkeypatch)
    options = ["--iterations", "12", "--horizons", "8", "4", "--samples", "32", "--parallel", "2"]
    assert main(command(tmp_path, "horizon", *options, changes=SMALL)) == 0
    folder = tmp_path / "horizon-Docking"
    with (folder / "horizon.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [(row["horizon"], row["worlds"], row["seeds"]) for row in found] == [("4", "8", "1"), ("8", "4", "1")]
    for row in found:
        run = folder / f"Docking-h{row['horizon']}-0"
        best = max(one["episode_return"] for one in timeless_rows(run) if one["episodes"])
        assert float(row["best_return_mean"]) == best and timeless_rows(run)[-1]["steps"] == 12 * 32
        assert float(row["seconds_mean"]) == RunFolder.open(run).last_metrics()["seconds"]
    printed = capsys.readouterr().out
    assert "\nDocking: the best return is that of h = " in printed
    names = ["table.md", "horizon.csv", "horizon.png", "horizon.svg", "curves.png", "curves.svg"]
    assert printed.endswith("".join(f"{folder / name}\n" for name in names))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "variants", "changes"),
    [("fixed-settings", ["tuned", "fixed"], SMALLER), ("critic", ["shac", "shac-no-critic"], SMALLEST)],
)
def test_the_other_ablations_train(study, variants, changes, tmp_path, monkeypatch):
    run_children_here(monkeypatch)
    assert main(command(tmp_path, study, "--iterations", "6", "--parallel", "2", changes=changes)) == 0
    with (tmp_path / f"{study}-Docking" / "returns.csv").open() as file:
        assert [row["variant"] for row in csv.DictReader(file)] == variants
    assert (tmp_path / f"{study}-Docking" / "curves.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.slow
def test_seeds_learn_in_one_batch_as_they_would_alone(tmp_path, capsys, monkeypatch):
    run_children_here(monkeypatch)
    options = ["--iterations", "3", "--seeds", "0", "1", "--together", "yes"]
    assert main(command(tmp_path, "critic", *options, changes=SMALLEST)) == 0
    printed = capsys.readouterr().out
    assert "4 runs: 0 finished, 0 to go on with, 4 to begin in 2 batches; 1 at a time on cpu." in printed
    assert "Seeds of one variant learned in one batch: the seconds are the batch's." in printed
    folder = tmp_path / "critic-Docking"
    assert {path.name for path in (folder / "logs").iterdir()} == {
        "Docking-shac-0_1.log", "Docking-shac-no-critic-0_1.log",
    }  # fmt: skip
    words = [part for change in SMALLEST for part in ("--" + change.replace("_", "-")).split("=")]
    alone = ["train", TASK, "--iterations", "3", "--device", "cpu", "--runs", str(tmp_path), "--name", "alone"]
    assert main([*alone, "--seed", "1", *words]) == 0
    for found, expected in zip(
        timeless_rows(folder / "Docking-shac-1"), timeless_rows(tmp_path / "alone"), strict=True
    ):
        assert found == pytest.approx(expected, rel=1e-3, nan_ok=True)


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_left_out(tmp_path, capsys, monkeypatch):
    run_children_here(monkeypatch)
    changes = [*SMALLEST, "deterministic.num_worlds=1000000000000"]
    options = ["--iterations", "6", "--parallel", "2", "--name", "mine"]
    assert main(command(tmp_path, "deterministic", *options, changes=changes)) == 1
    printed = capsys.readouterr()
    (line,) = [line for line in printed.err.splitlines() if " failed with exit code 2: " in line]
    assert line.startswith("Docking-deterministic-0 ") and "Use fewer worlds" in line
    assert str(tmp_path / "mine" / "logs" / "Docking-deterministic-0.log") in line
    assert "Left out: Docking-deterministic-0, which is not finished." in printed.out
    assert "| Stochastic" in printed.out and "| Deterministic" not in printed.out


@pytest.mark.parametrize(
    ("study", "arguments", "message"),
    [
        ("horizn", [], "there is no study 'horizn'. Did you mean horizon?"),
        ("critic", ["cartpol"], "there is no task 'cartpol'. Did you mean cartpole?"),
        ("critic", [f"{TASK}s"], "has no task 'Dockings'; it has: Docking"),
        ("critic", ["--tasks", TASK, TASK.replace("helpers", "helpers/../helpers")], "two of the tasks have the name"),
        ("critic", ["--parallel", "0"], "--parallel must be at least 1, not 0"),
        ("critic", ["--minutes", "0"], "minutes must be above 0 and finite, not 0"),
        ("critic", ["--iterations", "0"], "iterations must be at least 1, not 0"),
        ("critic", ["--device", "gpu"], "device must be cpu or cuda, not gpu"),
        ("critic", ["--set", "wolds=3"], "perhaps you meant --worlds"),
        ("horizon", ["--horizons", "24"], "a horizon of 24 does not divide the 2048 samples of an iteration"),
        ("horizon", ["--horizons", "2"], "horizon 2 does not split into critic_batches 4"),
        ("horizon", ["--set", "horizon=8"], "--set horizon=8: horizon is what is compared here"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_trained(study, arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    device = [] if "--device" in arguments else ["--device", "cpu"]
    assert main(["study", study, *arguments, *device]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("trot study: ") and message in line
    assert list(tmp_path.iterdir()) == []


def test_a_study_is_made_by_one_process_at_a_time(tmp_path, capsys):
    with only_here(tmp_path / "critic-Docking"):
        assert main(command(tmp_path, "critic", "--iterations", "2", changes=SMALLEST)) == 2
    assert f"is being trained by process {os.getpid()}" in capsys.readouterr().err


def test_defaults_are_small_on_the_cpu_and_the_papers_on_a_gpu():
    small, large = (CriticSettings(device=device) for device in ("cpu", "cuda"))
    assert (small.chosen_tasks, small.chosen_seeds, small.iterations_of(2000)) == (("cartpole",), (0,), 100)
    paper = ("cartpole", "ant", "humanoid", "muscle_humanoid")
    assert (large.chosen_tasks, large.chosen_seeds, large.iterations_of(2000)) == (paper, (0, 1, 2, 3, 4), 2000)
    assert CriticSettings(device="cpu", minutes=3.0).iterations_of(2000) == 2000, "time alone is to end them"
    assert CriticSettings(device="cuda", iterations=5).iterations_of(2000) == 5
    assert HorizonSettings(device="cuda").chosen_tasks == ("ant",)
    assert len(DeterministicSettings(device="cuda").chosen_tasks) == 6


def test_a_task_may_stand_first_or_several_behind_an_option():
    assert CriticSettings(device="cpu", task="ant").chosen_tasks == ("ant",)
    both = CriticSettings(device="cpu", task="ant", tasks=("my.py:Walker", "ant"))
    assert both.chosen_tasks == ("ant", "my.py:Walker") and both.subject == "ant-Walker"


def test_every_study_is_a_function_of_the_library():
    for name in trot.study.STUDIES:
        assert callable(getattr(trot.study, name.replace("-", "_"))), name
    with pytest.raises(AttributeError, match="no attribute 'landscapes'"):
        _ = trot.study.landscapes


@pytest.mark.campaign
@pytest.mark.slow
def test_functions_of_the_library_return_what_the_commands_write(tmp_path):
    options = {"device": "cpu", "iterations": 8, "studies": tmp_path, "changes": tuple(SMALL)}
    found = trot.study.horizon(TASK, horizons=(4, 8), samples=32, **options)
    assert list(found.horizons) == [4, 8]
    same = ["--horizons", "4", "8", "--samples", "32", "--iterations", "8"]
    assert main(command(tmp_path, "horizon", *same, changes=SMALL)) == 0
    with (tmp_path / "horizon-Docking" / "horizon.csv").open() as file:
        written = [float(row["best_return_mean"]) for row in csv.DictReader(file)]
    assert written == pytest.approx(list(found.best_return))
    report = trot.study.critic(TASK, **options)
    assert [end.num_runs for end in report.ends] == [1, 1]
