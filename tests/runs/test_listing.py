"""trot list: every run below a folder, with what it reached."""

import subprocess
import sys

import pytest
from run_contents import SETTINGS, rows

from trot.runs.folder import RunFolder
from trot.runs.listing import list_command, list_runs, print_runs


@pytest.fixture
def several(tmp_path):
    """Runs at every depth that is looked into, a broken one, and folders that are none of ours."""
    root = tmp_path / "runs"

    def create(folder, name, task, algo, seed, *done):
        run = RunFolder.create(root / folder, name, {**SETTINGS, "task": task, "algo": algo, "seed": seed})
        run.append_metrics(rows(*done))
        return run

    create("", "x", "hopper", "shac", 0, 1, 2)
    create("deep/deeper", "y", "ant", "shac", 10, 500)
    create("deep", "z", "ant", "shac", 2)
    create("deep/deeper/deepest", "too-deep", "ant", "shac", 3)
    create("", "bptt", "ant", "bptt", 7, 400)
    (create("", "cut", "ant", "bptt", 8, 1).path / "settings.json").write_text("{")
    (create("", "garbled", "ant", "bptt", 9, 1).path / "metrics.csv").write_text("iteration\nabc\n")
    (root / "editor").mkdir()
    (root / "editor" / "settings.json").write_text("// an editor's\n{}")
    return root


def test_runs_are_listed_with_what_they_reached(several):
    runs = list_runs(several)
    assert [(run.task, run.algo, run.seed, run.iterations, run.finished) for run in runs if run.problem is None] == [
        ("ant", "bptt", 7, 400, False),
        ("ant", "shac", 2, 0, False),
        ("ant", "shac", 10, 500, True),
        ("hopper", "shac", 0, 2, False),
    ]
    best = {run.folder: (run.best_return, run.seconds, run.planned_iterations) for run in runs}
    assert best[several / "bptt"] == (200.0, 24000.0, 500)
    assert best[several / "deep" / "z"] == (None, None, 500)
    problems = [run for run in runs if run.problem is not None]
    assert [run.folder.name for run in problems] == ["cut", "garbled"]
    assert "settings.json' is broken" in problems[0].problem
    assert "metrics.csv is broken in line 2" in problems[1].problem


@pytest.mark.parametrize(
    ("goal", "episodes", "episode_return", "finished"),
    [
        (100.0, 4, 100.0, "yes"),
        (100.0, 9, 250.0, "yes"),
        (100.0, 9, 99.9, "no"),
        (-100.0, 9, -99.0, "yes"),
        # Fewer episodes than worlds say nothing yet.
        (100.0, 3, 250.0, "no"),
        (None, 9, 250.0, "no"),
    ],
)
def test_a_run_that_met_its_goal_is_finished(tmp_path, capsys, goal, episodes, episode_return, finished):
    own = {"schedule": {"stop_at": goal}, "settings": {"num_worlds": 4}}
    run = RunFolder.create(tmp_path, "run", {**SETTINGS, **own})
    before = {"iteration": 6, "episodes": 9.0, "episode_return": 1000.0}
    # It is the last row that counts.
    run.append_metrics([before, {"iteration": 7, "episodes": episodes, "episode_return": episode_return}])
    print_runs(tmp_path)
    head, line = (text.split() for text in capsys.readouterr().out.splitlines())
    assert head[-2] == "finished" and line[-2] == finished
    assert line[3] == "7/500"


@pytest.mark.parametrize(
    ("minutes", "seconds", "finished"),
    [(2.0, 120.0, True), (2, 130.5, True), (2.0, 119.999, False), (None, 1e6, False), ("two", 1e6, False)],
)
def test_a_run_whose_time_is_up_is_finished_though_it_has_not_learned_all(tmp_path, minutes, seconds, finished):
    run = RunFolder.create(tmp_path, "run", {**SETTINGS, "schedule": {"minutes": minutes}})
    run.append_metrics([{"iteration": 7, "seconds": seconds}])
    (listed,) = list_runs(tmp_path)
    assert listed.finished is finished and not listed.learned_all and listed.problem is None


@pytest.mark.parametrize(
    "own",
    [
        {"schedule": 3, "settings": {"num_worlds": 4}},
        {"schedule": {"stop_at": "much"}, "settings": {"num_worlds": 4}},
        {"schedule": {"stop_at": 1.0}, "settings": {}},
        {"schedule": {"stop_at": 1.0}},
    ],
)
def test_a_goal_that_makes_no_sense_is_not_met(tmp_path, own):
    run = RunFolder.create(tmp_path, "run", {**SETTINGS, **own})
    run.append_metrics([{"iteration": 7, "episodes": 9, "episode_return": 1000.0}])
    (listed,) = list_runs(tmp_path)
    assert listed.problem is None and not listed.finished


def test_a_run_of_the_same_name_comes_in_the_order_of_its_number(tmp_path):
    for _ in range(11):
        RunFolder.create(tmp_path, "ant", SETTINGS)
    assert [run.folder.name for run in list_runs(tmp_path)] == ["ant", *(f"ant-{i}" for i in range(2, 12))]


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300"])
def test_a_run_with_times_that_make_no_sense_does_not_break_the_list(several, capsys, seconds):
    (several / "bptt" / "metrics.csv").write_text(f"iteration,seconds\n3,{seconds}\n")
    print_runs(several)
    shown = capsys.readouterr().out
    assert shown.count("\n") == 7
    (line,) = (line for line in shown.splitlines() if line.endswith("bptt"))
    assert line.split()[3:6] == ["3/500", "-", "-"]


def test_whatever_is_in_a_run_does_not_break_the_list(several, capsys):
    # Deeper than Python's parser goes: no ValueError.
    (several / "bptt" / "settings.json").write_text("[" * 100_000)
    print_runs(several)
    shown = capsys.readouterr().out
    assert shown.count("\n") == 7
    assert f"cannot be read: '{several / 'bptt'}': RecursionError" in shown


LIST_WITHOUT_HEAVY_MODULES = """
import sys
from trot.runs.listing import list_command
code = list_command(["--root", sys.argv[1]])
print("heavy:", *sorted({"torch", "warp", "mujoco", "numpy"} & set(sys.modules)))
sys.exit(code)
"""


def test_the_table(several):
    result = subprocess.run(
        [sys.executable, "-c", LIST_WITHOUT_HEAVY_MODULES, several], capture_output=True, text=True, encoding="utf-8"
    )
    assert result.returncode == 0, result.stderr
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["task", "algo", "seed", "iterations", "best", "return", "time", "finished", "folder"]
    assert lines[0].split() == ["ant", "bptt", "7", "400/500", "200.0", "6:40:00", "no", str(several / "bptt")]
    assert lines[1].split() == ["ant", "shac", "2", "0/500", "-", "-", "no", str(several / "deep" / "z")]
    assert lines[2].split()[-2] == "yes"
    assert lines[4].startswith("cannot be read: ") and lines[5].startswith("cannot be read: ")
    assert lines[6] == "heavy:"


def test_a_run_folder_itself_can_be_listed(run, capsys):
    print_runs(run.path)
    assert str(run.path) in capsys.readouterr().out


@pytest.mark.parametrize("exists", [True, False])
def test_without_runs_the_list_says_how_to_make_one(tmp_path, capsys, exists):
    root = tmp_path if exists else tmp_path / "runs"
    assert list_command(["--root", str(root)]) == 0
    assert capsys.readouterr().out == f"No runs in '{root}' yet. Make one: trot train cartpole\n"


def test_the_list_s_help(capsys):
    with pytest.raises(SystemExit) as stopped:
        list_command(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "trot list" in shown and "--runs" in shown and "holds the runs" in shown
