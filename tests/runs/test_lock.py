"""Whoever writes into a run folder holds its lock, and nobody holds it longer than he lives."""

import os
import platform
import subprocess
import sys

import pytest
from run_contents import SETTINGS

from trot.cli import main
from trot.runs.folder import RunFolder

HOLD = """
import sys
from trot.runs.folder import RunFolder

run = RunFolder.reopen(sys.argv[1])
print("holds it", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(run):
    """Another process that goes on with the run."""
    run.release()
    command = [sys.executable, "-c", HOLD, run.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "holds it\n"
        yield process
        process.kill()


def test_a_run_that_is_being_trained_is_refused_and_nothing_in_it_changes(run, holder, capsys):
    before = {file: file.read_bytes() for file in run.path.rglob("*")}
    assert main(["resume", str(run.path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    owner = f"process {holder.pid} on {platform.node()}"
    reason = f"'{run.path}' is being trained by {owner}: wait for its end, or stop it with Ctrl-C there"
    assert line == f"trot resume: {reason}"
    assert {file: file.read_bytes() for file in run.path.rglob("*")} == before


def test_a_run_that_is_being_trained_can_be_read(run, holder):
    assert RunFolder.open(run.path).settings == SETTINGS
    RunFolder.open(run.path).release()
    with pytest.raises(ValueError, match="is being trained"):
        RunFolder.reopen(run.path)


def test_the_lock_dies_with_its_process(run, holder):
    holder.kill()
    holder.wait()
    with RunFolder.reopen(run.path):
        assert f"process {os.getpid()} " in (run.path / "writer.lock").read_text()


def test_the_lock_is_held_from_the_beginning_to_the_end_and_no_longer(tmp_path):
    own = f"is being trained by process {os.getpid()} on "
    with RunFolder.create(tmp_path, "run", SETTINGS) as run, pytest.raises(ValueError, match=own):
        RunFolder.reopen(run.path)
    with RunFolder.reopen(run.path), pytest.raises(ValueError, match="is being trained"):
        RunFolder.reopen(run.path)
    forgotten = RunFolder.reopen(run.path)
    del forgotten
    RunFolder.reopen(run.path).release()
    assert (run.path / "writer.lock").read_text() == ""


def test_a_disk_without_locks_is_told_and_trained_on(run, monkeypatch, capsys):
    def no_locks(descriptor):
        raise OSError(38, "Function not implemented")

    run.release()
    monkeypatch.setattr("trot.runs.lock._lock", no_locks)
    with RunFolder.reopen(run.path):
        (line,) = capsys.readouterr().err.splitlines()
    assert line == f"'{run.path}' cannot be locked: Function not implemented. Do not train it twice at once."
