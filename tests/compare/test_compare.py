"""`trot compare` as a user meets it: interrupted, gone on with, with a run that fails, and by the clock."""

import csv
import os

import docking
import pytest
from children_here import run_children_here
from ctrl_c import ctrl_c_after_first_row, timeless_rows

from trot.cli import main
from trot.runs.folder import RunFolder
from trot.runs.lock import RunLock

TASK = f"{docking.__file__}:Docking"
SMALL = ["num_worlds=4", "horizon=8", "actor_hidden=8", "critic_hidden=8", "critic_passes=1", "save_every=1000"]

ITERATIONS = 80
"""Enough for a Ctrl-C to come in the midst of them."""

pytestmark = pytest.mark.slow


def command(root, *options, algos=("shac",), seeds=("0",), changes=SMALL):
    given = ["--algos", *algos, "--seeds", *seeds, "--device", "cpu", "--runs", str(root), *options]
    return ["compare", TASK, *given, "--set", *changes]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT to send to one process")
def test_an_interrupted_comparison_goes_on_to_the_same_numbers(tmp_path, capsys, monkeypatch):
    length = ["--iterations", f"{ITERATIONS}"]
    arguments = command(tmp_path, *length, seeds=("0", "1"))
    first, second = (tmp_path / "compare-Docking" / f"Docking-shac-{seed}" for seed in (0, 1))
    begun, stopped = ctrl_c_after_first_row(arguments, first)
    assert begun.startswith("2 runs: 0 finished, 0 to go on with, 2 to begin; 1 at a time on cpu.")
    assert stopped.startswith("Stopped; 0 of 2 runs are finished. Go on: trot compare ")
    assert stopped.endswith("--set " + " ".join(SMALL))
    # The child has saved though no checkpoint was due.
    saved = RunFolder.open(first).load_checkpoint("last")["iteration"]
    assert saved == len(timeless_rows(first)) > 0 and saved < ITERATIONS and not second.exists()
    run_children_here(monkeypatch)
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert "2 runs: 0 finished, 1 to go on with, 1 to begin" in printed.out
    assert "100.0/100 %" in printed.err
    options = [part for change in SMALL for part in ("--" + change.replace("_", "-")).split("=")]
    whole = ["train", TASK, *length, "--device", "cpu", "--runs", str(tmp_path), "--name", "whole"]
    assert main([*whole, *options]) == 0
    assert timeless_rows(first) == timeless_rows(tmp_path / "whole") != timeless_rows(second)
    with (tmp_path / "compare-Docking" / "returns.csv").open() as file:
        (row,) = csv.DictReader(file)
    ends = [timeless_rows(path)[-1]["episode_return"] for path in (first, second)]
    assert row["seeds"] == "2" and float(row["final_return_mean"]) == pytest.approx(sum(ends) / 2)


def test_a_run_that_fails_is_named_with_its_log_and_the_others_are_compared(tmp_path, capsys, monkeypatch):
    run_children_here(monkeypatch)
    broken = tmp_path / "broken.py"
    broken.write_text(
        "from dataclasses import replace\n"
        "from trot.learn.algorithms.shac import SHAC\n"
        "def refuse(env, settings, seed):\n"
        "    raise ValueError('no luck today')\n"
        "BROKEN = replace(SHAC, name='broken', label='Broken', learner=refuse)\n"
    )
    options = ["--iterations", "12", "--parallel", "2", "--name", "mine", "--variants", "brief:horizon=4"]
    assert main(command(tmp_path, *options, algos=("shac", f"{broken}:BROKEN"))) == 1
    printed = capsys.readouterr()
    log = tmp_path / "mine" / "logs" / "Docking-broken-0.log"
    failure = f"Docking-broken-0 failed with exit code 2: trot train: no luck today (log: {log})"
    assert failure in printed.err.splitlines()
    assert "1 failed" in printed.err and "no luck today" in log.read_text()
    assert "Left out: Docking-broken-0, which is not finished." in printed.out
    assert "| variant" in printed.out and "| SHAC" in printed.out and "| brief" in printed.out
    assert "| Broken" not in printed.out
    steps = {name: timeless_rows(tmp_path / "mine" / f"Docking-{name}-0")[-1]["steps"] for name in ("shac", "brief")}
    assert steps == {"shac": 12 * 8 * 4, "brief": 12 * 4 * 4}, "what is said for all, but for the variant"
    assert printed.out.endswith(f"{tmp_path / 'mine' / 'curves.svg'}\n")
    assert (tmp_path / "mine" / "table.md").read_text() in printed.out


@pytest.mark.campaign
def test_minutes_end_runs_that_are_finished_then_and_go_on_for_more(tmp_path, capsys):
    # Windows of a whole episode: on a slow machine the first minutes are over after one.
    changes = [change for change in SMALL if not change.startswith("horizon")] + [f"horizon={docking.STEPS}"]

    def compare(minutes):
        assert main(command(tmp_path, "--iterations", "1000000", "--minutes", minutes, changes=changes)) == 0
        return capsys.readouterr().out

    path = tmp_path / "compare-Docking" / "Docking-shac-0"
    assert "1 runs: 0 finished, 0 to go on with, 1 to begin" in compare("0.01")
    few = timeless_rows(path)
    assert RunFolder.open(path).last_metrics()["seconds"] >= 0.6
    table = compare("0.01")
    assert "to begin" not in table and timeless_rows(path) == few
    assert "1 to go on with" in compare("0.03")
    many = timeless_rows(path)
    assert many[: len(few)] == few and len(many) > len(few)
    assert RunFolder.open(path).last_metrics()["seconds"] >= 1.8
    assert compare("0.01") == table, "the first minutes of the longer run"
    assert timeless_rows(path) == many


def test_a_comparison_is_made_by_one_process_at_a_time(tmp_path, capsys):
    folder = tmp_path / "compare-Docking"
    folder.mkdir()
    lock = RunLock(folder)
    assert main(command(tmp_path, "--iterations", "2")) == 2
    assert f"'{folder}' is being trained by process {os.getpid()}" in capsys.readouterr().err
    lock.release()
