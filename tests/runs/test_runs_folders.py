"""Run folders are made with settings and machine, under names of their own, and opened; or one line says why not."""

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta

import pytest
import torch
from run_contents import SETTINGS, rows

from trot.runs.folder import RunFolder


def test_settings_and_machine_are_kept(tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    created = RunFolder.create(tmp_path, "one", {**SETTINGS, "hidden": (64, 64), "clip": math.inf})
    settings = json.loads((tmp_path / "one" / "settings.json").read_text())
    assert len(settings.pop("checksum")) == 64
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
import trot.runs.folder

# Only the choice of the name shall take time, so that the processes meet in it.
trot.runs.folder.describe_machine, os.fsync = dict, lambda descriptor: None

def create(seed):
    for number in range(100):
        barrier.wait(timeout=60)
        settings = {"task": "ant", "algo": "shac", "seed": seed}
        run = trot.runs.folder.RunFolder.create(sys.argv[1], f"run{number}", settings)
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


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX permissions")
def test_a_read_only_run_is_read_and_not_gone_on_with():
    # Not in tmp_path, whose parents are closed to other users.
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        with RunFolder.create(root, "run", SETTINGS) as run:
            path = run.path
        for closed in (path, path / "writer.lock"):
            closed.chmod(0o555)
        with as_an_ordinary_user():
            assert RunFolder.open(path).settings == SETTINGS
            with pytest.raises(ValueError) as raised:
                RunFolder.reopen(path)
        path.chmod(0o755)
    assert str(raised.value) == f"cannot write into the run folder '{path}': Permission denied"


def test_a_root_that_is_a_file_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cannot make a run folder in '.*file': File exists"):
        RunFolder.create(tmp_path / "file", "one", SETTINGS)


def test_settings_change_where_they_differ(run):
    file = run.path / "settings.json"
    run.change_settings(iterations=800, sizes=(1, 2))
    changed = {**SETTINGS, "iterations": 800, "sizes": [1, 2]}
    assert run.settings == RunFolder.open(run.path).settings == changed
    # What does not change keeps its place, for whoever compares two files.
    assert list(run.settings)[: len(SETTINGS)] == list(SETTINGS)
    first, checksum, task, *_ = file.read_text().splitlines()
    assert file.read_text().endswith("}\n") and (first, task) == ("{", '  "task": "cartpole",')
    assert checksum.startswith('  "checksum": "')
    # Without that line it is a file that was changed on purpose.
    file.write_text(file.read_text().replace(f"{checksum}\n", "").replace("800", "900"))
    assert RunFolder.open(run.path).settings == {**changed, "iterations": 900}


def test_every_flipped_bit_in_the_settings_is_found_or_changes_none(run):
    file = run.path / "settings.json"
    whole = file.read_bytes()
    found = 0
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        try:
            opened = RunFolder.open(run.path).settings
        except ValueError as error:
            assert str(file) in str(error)
            found += 1
        else:
            assert opened == SETTINGS, place
    assert found > len(whole) / 2
    # Several at once, one of them in the name of the checksum.
    file.write_bytes(whole.replace(b"checksum", b"checksul").replace(b"0.99", b"0.98"))
    with pytest.raises(ValueError, match="is not as trot wrote it"):
        RunFolder.open(run.path)


def test_settings_that_do_not_change_are_not_written(run):
    file = run.path / "settings.json"
    before = file.stat()
    # A tuple is a list to JSON.
    run.change_settings(iterations=500, hidden=(64, 64))
    run.change_settings()
    after = file.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    run.change_settings(hidden=(64, 65))
    assert file.stat().st_ino != before.st_ino


def test_settings_of_an_earlier_version_are_written_anew(run):
    file = run.path / "settings.json"
    file.write_text(json.dumps({**SETTINGS, "shac": {"num_worlds": 4}}))
    older = RunFolder.open(run.path)
    assert "shac" in json.loads(file.read_text()), "to open it writes nothing"
    # Nothing changes but the form; options that came later are off.
    older.change_settings(iterations=500)
    since = {"clip_worlds": 0.0, "compare_halves": False, "symmetric": False, "staggered": False}
    changed = {**SETTINGS, "settings": {"num_worlds": 4, **since}, "label": "SHAC"}
    assert older.settings == changed
    assert json.loads(file.read_text()).keys() == {*changed, "checksum"}


def test_settings_change_whole_or_not_at_all(run, monkeypatch):
    file = run.path / "settings.json"
    text, names = file.read_bytes(), sorted(os.listdir(run.path))

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            run.change_settings(iterations=800)
    with pytest.raises(TypeError, match="not JSON serializable"):
        run.change_settings(net=torch.nn.Identity())
    assert file.read_bytes() == text and sorted(os.listdir(run.path)) == names
    assert run.settings == SETTINGS


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
