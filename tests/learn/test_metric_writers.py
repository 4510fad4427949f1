"""Metrics for TensorBoard and W&B: what is asked of them, in order, and what their own files hold."""

import json
import sys
import types

import pytest
from small_run import small_run

from trot.cli import main
from trot.learn.algorithms.shac import Shac
from trot.learn.tensorboard import open_tensorboard
from trot.learn.weights_and_biases import open_wandb
from trot.runs.folder import RunFolder

ROWS = [{"iteration": 7, "return": 1.5, "faults": 0}, {"iteration": 8, "return": 2.5, "faults": 1}]


@pytest.fixture
def summaries(monkeypatch):
    """TensorBoard's place is taken by a list of what was asked of it."""
    asked = []

    class SummaryWriter:
        def __init__(self, **arguments):
            asked.append(arguments)
            self.file_writer = self

        def add_summary(self, summary, step):
            asked.append((summary, step))

        def flush(self):
            asked.append("flush")

        def close(self):
            asked.append("close")

    class Summary(list):
        def __init__(self, value):
            super().__init__(value)

        @staticmethod
        def Value(tag, simple_value):
            return tag, simple_value

    for name, content in (
        ("torch.utils.tensorboard", {"SummaryWriter": SummaryWriter}),
        ("tensorboard.compat.proto.summary_pb2", {"Summary": Summary}),
    ):
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return asked


@pytest.fixture
def wandb_calls(monkeypatch):
    """So is W&B's, where it counts as installed."""
    asked = []

    class Run:
        def __init__(self, name):
            self.name = name

        def log(self, values, step):
            asked.append((self.name, step, values))

        def finish(self):
            asked.append((self.name, "finish"))

    class Error(Exception):
        pass

    def init(**arguments):
        if "refused" in arguments["name"]:
            raise Error("No API key.")
        asked.append(arguments)
        return Run(arguments["name"])

    module = types.ModuleType("wandb")
    vars(module).update(init=init, Error=Error, Settings=dict)
    monkeypatch.setitem(sys.modules, "wandb", module)
    for name in ("WANDB_PROJECT", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)
    return asked


def test_tensorboard_gets_a_row_as_one_summary(summaries, tmp_path):
    writer = open_tensorboard(tmp_path, first_iteration=7)
    assert writer is not None
    writer.write(ROWS)
    writer.close()
    assert summaries == [
        {"log_dir": str(tmp_path), "purge_step": 7},
        ([("return", 1.5), ("faults", 0)], 7),
        ([("return", 2.5), ("faults", 1)], 8),
        "flush",
        "close",
    ]


def test_without_tensorboard_there_is_no_writer(monkeypatch, tmp_path):
    # None in sys.modules is how Python marks a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert open_tensorboard(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_itself_reads_every_row_once_after_a_resumption(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for rows in (ROWS, [{"iteration": 8, "return": 9.0, "faults": 3}]):
        writer = open_tensorboard(tmp_path, rows[0]["iteration"])
        writer.write(rows)
        writer.close()
    read = EventAccumulator(str(tmp_path)).Reload()
    assert set(read.Tags()["scalars"]) == {"return", "faults"}
    assert [(event.step, event.value) for event in read.Scalars("return")] == [(7, 1.5), (8, 9.0)]
    assert [(event.step, event.value) for event in read.Scalars("faults")] == [(7, 0), (8, 3)]


def test_a_training_that_breaks_off_leaves_no_writer_open(summaries, tmp_path, monkeypatch):
    def breaks(learner):
        raise RuntimeError("broken")

    monkeypatch.setattr(Shac, "finish", breaks)
    with pytest.raises(RuntimeError, match="broken"):
        small_run(tmp_path, "cartpole", iterations=2)
    assert summaries[-1] == "close"


def test_wandb_gets_what_metrics_csv_gets_and_goes_on_as_the_same_run(wandb_calls, tmp_path):
    path = small_run(tmp_path, "cartpole", "--wandb", iterations=2)
    assert main(["resume", str(path), "--iterations", "3"]) == 0
    first, *rows, end, second, row, second_end = wandb_calls
    assert (first["project"], first["name"], first["resume"], first["dir"]) == ("trot", "run", "allow", str(path))
    assert first["config"]["task"] == "cartpole"
    assert first["id"] == second["id"] == json.loads((path / "settings.json").read_text())["wandb"]["id"]
    written = RunFolder.open(path).read_metrics()
    assert [{"iteration": step, **values} for _, step, values in (*rows, row)] == written
    assert end == second_end == ("run", "finish")


def test_every_seed_is_a_run_of_its_own(wandb_calls, tmp_path):
    small_run(tmp_path, "cartpole", "--seeds", "0-1", "--wandb", iterations=2)
    opened = [call for call in wandb_calls if isinstance(call, dict)]
    assert [one["name"] for one in opened] == ["run-0", "run-1"]
    assert opened[0]["id"] != opened[1]["id"]
    assert {one["reinit"] for one in opened} == {"create_new"}


def test_a_run_that_does_not_ask_for_wandb_is_not_told_to_it(wandb_calls, run):
    assert open_wandb(run) is None
    assert wandb_calls == []


def test_what_wandb_refuses_is_one_line_with_the_way_on(wandb_calls, tmp_path):
    run = RunFolder.create(tmp_path, "refused", {"task": "ant", "algo": "shac", "seed": 0, "wandb": {"id": "x"}})
    with pytest.raises(ValueError, match=r"No API key\. After `wandb login`: trot resume .*WANDB_MODE=offline trot"):
        open_wandb(run)


@pytest.mark.parametrize("there", [None, types.ModuleType("wandb")], ids=["not installed", "a folder of that name"])
def test_without_wandb_nothing_is_made(monkeypatch, tmp_path, capsys, there):
    monkeypatch.setitem(sys.modules, "wandb", there)
    assert main(["train", "cartpole", "--wandb", "--runs", str(tmp_path / "runs")]) == 2
    assert 'pip install "trot[wandb]"' in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.campaign
def test_wandb_itself_keeps_a_run_without_network(monkeypatch, tmp_path):
    pytest.importorskip("wandb", reason='needs W&B: pip install "trot[wandb]"')
    monkeypatch.setenv("WANDB_MODE", "offline")
    path = small_run(tmp_path, "cartpole", "--wandb", iterations=3)
    (kept,) = path.glob("wandb/offline-run-*/run-*.wandb")
    content = kept.read_bytes()
    rows = RunFolder.open(path).read_metrics()
    assert len(rows) == 3
    for row in rows:
        for name in ("policy_loss", "value_loss", "gradient_norm"):
            assert name.encode() in content
            assert repr(row[name]).encode() in content
