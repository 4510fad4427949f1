"""Run folders: what is written is read again, whoever is killed at whatever moment."""

import contextlib
import csv
import json
import math
import os
import random
import shutil
import stat
import subprocess
import sys
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

from trot.list_runs import list_command, list_runs, print_runs
from trot.runs import RunFolder

SETTINGS = {"task": "cartpole", "algo": "shac", "seed": 3, "iterations": 500, "gamma": 0.99, "hidden": [64, 64]}


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path, "a run", SETTINGS)


def rows(*iterations):
    return [{"iteration": i, "return": i / 3, "best_return": i / 2, "seconds": 60.0 * i} for i in iterations]


def iterations(run):
    """As another program reads them."""
    with (run.path / "metrics.csv").open(newline="") as file:
        return [int(row["iteration"]) for row in csv.DictReader(file)]


# Creating and opening


def test_settings_and_machine_are_kept(tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    created = RunFolder.create(tmp_path, "one", {**SETTINGS, "hidden": (64, 64), "clip": math.inf})
    settings = json.loads((tmp_path / "one" / "settings.json").read_text())
    assert settings == {**SETTINGS, "clip": math.inf}
    # A run that goes on sees the same as one that begins: lists, where tuples were given.
    assert created.settings == RunFolder.open(tmp_path / "one").settings == settings

    machine = json.loads((tmp_path / "one" / "machine.json").read_text())
    assert machine["versions"]["torch"] == torch.__version__
    assert set(machine["versions"]) == {"trot", "torch", "warp-lang", "mujoco"} and all(machine["versions"].values())
    assert machine["python"] == ".".join(map(str, sys.version_info[:3]))
    assert machine["cpu"] and machine["platform"] and machine["cores"] == os.cpu_count()
    assert (machine["gpu"] is None) == (not torch.cuda.is_available())
    started = datetime.fromisoformat(machine["started"])
    assert started.utcoffset() == timedelta(0) and before <= started <= datetime.now(UTC)


def test_machine_knows_the_commit_and_whether_files_changed(tmp_path, monkeypatch):
    if shutil.which("git") is None:
        pytest.skip("needs git")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)

    def git_state():
        folder = RunFolder.create(tmp_path / "runs", "run", SETTINGS).path
        return json.loads((folder / "machine.json").read_text())["git"]

    def git(*arguments):
        identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)

    assert git_state() is None
    git("init", "--initial-branch=main")
    assert git_state() is None, "a repository without a commit"
    (tmp_path / "robot.xml").write_text("<mujoco/>")
    git("add", "robot.xml")
    git("commit", "--message=first")
    commit = (tmp_path / ".git" / "refs" / "heads" / "main").read_text().strip()
    assert git_state() == {"commit": commit, "dirty": False}, "the runs themselves make nothing dirty"
    (tmp_path / "robot.xml").write_text("<mujoco model='changed'/>")
    assert git_state() == {"commit": commit, "dirty": True}
    monkeypatch.setenv("PATH", "")
    assert git_state() is None, "no git installed"


def test_a_taken_name_gets_a_number(tmp_path):
    names = [RunFolder.create(tmp_path / "new" / "root", "ant", SETTINGS).path.name for _ in range(3)]
    assert names == ["ant", "ant-2", "ant-3"]


CREATE_TOGETHER = """
import multiprocessing, os, sys
import trot.runs

# Only the choice of the name shall take time, so that the processes meet in it.
trot.runs.describe_machine, os.fsync = dict, lambda descriptor: None

def create(seed):
    for number in range(100):
        barrier.wait(timeout=60)
        run = trot.runs.RunFolder.create(sys.argv[1], f"run{number}", {"task": "ant", "algo": "shac", "seed": seed})
        print(f"{run.path.name} {seed}\\n", end="", flush=True)

context = multiprocessing.get_context("fork")
barrier = context.Barrier(3)
processes = [context.Process(target=create, args=[seed]) for seed in range(3)]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(any(process.exitcode for process in processes))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_processes_that_create_the_same_name_get_folders_of_their_own(tmp_path):
    result = subprocess.run([sys.executable, "-c", CREATE_TOGETHER, tmp_path], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    created = [line.split() for line in result.stdout.splitlines()]
    assert sorted(name for name, _ in created) == sorted(f"run{i}{end}" for i in range(100) for end in ("", "-2", "-3"))
    assert all(RunFolder.open(tmp_path / name).settings["seed"] == int(seed) for name, seed in created)


def test_paths_with_spaces_and_other_alphabets(tmp_path):
    settings = {**SETTINGS, "task": "Läufer.py:Läufer"}
    run = RunFolder.create(tmp_path / "mes essais" / "日本", "Läufer nº 1 🦿", settings)
    run.append_metrics(rows(1))
    run.save_checkpoint("last", {"text": "日本"})
    again = RunFolder.open(run.path)
    assert again.settings == settings
    assert (len(again.read_metrics()), again.load_checkpoint()) == (1, {"text": "日本"})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/tmp", "../a"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="a run's name is the name of one folder, not '"):
        RunFolder.create(tmp_path, name, SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_cannot_be_kept_leave_no_folder(tmp_path):
    with pytest.raises(ValueError, match="a run's settings need task, seed"):
        RunFolder.create(tmp_path, "one", {"algo": "shac"})
    with pytest.raises(TypeError, match="not JSON serializable"):
        RunFolder.create(tmp_path, "one", {**SETTINGS, "net": torch.nn.Identity()})
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def as_an_ordinary_user():
    """Root may write everywhere; without its rights the test means something."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX permissions")
def test_a_read_only_root_is_one_clear_line(tmp_path):
    root = tmp_path / "shared"
    root.mkdir()
    root.chmod(0o555)
    with as_an_ordinary_user(), pytest.raises(ValueError) as raised:
        RunFolder.create(root, "one", SETTINGS)
    assert str(raised.value) == f"cannot make a run folder in '{root}': Permission denied"


def test_a_root_that_is_a_file_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot make a run folder in '.*file': File exists"):
        RunFolder.create(tmp_path / "file", "one", SETTINGS)


def test_what_is_no_run_folder_says_why(tmp_path):
    def problem(path):
        with pytest.raises((ValueError, FileNotFoundError)) as raised:
            RunFolder.open(path)
        assert "\n" not in str(raised.value)
        # The command line prints the system's file name instead of our text where there is one.
        assert getattr(raised.value, "filename", None) is None
        return str(raised.value)

    assert problem(tmp_path / "none") == f"no such run folder: '{tmp_path / 'none'}'"
    file = tmp_path / "settings.json"
    assert problem(tmp_path) == f"'{tmp_path}' is not a run folder: it has no settings.json"
    file.write_text('{"task": "ant", ')
    assert problem(file) == f"'{file}' is a file, not a run folder"
    assert problem(tmp_path).startswith(f"'{file}' is broken: ")
    file.write_bytes(b"\xff\xfe\x00")
    assert problem(tmp_path).startswith(f"'{file}' is broken: ")
    file.write_text('{"editor.fontSize": 12}')
    assert problem(tmp_path) == f"'{file}' is not a run's: it lacks task, algo, seed"
    file.write_text("[]")
    assert problem(tmp_path) == f"'{file}' is not a run's: it lacks task, algo, seed"


# Metrics


def test_metrics_are_read_as_they_were_written(run):
    assert run.read_metrics() == [] and run.last_metrics() == {}
    written = [
        {"iteration": 1, "return": 0.1, "loss, squared": float(np.float32(0.1))},
        {"iteration": 2, "return": -1e-300, "loss, squared": math.inf},
        {"loss, squared": 3, "return": np.float64(2 / 3), "iteration": 3},
    ]
    run.append_metrics(written[:2])
    run.append_metrics([])
    run.append_metrics(written[2:])
    assert run.read_metrics() == written
    assert run.last_metrics() == written[-1]
    with (run.path / "metrics.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == ["iteration", "return", "loss, squared"]
    assert [row[0] for row in table[1:]] == ["1", "2", "3"], "whole numbers stay whole"
    run.append_metrics([{"iteration": 4, "return": math.nan, "loss, squared": True}])
    assert math.isnan(run.last_metrics()["return"]) and run.last_metrics()["loss, squared"] == 1


def test_other_columns_are_refused_and_nothing_is_written(run):
    run.append_metrics(rows(1))
    before = (run.path / "metrics.csv").read_bytes()
    for bad in ({"iteration": 2}, {**rows(2)[0], "reward": 1.0}):
        with pytest.raises(ValueError, match=r"metrics.csv has the columns iteration, return, .*; this row has iter"):
            run.append_metrics([*rows(2), bad])
    assert (run.path / "metrics.csv").read_bytes() == before


def test_metrics_cut_at_any_byte_lose_only_the_last_line(run):
    run.append_metrics(rows(1, 2, 3))
    file = run.path / "metrics.csv"
    whole = file.read_bytes()
    for length in range(len(whole) + 1):
        file.write_bytes(whole[:length])
        complete = max(whole[:length].count(b"\n") - 1, 0)
        assert run.read_metrics() == rows(1, 2, 3)[:complete]
        assert run.last_metrics() == (rows(complete)[0] if complete else {})
        run.append_metrics(rows(9))
        assert iterations(run) == [*range(1, complete + 1), 9]


def test_a_broken_line_in_the_middle_is_named(run):
    run.append_metrics(rows(1, 2, 3))
    file = run.path / "metrics.csv"
    whole = file.read_text().splitlines(keepends=True)
    for bad in ("2,abc,1.0,120.0\n", "2,0.5\n", "\0\0\0\n", "\n"):
        file.write_text("".join([*whole[:2], bad, whole[3]]))
        with pytest.raises(ValueError, match=r"metrics.csv is broken in line 3: "):
            run.read_metrics()


def test_truncated_metrics_end_with_the_iteration(run):
    run.truncate_metrics(5)
    assert not (run.path / "metrics.csv").exists()
    run.append_metrics(rows(*range(1, 11)))
    expected = (run.path / "metrics.csv").read_text().splitlines()[:8]
    with (run.path / "metrics.csv").open("a") as file:
        file.write("11,3.6")
    run.truncate_metrics(7)
    assert (run.path / "metrics.csv").read_text().splitlines() == expected, "what is kept is kept to the letter"
    run.append_metrics(rows(8))
    assert iterations(run) == list(range(1, 9))
    run.truncate_metrics(0)
    assert run.read_metrics() == []
    run.append_metrics(rows(1))
    assert iterations(run) == [1]


def test_metrics_without_iterations_cannot_be_truncated(run):
    run.append_metrics([{"return": 1.0}])
    with pytest.raises(ValueError, match=r"metrics.csv has no column 'iteration'"):
        run.truncate_metrics(1)


def test_best_return(run):
    assert run.best_return() is None
    run.append_metrics([{"iteration": 1, "best_return": -math.inf}])
    assert run.best_return() is None, "before the first episode has ended"
    run.append_metrics([{"iteration": 2, "best_return": 12.5}])
    assert run.best_return() == 12.5


# Checkpoints


def test_a_checkpoint_loads_with_plain_torch(run):
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    optimizer = torch.optim.Adam(network.parameters(), lr=torch.tensor(1e-3), betas=(0.7, 0.95))
    network(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()
    content = {
        "iteration": 400,
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "generator": torch.Generator().manual_seed(1).get_state(),
        "nested": OrderedDict(a=[1, 2.5, None, True, "text"], b=(torch.float64, torch.device("cpu"))),
    }
    path = run.save_checkpoint("iteration_000400", content)
    assert path == run.path / "checkpoints" / "iteration_000400.pt"
    for loaded in (torch.load(path, weights_only=True), run.load_checkpoint("iteration_000400")):
        assert loaded.keys() == content.keys() and loaded["iteration"] == 400 and loaded["nested"] == content["nested"]
        assert all(loaded["network"][name].equal(value) for name, value in network.state_dict().items())
        assert loaded["generator"].equal(content["generator"])
        moments = optimizer.state_dict()["state"][0]["exp_avg"]
        assert moments.any() and loaded["optimizer"]["state"][0]["exp_avg"].equal(moments)


def test_checkpoints_load_to_the_device(run):
    run.save_checkpoint("last", {"weights": torch.ones(3)})
    assert run.load_checkpoint(device="meta")["weights"].device.type == "meta"
    assert run.load_checkpoint(device=torch.device("cpu"))["weights"].device.type == "cpu"


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ({"best": np.float64(1.0)}, r"content\['best'\] is a numpy.float64"),
        ({"a": [0, {"b": Path("x")}]}, r"content\['a'\]\[1\]\['b'\] is a pathlib"),
        ({"net": torch.nn.Identity()}, r"content\['net'\] is a torch.nn"),
        ({np.int64(1): 1}, "a key of content is a numpy.int64"),
    ],
)
def test_what_would_not_load_is_refused_before_the_old_file_is_lost(run, content, where):
    run.save_checkpoint("last", {"iteration": 1})
    with pytest.raises(TypeError, match=where):
        run.save_checkpoint("last", content)
    assert run.load_checkpoint() == {"iteration": 1}


def test_a_failed_write_leaves_the_old_checkpoint_and_nothing_else(run, monkeypatch):
    run.save_checkpoint("last", {"iteration": 1})

    def disk_full(content, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(torch, "save", disk_full)
        run.save_checkpoint("last", {"iteration": 2})
    assert run.load_checkpoint() == {"iteration": 1}
    assert [file.name for file in (run.path / "checkpoints").iterdir()] == ["last.pt"]


def test_names_are_sorted_as_a_run_goes(run):
    names = ["initial", "iteration_000400", "iteration_001000", "iteration_1000000", "best", "last", "mine"]
    assert run.checkpoint_names() == []
    for name in reversed(names):
        run.save_checkpoint(name, {})
    (run.path / "checkpoints" / ".writing-12ab-last.pt").write_bytes(b"half")
    assert run.checkpoint_names() == names
    for bad in ("", "a/b", "..", "best.pt"):
        with pytest.raises(ValueError, match="a checkpoint's name is of letters"):
            run.save_checkpoint(bad, {})


def test_missing_and_broken_checkpoints_say_so(run):
    with pytest.raises(FileNotFoundError) as raised:
        run.load_checkpoint()
    assert str(raised.value) == f"'{run.path}' has no checkpoint 'last'; it has: none yet"
    run.save_checkpoint("last", {"weights": torch.ones(1000)})
    run.save_checkpoint("initial", {})
    with pytest.raises(FileNotFoundError, match="has no checkpoint 'best'; it has: initial, last"):
        run.load_checkpoint("best")

    path = run.path / "checkpoints" / "last.pt"
    whole = path.read_bytes()
    for broken in (b"", b"nonsense", whole[: len(whole) // 2]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"the checkpoint '.*last.pt' cannot be read: .+") as broken_one:
            run.load_checkpoint()
        assert "\n" not in str(broken_one.value)
    torch.save([1], path)
    with pytest.raises(ValueError, match="it holds a list, not a dict"):
        run.load_checkpoint()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no folders to sync")
def test_a_checkpoint_is_on_the_disk_before_it_takes_its_name(run, monkeypatch):
    events = []
    sync, replace = os.fsync, os.replace

    def watched_sync(descriptor):
        status = os.fstat(descriptor)
        events.append("folder" if stat.S_ISDIR(status.st_mode) else f"file of {status.st_size}")
        sync(descriptor)

    def watched_replace(source, target):
        events.append(f"becomes {Path(target).name}")
        assert Path(source).parent == Path(target).parent, "a rename across disks would be a copy"
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "replace", watched_replace)
    path = run.save_checkpoint("last", {"weights": torch.ones(1000)})
    assert events == [f"file of {path.stat().st_size}", "becomes last.pt", "folder"]
    events.clear()
    run.append_metrics(rows(1))
    assert events == [f"file of {(run.path / 'metrics.csv').stat().st_size}"]


# Killed writers

KILLED_WRITERS = """
import os, signal, sys, time, torch
from trot.runs import RunFolder

torch.set_num_threads(1)

def write():
    run = RunFolder.open(sys.argv[1])
    iteration = run.load_checkpoint()["iteration"] if run.checkpoint_names() else 0
    run.truncate_metrics(iteration)
    while True:
        iteration += 1
        run.append_metrics([{"iteration": iteration, "return": iteration / 3}])
        weights = torch.full((1_250_000,), float(iteration))
        run.save_checkpoint("last", {"iteration": iteration, "weights": weights, "end": iteration})

for line in sys.stdin:
    # Forked, so that PyTorch is imported once only.
    writer = os.fork()
    if writer == 0:
        try:
            write()
        finally:
            os._exit(1)
    time.sleep(float(line))
    os.kill(writer, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork and SIGKILL")
def test_kills_at_any_moment_leave_a_whole_checkpoint_and_metrics_that_go_on(run):
    moments = random.Random(5)
    reached, rounds_with_leftovers = 0, 0
    command = [sys.executable, "-c", KILLED_WRITERS, run.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writers:
        for _ in range(20):
            writers.stdin.write(f"{moments.uniform(0.02, 0.3)}\n")
            writers.stdin.flush()
            assert writers.stdout.readline() == "-9\n", "the writer stopped before it was killed"

            leftovers = list((run.path / "checkpoints").glob(".*"))
            rounds_with_leftovers += bool(leftovers)
            opened = RunFolder.open(run.path)
            assert set(opened.checkpoint_names()) <= {"last"}
            saved = reached
            if opened.checkpoint_names():
                content = torch.load(run.path / "checkpoints" / "last.pt", weights_only=True)
                saved = content["iteration"]
                assert content["weights"].shape == (1_250_000,) and content["end"] == saved
                assert bool((content["weights"] == saved).all())
            assert saved >= reached
            metrics = [row["iteration"] for row in opened.read_metrics()]
            # Metrics are written first: every checkpoint has its row, and at most one row waits for its checkpoint.
            assert metrics == list(range(1, len(metrics) + 1)) and len(metrics) in (saved, saved + 1)
            reached = saved
            for file in leftovers:
                file.unlink()
        writers.stdin.close()
    assert reached >= 5, "too slow a disk to mean anything"
    assert rounds_with_leftovers >= 3, "hardly a kill hit a checkpoint being written"


def test_leftovers_of_killed_writers_go_and_those_of_living_ones_stay(run):
    run.save_checkpoint("last", {"iteration": 1})
    old, new = run.path / "checkpoints" / ".writing-1-last.pt", run.path / "checkpoints" / ".writing-2-last.pt"
    old_metrics = run.path / ".writing-3-metrics.csv"
    for file in (old, new, old_metrics):
        file.write_bytes(b"half")
    long_ago = new.stat().st_mtime - 3600
    for file in (old, old_metrics, run.path / "checkpoints" / "last.pt", run.path / "settings.json"):
        os.utime(file, (long_ago, long_ago))
    opened = RunFolder.open(run.path)
    assert (old.exists(), old_metrics.exists(), new.exists()) == (False, False, True)
    assert opened.load_checkpoint() == {"iteration": 1}


# trot list


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


def test_a_run_of_the_same_name_comes_in_the_order_of_its_number(tmp_path):
    for _ in range(11):
        RunFolder.create(tmp_path, "ant", SETTINGS)
    assert [run.folder.name for run in list_runs(tmp_path)] == ["ant", *(f"ant-{i}" for i in range(2, 12))]


LIST_WITHOUT_HEAVY_MODULES = """
import sys
from trot.list_runs import list_command
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
    assert "trot list" in shown and "--root" in shown and "holds the runs" in shown
