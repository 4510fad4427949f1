"""Runs that are killed, that fill the disk and whose files are damaged, at random: the same end, or a refusal by name.

`-m campaign` tries many more; TROT_CAMPAIGN_SEED=N tries others.
"""

import contextlib
import io
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from campaign import chances, sized
from killed_trot import KilledTrot

from trot.cli import main
from trot.runs.folder import RunFolder

ITERATIONS = 12
SMALL = ["--num-worlds", "4", "--horizon", "32", "--critic-passes", "1", "--critic-batches", "1", "--actor-hidden", "8"]
SCHEDULE = ["--iterations", f"{ITERATIONS}", "--save-every", "3", "--keep-every", "4"]
STOPPED_AT = 8
"""An episode of 240 steps has ended by then, so that there is a best policy."""


def train(root):
    return ["train", "cartpole", "--device", "cpu", "--runs", str(root), "--name", "run", *SMALL, *SCHEDULE]


def end_of(path):
    """All that a run learned and wrote, but for the time that it took."""
    run = RunFolder.open(path)
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in run.read_metrics()]
    return rows, weights(run.load_checkpoint("last"))


def weights(checkpoint):
    """Every tensor in it, by where it lies."""
    found, waiting = {}, [("", checkpoint)]
    while waiting:
        where, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{where}/{key}", item) for key, item in value.items()]
        elif isinstance(value, torch.Tensor):
            found[where] = value
    return found


def same(found, wanted):
    """Whether tensors and numbers are the same to the bit; a NaN is one."""
    if isinstance(wanted, torch.Tensor):
        return found.dtype == wanted.dtype and torch.equal(found.nan_to_num(0.1), wanted.nan_to_num(0.1))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return repr(found) == repr(wanted)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """How a run ends that nothing stops."""
    root = tmp_path_factory.mktemp("whole")
    assert main(train(root)) == 0
    return end_of(root / "run")


def begun(path):
    """Whether there is a run to go on with."""
    return (path / "settings.json").exists()


def command(root):
    path = root / "run"
    if begun(path):
        return ["resume", str(path)]
    # A folder without settings is no run yet, and its name is taken.
    shutil.rmtree(path, ignore_errors=True)
    return train(root)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork and SIGKILL")
@pytest.mark.parametrize("cases", sized(2, 60))
def test_killed_at_any_moment_and_resumed_it_ends_the_same(tmp_path, whole, cases):
    exits, struck = {}, 0
    with KilledTrot(train(tmp_path / "first")) as trot:
        code, seconds = trot.run(train(tmp_path / "timed"))
        assert code == 0
        for chance, case in chances("kill", cases):
            root = tmp_path / "case"
            for _ in range(4):
                number = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
                code, _ = trot.run(command(root), chance.uniform(0, 0.8 * seconds), number)
                assert code in (0, -number, 128 + number), case
                exits[code], struck = exits.get(code, 0) + 1, struck + (code != 0)
            assert trot.run(command(root))[0] == 0, case
            assert same(end_of(root / "run"), whole), case
            shutil.rmtree(root)
    print(f"{cases} runs, {struck} times stopped; exit codes: {exits}")
    assert struck >= cases, "hardly a signal struck: the machine is too slow to mean anything"


class Disk:
    """Takes so many bytes, then no more: the write that is too long is cut, as a real disk cuts it."""

    def __init__(self, room):
        self.room, self.written = room, 0

    def take(self, content):
        """How much of it still finds a place."""
        taken = min(len(content), self.room - self.written)
        if taken <= 0 and len(content):
            raise OSError(28, "No space left on device")
        self.written += taken
        return taken

    def open(self, path, mode="r", buffering=-1, *others, **how):
        if not set(mode) & set("wax+"):
            return open(path, mode, buffering, *others, **how)
        disk = self

        class File(io.FileIO):
            def write(self, content):
                return super().write(memoryview(content)[: disk.take(content)])

        raw = File(path, mode.replace("b", ""))
        return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)


@contextlib.contextmanager
def disk_of(room):
    """All that trot opens for writing, and the text of its lock, goes to such a disk."""
    disk, write = Disk(room), os.write
    with pytest.MonkeyPatch.context() as patch:
        # A function, which a class makes a method of, as it does not of a method.
        patch.setattr(Path, "open", lambda *given, **how: disk.open(*given, **how))
        patch.setattr(os, "write", lambda file, content: write(file, content[: disk.take(content)]))
        yield disk


@pytest.mark.parametrize("cases", sized(2, 100))
def test_a_disk_that_fills_up_loses_nothing(tmp_path, whole, capsys, cases):
    with disk_of(1 << 40) as disk:
        assert main(train(tmp_path / "measured")) == 0
    filled = 0
    for chance, case in chances("disk", cases):
        root = tmp_path / "case"
        for _ in range(2):
            capsys.readouterr()
            with disk_of(chance.randrange(disk.written)):
                code = main(command(root))
            line = (capsys.readouterr().err.splitlines() or [""])[-1]
            assert code in (0, 2), case
            if code == 2:
                filled += 1
                full = r"cannot (write into|make a run folder in) .*No space left on device"
                assert re.search(full, line), f"{case}: {line}"
        assert main(command(root)) == 0, case
        assert same(end_of(root / "run"), whole), case
        shutil.rmtree(root)
    print(f"{cases} runs, {filled} times the disk was full")
    assert filled >= cases


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped in its midst."""
    from trot.learn.algorithms.shac import Shac

    root, finish, calls = tmp_path_factory.mktemp("stopped"), Shac.finish, []

    def finishing(self):
        calls.append(None)
        if len(calls) == STOPPED_AT:
            os.kill(os.getpid(), signal.SIGINT)
        finish(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shac, "finish", finishing)
        assert main(train(root)) == 130
    return root / "run"


def flip(chance, content):
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def cut(chance, content):
    del content[chance.randrange(len(content)) :]


def blank(chance, content):
    begin = chance.randrange(len(content))
    end = min(len(content), begin + chance.choice([1, 10, 512, 4096]))
    content[begin:end] = bytes(end - begin)


def lose(chance, content):
    begin = chance.randrange(len(content))
    del content[begin : begin + chance.choice([1, 10, 512])]


def repeat(chance, content):
    begin = chance.randrange(len(content))
    content[begin:begin] = content[begin : begin + chance.choice([1, 10, 512])]


def scramble(chance, content):
    begin = chance.randrange(len(content))
    end = min(len(content), begin + chance.choice([1, 4, 100]))
    content[begin:end] = chance.randbytes(end - begin)


DAMAGES = (flip, flip, flip, cut, blank, lose, repeat, scramble)
FILES = ("settings.json", "settings.json", "metrics.csv", "metrics.csv", "checkpoints/last.pt", "checkpoints/best.pt",
         "checkpoints/iteration_000004.pt", "checkpoints/initial.pt", "machine.json", "writer.lock")  # fmt: skip


def kept_checkpoints(path, told):
    """Those that load; one that does not is named in what is told of it."""
    found, run = {}, RunFolder.open(path)
    for name in run.checkpoint_names():
        try:
            found[name] = weights(run.load_checkpoint(name))
        except ValueError as error:
            assert f"{name}.pt' cannot be read: " in str(error)
            told.append(name)
    return found


@pytest.mark.parametrize("cases", sized(12, 1000))
def test_damaged_files_are_refused_or_mended_by_name_and_never_another_run(tmp_path, whole, stopped, capsys, cases):
    assert main(["resume", str(shutil.copytree(stopped, tmp_path / "undamaged"))]) == 0
    wanted = kept_checkpoints(tmp_path / "undamaged", [])
    outcomes = {}
    for chance, case in chances("damage", cases):
        path = Path(shutil.copytree(stopped, tmp_path / "run"))
        file = path / chance.choice(FILES)
        content = bytearray(file.read_bytes() or b"process 1 on x")
        damage = chance.choice(DAMAGES)
        damage(chance, content)
        changed = content != file.read_bytes()
        file.write_bytes(content)
        case = f"{case}: {damage.__name__} in {file.name}"
        before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
        capsys.readouterr()
        code, told = main(["resume", str(path)]), capsys.readouterr()
        if code == 2:
            (line,) = told.err.splitlines()
            assert file.name in line and changed, f"{case}: {line}"
            assert {each: each.read_bytes() for each in path.rglob("*") if each.is_file()} == before, case
            outcome = "refused"
        else:
            assert code == 0, f"{case}: {told}"
            outcome = went_on(path, wanted, whole, file, told, case) if changed else "undamaged"
        outcomes[file.name, outcome] = outcomes.get((file.name, outcome), 0) + 1
        shutil.rmtree(path)
    for (name, outcome), count in sorted(outcomes.items()):
        print(f"{name}: {outcome} {count}")


def went_on(path, wanted, whole, file, told, case):
    """In a word, how it came that the run went on. It must be the same run, but for what it said it lost."""
    unreadable = []
    checkpoints = kept_checkpoints(path, unreadable)
    assert unreadable in ([], [file.stem]), case
    assert all(same(checkpoints[name], wanted[name]) for name in checkpoints), case
    assert checkpoints.keys() | set(unreadable) == wanted.keys(), case
    rows = end_of(path)[0]
    if "metrics.csv was damaged" in told.out:
        assert file.name == "metrics.csv", case
        assert same(rows[-(ITERATIONS - STOPPED_AT) :], whole[0][STOPPED_AT:]) and len(rows) <= len(whole[0]), case
        return "told" if "not every number" in told.out else "mended"
    assert same(rows, whole[0]), case
    return "not read, still damaged" if unreadable else "no harm"
