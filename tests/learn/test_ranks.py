"""Two ranks that share the worlds learn what one process learns with all of them; in float64 to 1e-9."""

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
import rank_checks
import torch
from alike import ROUNDING, same_bits
from run_contents import file_names
from two_ranks import finish, start

from trot.cli import main
from trot.envs.ranks import LAUNCHED, launched
from trot.runs.folder import RunFolder


class Together:
    """Two processes that made all checks and trained; then one of them was killed in the middle of a training."""

    def __init__(self, root):
        self.root = root
        processes = start(Path(rank_checks.__file__), root)
        self.printed = []
        while not self.printed or not self.printed[-1].startswith("{"):
            line = processes[0].stdout.readline()
            assert line, finish(processes)
            self.printed.append(line)
        self.found = json.loads(self.printed.pop())
        wait_for_a_checkpoint(root / "lost", processes)
        processes[1].kill()
        self.codes, self.rest, self.errors = finish(processes)


def wait_for_a_checkpoint(path, processes):
    while not (path / "checkpoints" / "iteration_000006.pt").exists():
        assert [process.poll() for process in processes] == [None, None], finish(processes)
        time.sleep(0.005)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return Together(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def found(both):
    return both.found


@pytest.mark.parametrize("check", ["plain", "random_physics", "without_critic"])
def test_ten_iterations_on_two_ranks_are_those_of_one_process(found, check):
    assert found[check]["distances"][0] == 0, "they begin to the bit"
    assert max(found[check]["distances"]) < ROUNDING
    assert [1 in ended and 2 in ended for ended in found[check]["ended"]] == [True, True]
    assert found[check]["columns"]["episodes"] >= 4
    assert found[check]["steps"] == 10 * 4 * (12 if check == "without_critic" else 6)


def test_what_is_saved_goes_on_on_both_ranks_to_the_bit_and_in_one_process(found):
    assert found["go_on"]["loaded"] == 0
    assert found["go_on"]["to the bit"]
    assert 0 < found["go_on"]["alone"] < ROUNDING


def test_episodes_of_all_ranks_begin_one_after_the_other(found):
    assert found["staggered"] == [0, 250, 500, 750]


def test_a_bad_gradient_on_one_rank_stops_both(found):
    assert found["bad_gradient"] == {"stopped": 1.0, "weights are kept": True, "window": True, "noise": [6, 4, 3]}


def test_what_cannot_be_shared_says_so(found):
    worlds, ppo = found["refusals"]
    assert worlds == "num_worlds 5 must be a multiple of 2: as many worlds on every rank"
    assert ppo.startswith("Ppo cannot learn on several ranks, as shac, shac-no-critic and bptt can")


def learned(path):
    """All of a run but for the time that it took."""
    run = RunFolder.open(path)
    rows = {str(row["iteration"]): {**row, "seconds": 0.0} for row in run.read_metrics()}
    return {"rows": rows, **without_times(run.load_checkpoint("last"))}


def without_times(saved):
    return {name: part for name, part in saved.items() if name not in ("seconds", "metrics_checksum")}


def test_rank_0_alone_speaks(both):
    assert both.found["runs"] == [0, 0, 0]
    assert both.printed[0].startswith("hopper, shac, seed 0, on 2 ranks, cpu. Run folder: ")
    assert both.rest[1] == ""


def test_the_run_folder_is_that_of_one_process(both, tmp_path):
    options = [*rank_checks.RUN, "--iterations", "8", "--runs", str(tmp_path), "--name", "run"]
    assert main(["train", "hopper", *options]) == 0
    paths = both.root / "whole", tmp_path / "run"
    files = [file_names(path) for path in paths]
    assert files[0] == files[1]
    settings = [json.loads((path / "settings.json").read_text()) for path in paths]
    assert settings[0].pop("ranks") == 2 and settings[0].pop("checksum") != settings[1].pop("checksum")
    assert settings[0] == settings[1]
    runs = [RunFolder.open(path) for path in paths]
    assert same_bits(*(run.load_checkpoint("initial") for run in runs))
    for ours, expected in zip(*(run.read_metrics()[:4] for run in runs), strict=True):
        assert {**ours, "seconds": 0} == pytest.approx({**expected, "seconds": 0}, rel=1e-3, abs=1e-5)


def test_both_ranks_go_on_to_the_bit(both):
    assert same_bits(learned(both.root / "parts"), learned(both.root / "whole"))


def test_one_process_goes_on_with_a_message(both, tmp_path, capsys):
    shutil.copytree(both.root / "whole", tmp_path / "run")
    assert main(["resume", str(tmp_path / "run"), "--iterations", "10"]) == 0
    printed = capsys.readouterr().out
    assert "was trained on 2 ranks and goes on on 1: sums are taken in another order" in printed
    assert RunFolder.open(tmp_path / "run").last_metrics()["iteration"] == 10
    assert main(["resume", str(tmp_path / "run"), "--iterations", "11"]) == 0
    assert "was trained on" not in capsys.readouterr().out


def test_a_lost_rank_ends_the_run_with_a_checkpoint_to_go_on_from(both):
    path = both.root / "lost"
    assert both.codes == [2, -signal.SIGKILL]
    said = both.errors[0].splitlines()[-1]
    assert said.startswith("trot: another rank does not answer any more (")
    assert said.endswith(f"Go on: torchrun --nproc-per-node 2 -m trot resume {path}")
    saved = [RunFolder.open(one).load_checkpoint("iteration_000006") for one in (path, both.root / "whole")]
    assert same_bits(*map(without_times, saved))
    assert RunFolder.open(path).load_checkpoint("last")["iteration"] >= 3


@pytest.mark.campaign
@pytest.mark.parametrize("lost", [0, 1])
def test_whichever_rank_is_lost_both_go_on_to_the_bit(both, tmp_path, lost):
    options = [*rank_checks.RUN, "--iterations", "100000", "--runs", str(tmp_path), "--name", "run"]
    processes = start("-m", "trot", "train", "hopper", *options)
    path = tmp_path / "run"
    wait_for_a_checkpoint(path, processes)
    processes[lost].kill()
    codes, _, errors = finish(processes)
    assert codes[lost] == -signal.SIGKILL and codes[1 - lost] == 2
    assert "another rank does not answer any more" in errors[1 - lost].splitlines()[-1]
    # It has come further than the run that nothing stopped: back to where both have been.
    checkpoints = path / "checkpoints"
    shutil.copyfile(checkpoints / "iteration_000006.pt", checkpoints / "last.pt")
    codes, out, errors = finish(start("-m", "trot", "resume", path, "--iterations", "8"))
    assert codes == [0, 0], errors
    assert "on 2 ranks, cpu" in out[0] and out[1] == ""
    assert same_bits(learned(path), learned(both.root / "whole"))


def test_without_torchrun_there_are_no_ranks(monkeypatch, capsys):
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    assert not launched()
    for name in LAUNCHED:
        monkeypatch.setenv(name, "1")
    assert not launched(), "one process alone"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched()
    assert main(["train", "hopper", "--seeds", "0-1", "--device", "cpu"]) == 2
    assert main(["tune", "hopper", "--over", "gamma=0.5:0.9", "--device", "cpu"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "trot train: trot train --seeds runs in one process: start it without torchrun"
    assert said[1] == "trot tune: trot tune runs in one process: start it without torchrun"
    assert not torch.distributed.is_initialized()
