"""A run's checkpoints are whole or not there, whoever is killed at whatever moment."""

import os
import random
import stat
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from run_contents import rows

from trot.runs.checkpoint_file import write_checkpoint
from trot.runs.folder import RunFolder


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
    # In the midst of what PyTorch writes, which complains of its archive then.
    full = os.open("/dev/full", os.O_RDWR) if os.path.exists("/dev/full") else None
    if full is not None:
        with os.fdopen(full, "r+b", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            write_checkpoint(file, {"weights": torch.ones(1000)})
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


@pytest.mark.parametrize("name", ["../x", "../../x", "/x", "sub/x", "sub\\x", "", "C:x"])
def test_a_checkpoint_is_not_looked_for_elsewhere(run, name):
    run.save_checkpoint("x", {"iteration": 1})
    (run.path / "checkpoints" / "sub").mkdir()
    for place in (run.path, run.path.parent, run.path / "checkpoints" / "sub"):
        (place / "x.pt").write_bytes((run.path / "checkpoints" / "x.pt").read_bytes())
    with pytest.raises(ValueError, match="a checkpoint's name is that of a file in checkpoints"):
        run.load_checkpoint(name)


def test_every_flipped_bit_is_found(run):
    """In weights, in names, in padding, and in the checksum itself: the last bytes one by one, others at random."""
    path = run.save_checkpoint("last", {"weights": torch.linspace(-1, 1, 5000), "iteration": 3})
    whole = path.read_bytes()
    chance = random.Random(11)
    places = [*range(len(whole) - 120, len(whole)), *(chance.randrange(len(whole)) for _ in range(200))]
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=r"the checkpoint '.*last.pt' cannot be read: it is damaged, its checksum"):
            run.load_checkpoint()
    path.write_bytes(whole)
    assert run.load_checkpoint()["iteration"] == 3


def test_checkpoints_of_earlier_versions_have_no_checksum_and_load(run):
    path = run.save_checkpoint("last", {})
    torch.save({"weights": torch.arange(7)}, path)
    assert run.load_checkpoint()["weights"].equal(torch.arange(7))


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
from trot.runs.folder import RunFolder

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
        for _ in range(12):
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
    # A reader changes nothing; who goes on with the run clears away.
    RunFolder.open(run.path)
    assert old.exists() and old_metrics.exists() and new.exists()
    run.release()
    opened = RunFolder.reopen(run.path)
    assert (old.exists(), old_metrics.exists(), new.exists()) == (False, False, True)
    assert opened.load_checkpoint() == {"iteration": 1}
