"""Runs that something stops: a signal, the disk, a change. One line says what and how to go on, and nothing is lost."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from trot.cli import main
from trot.learn.algorithms.shac import Shac
from trot.learn.trainer import Trainer
from trot.runs.folder import RunFolder

SMALL = ["--iterations", "12", "--num-worlds", "4", "--horizon", "8", "--save-every", "4", "--keep-every", "6"]
WALKER = Path(__file__).parents[2] / "examples" / "walker"


def arguments(root, name="run", task="cartpole"):
    return ["train", task, "--device", "cpu", "--runs", str(root), "--name", name, *SMALL]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """How a run ends that nothing stops."""
    root = tmp_path_factory.mktemp("whole")
    assert main(arguments(root)) == 0
    return end_of(RunFolder.open(root / "run"))


def end_of(run):
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in run.read_metrics()]
    weights = run.load_checkpoint("last")["learner"]
    return rows, {name: value for name, value in weights.items() if isinstance(value, torch.Tensor)}


def same_end(run, whole):
    rows, weights = end_of(run)
    return rows == whole[0] and all(weights[name].equal(value) for name, value in whole[1].items())


def kill_in_iteration(monkeypatch, iteration, *signals):
    finish, calls = Shac.finish, []

    def killing(self):
        calls.append(None)
        if len(calls) == iteration:
            for number in signals:
                os.kill(os.getpid(), number)
        finish(self)

    monkeypatch.setattr(Shac, "finish", killing)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to send")
@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGTERM, signal.SIGTERM]])
def test_sigterm_saves_like_ctrl_c(tmp_path, monkeypatch, capsys, whole, signals):
    handler = signal.getsignal(signal.SIGTERM)
    kill_in_iteration(monkeypatch, 7, *signals)
    # So that code which does not notice the signal fails here and does not end the tests.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit) as stopped:
            main(arguments(tmp_path))
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert stopped.value.code == 143
    path = tmp_path / "run"
    assert capsys.readouterr().out.endswith(f"Stopped after iteration 7. Go on: trot resume {path}\n")
    assert RunFolder.open(path).load_checkpoint("last")["iteration"] == 7
    monkeypatch.undo()
    assert main(["resume", str(path)]) == 0
    assert same_end(RunFolder.open(path), whole)


def test_a_second_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, capsys, whole):
    kill_in_iteration(monkeypatch, 7, signal.SIGINT, signal.SIGINT)
    assert main(arguments(tmp_path)) == 130
    path = tmp_path / "run"
    assert capsys.readouterr().out.endswith(f"Stopped. Go on: trot resume {path}\n")
    monkeypatch.undo()
    assert main(["resume", str(path)]) == 0
    assert same_end(RunFolder.open(path), whole)


def test_ctrl_c_before_the_first_iteration_is_one_line_and_the_run_begins_on_resume(
    tmp_path, monkeypatch, capsys, whole
):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "run_to_the_end", interrupted)
    assert main(arguments(tmp_path)) == 130
    path = tmp_path / "run"
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:] == [f"Stopped. Go on: trot resume {path}"] and not printed.err
    monkeypatch.undo()
    assert main(["resume", str(path)]) == 0
    assert same_end(RunFolder.open(path), whole)


@pytest.mark.parametrize("syncs", [4, 6, 8, 9, 11, 14, 17])
@pytest.mark.parametrize("reason", ["No space left on device", "Read-only file system"])
def test_a_disk_that_takes_no_more_is_one_line_and_nothing_is_lost(tmp_path, monkeypatch, capsys, whole, syncs, reason):
    """From the given sync on, and those are all that a run writes: settings, metrics, checkpoints."""
    sync, calls = os.fsync, []

    def full(descriptor):
        calls.append(None)
        if len(calls) > syncs:
            raise OSError(28, reason)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert main(arguments(tmp_path)) == 2
    path = tmp_path / "run"
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        f"trot train: cannot write into '{path}': {reason}. What was saved is whole; when there is room and "
        f"permission, go on: trot resume {path}"
    )
    assert main(["resume", str(path)]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"trot resume: cannot write into '{path}': {reason}")
    monkeypatch.undo()
    assert main(["resume", str(path)]) == 0
    assert same_end(RunFolder.open(path), whole)


def refused(path, capsys):
    """The line that a resume ends with; it has changed nothing in the folder."""
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    capsys.readouterr()
    assert main(["resume", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    return line.removeprefix("trot resume: ")


def test_a_damaged_checkpoint_names_one_to_go_on_from(tmp_path, capsys, whole):
    assert main(arguments(tmp_path)) == 0
    path = tmp_path / "run"
    checkpoints = path / "checkpoints"
    last, kept = checkpoints / "last.pt", checkpoints / "iteration_000006.pt"
    (checkpoints / "iteration_000012.pt").unlink()
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 4
    last.write_bytes(content)
    reason = f"the checkpoint '{last}' cannot be read: it is damaged, its checksum does not fit its content"
    assert refused(path, capsys) == f"{reason}; copy iteration_000006.pt over it, then trot resume {path}"
    shutil.copy(kept, last)
    assert main(["resume", str(path)]) == 0
    assert same_end(RunFolder.open(path), whole)


def test_a_run_with_a_memory_of_past_steps_keeps_policies_and_goes_on_from_last(tmp_path, capsys):
    """iteration_* hold no memory, and are not advised where last is damaged."""
    sac = [*SMALL, "--algo", "sac", "--random-iterations", "2", "--batch", "16", "--memory", "500", "--hidden", "8"]
    train = ["train", "cartpole", "--device", "cpu", "--runs", str(tmp_path), *sac]
    assert main([*train, "--name", "whole"]) == 0
    assert main([*train, "--name", "run", "--iterations", "7"]) == 0
    path = tmp_path / "run"
    run = RunFolder.open(path)
    assert run.load_checkpoint("iteration_000006").keys() == {"agent"}
    last, content = run.load_checkpoint("last"), (path / "checkpoints" / "last.pt").read_bytes()
    assert last["iteration"] == 7 and len(last["learner"]["memory.rows_reward"]) == 7 * 8 * 4

    damaged = bytearray(content)
    damaged[len(damaged) // 2] ^= 4
    (path / "checkpoints" / "last.pt").write_bytes(damaged)
    assert refused(path, capsys).endswith("its checksum does not fit its content; none is kept to go on from")

    (path / "checkpoints" / "last.pt").write_bytes(content)
    assert main(["resume", str(path), "--iterations", "12"]) == 0
    assert same_end(RunFolder.open(path), end_of(RunFolder.open(tmp_path / "whole")))


def test_settings_that_changed_since_are_named(tmp_path, capsys, whole):
    assert main(arguments(tmp_path)) == 0
    path = tmp_path / "run"
    file = path / "settings.json"
    text = file.read_text()
    settings = json.loads(text)
    settings["settings"]["actor_hidden"] = [8]
    file.write_text(json.dumps(settings))
    assert refused(path, capsys) == (
        f"'{file}' is not as trot wrote it, its checksum does not fit. Put it back; or, where it was changed on "
        'purpose, remove the line "checksum" from it'
    )
    del settings["checksum"]
    file.write_text(json.dumps(settings))
    line = refused(path, capsys)
    assert "does not fit its task, algorithm and settings as they are now: hidden was [128, 128] and is [8]. " in line
    assert line.endswith(f"go on: trot resume {path}; or begin anew: trot train cartpole")
    file.write_text(text)
    assert main(["resume", str(path)]) == 0
    assert same_end(RunFolder.open(path), whole)


def test_a_task_that_changed_since_is_named(tmp_path, capsys):
    shutil.copytree(WALKER, tmp_path / "walker")
    task = tmp_path / "walker" / "my_task.py"
    assert main(arguments(tmp_path, task=f"{task}:Walker")) == 0
    text = task.read_text()
    assert '            "lean": measured.lean,\n' in text
    task.write_text(text.replace('            "lean": measured.lean,\n', ""))
    line = refused(tmp_path / "run", capsys)
    # Height, lean, speed forward, 6 joints, 8 other speeds, 6 actions; and without the lean.
    assert ": num_observations was 23 and is 22. " in line and line.endswith(f"begin anew: trot train {task}:Walker")
    task.unlink()
    assert f"no task file '{task}'" in refused(tmp_path / "run", capsys)


def test_a_gpus_run_does_not_go_on_on_the_cpu(tmp_path, capsys):
    """Its generators are another kind, 16 bytes each."""
    assert main(arguments(tmp_path)) == 0
    path = tmp_path / "run"
    with RunFolder.reopen(path) as run:
        saved = run.load_checkpoint("last")
        saved["learner"]["_extra_state"]["generator"] = torch.zeros(16, dtype=torch.uint8)
        run.save_checkpoint("last", saved)
        run.change_settings(device="cuda")
    assert main(["resume", str(path), "--device", "cpu", "--iterations", "20"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "the random numbers of cuda, where it began, do not go on on cpu" in line
