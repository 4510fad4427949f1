"""`trot train --seeds` and `trot resume` of several runs: every folder is as if its seed had been trained alone."""

import json
import os
import shutil
import signal

import pytest
import torch
from alike import distance, same_bits
from ctrl_c import ctrl_c_in_iteration, timeless_rows
from killed_trot import KilledTrot
from run_contents import file_names

from trot.cli import main
from trot.learn.algorithms import shac as shac_module
from trot.learn.trainer import Trainer
from trot.runs.folder import RunFolder

SEEDS = (0, 2, 10)
GROUP = ("--seeds", "0", "2", "10")
ITERATIONS = 9
SMALL = ["--num-worlds", "4", "--horizon", "16", "--save-every", "4", "--keep-every", "6", "--no-lr-decay"]
SIZES = ["--actor-hidden", "8", "--critic-hidden", "8", "--critic-passes", "2"]


def train(root, *options, seeds=GROUP, iterations=ITERATIONS):
    given = [*SMALL, *SIZES, "--iterations", str(iterations), "--device", "cpu", "--runs", str(root), *options]
    return main(["train", "hopper", *seeds, *given])


def folders(root):
    return [root / f"hopper-shac-{seed}" for seed in SEEDS]


def resume(root, *options):
    """In another order than they were trained in."""
    return main(["resume", *map(str, reversed(folders(root))), *options])


def end_of(path):
    """All that a run learned and wrote, but for the time that it took."""
    saved = RunFolder.open(path).load_checkpoint("last")
    return {"rows": {str(row["iteration"]): row for row in timeless_rows(path)}, **without_times(saved)}


def without_times(saved):
    return {name: part for name, part in saved.items() if name not in ("seconds", "metrics_checksum")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What nothing stops."""
    root = tmp_path_factory.mktemp("whole")
    assert train(root) == 0
    return root


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The seeds one after the other."""
    root = tmp_path_factory.mktemp("alone")
    for seed in SEEDS:
        assert train(root, seeds=("--seed", str(seed))) == 0
    return root


def test_each_folder_has_the_files_settings_and_checkpoints_of_a_single_run(whole, alone):
    for ours, single in zip(folders(whole), folders(alone), strict=True):
        files = [file_names(root) for root in (ours, single)]
        assert files[0] == files[1]
        assert {f"checkpoints/{name}.pt" for name in ("initial", "iteration_000006", "best", "last")} <= files[0]
        assert (ours / "settings.json").read_text() == (single / "settings.json").read_text()
        runs = RunFolder.open(ours), RunFolder.open(single)
        assert runs[0].metric_columns() == runs[1].metric_columns()
        assert [run.last_metrics()["iteration"] for run in runs] == [ITERATIONS] * 2
        # The beginning is the same to the bit; then float32 sums are taken in another order.
        assert same_bits(runs[0].load_checkpoint("initial"), runs[1].load_checkpoint("initial"))
        for name in runs[1].checkpoint_names():
            distance(*(without_times(run.load_checkpoint(name)) for run in runs))
        learned = runs[0].load_checkpoint("last")["learner"]
        best = {name: part for name, part in learned.items() if name.startswith("best.agent.")}
        assert same_bits(
            {f"best.agent.{name}": part for name, part in runs[0].load_checkpoint("best")["agent"].items()}, best
        )
        for found, expected in zip(timeless_rows(ours)[:3], timeless_rows(single)[:3], strict=True):
            assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_all_have_the_seconds_of_the_batch(whole):
    runs = [RunFolder.open(path) for path in folders(whole)]
    assert len({tuple(row["seconds"] for row in run.read_metrics()) for run in runs}) == 1
    for name in ("iteration_000006", "last"):
        seconds = [run.load_checkpoint(name)["seconds"] for run in runs]
        assert seconds == [seconds[0]] * len(runs)


def test_every_command_takes_such_a_folder(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "runs")
    path = folders(tmp_path / "runs")[1]
    assert main(["eval", str(path), "--episodes", "2", "--device", "cpu"]) == 0
    assert main(["list", "--root", str(tmp_path / "runs")]) == 0
    assert "hopper-shac-10" in capsys.readouterr().out
    before = timeless_rows(path)
    assert main(["resume", str(path), "--iterations", "11"]) == 0
    assert timeless_rows(path)[:ITERATIONS] == before and len(timeless_rows(path)) == 11


def test_a_single_run_goes_on_as_its_member_does(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "runs")
    one, *_ = folders(tmp_path / "runs")
    shutil.copytree(tmp_path / "runs", tmp_path / "others")
    assert main(["resume", str(one), "--iterations", "11"]) == 0
    assert resume(tmp_path / "others", "--iterations", "11") == 0
    for found, expected in zip(timeless_rows(folders(tmp_path / "others")[0]), timeless_rows(one), strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_after_ctrl_c_the_group_goes_on_to_the_bit(whole, tmp_path, monkeypatch, capsys):
    ctrl_c_in_iteration(monkeypatch, 7)
    assert train(tmp_path) == 130
    monkeypatch.undo()
    paths = folders(tmp_path)
    assert capsys.readouterr().out.endswith(
        f"Stopped after iteration 7. Go on: trot resume {' '.join(map(str, paths))}\n"
    )
    assert [len(timeless_rows(path)) for path in paths] == [7, 7, 7]
    # As if it had been killed while it saved: one run's checkpoint is from an iteration before.
    (paths[1] / "checkpoints" / "last.pt").write_bytes((paths[1] / "checkpoints" / "iteration_000006.pt").read_bytes())
    assert resume(tmp_path) == 0
    # In the order of their seeds, as they were trained: another might round in another way.
    start = f"hopper: 3 runs on from iteration 6, on cpu. Run folders: {', '.join(map(str, paths))}\n"
    assert capsys.readouterr().out.startswith(start)
    for path, expected in zip(paths, folders(whole), strict=True):
        assert same_bits(end_of(path), end_of(expected))


def test_ctrl_c_before_the_first_iteration_and_the_group_begins_on_resume(whole, tmp_path, monkeypatch, capsys):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "run_to_the_end", interrupted)
    assert train(tmp_path) == 130
    monkeypatch.undo()
    command = f"trot resume {' '.join(map(str, folders(tmp_path)))}"
    assert capsys.readouterr().out.splitlines()[1:] == [f"Stopped. Go on: {command}"]
    assert resume(tmp_path) == 0
    for path, expected in zip(folders(tmp_path), folders(whole), strict=True):
        assert same_bits(end_of(path), end_of(expected))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no fork()")
def test_a_group_that_is_killed_goes_on_to_the_bit(whole, tmp_path):
    given = [*SMALL, *SIZES, "--iterations", str(ITERATIONS), "--device", "cpu"]
    first = ["train", "hopper", "--seeds", *map(str, SEEDS), *given, "--runs", str(tmp_path / "first")]
    root = tmp_path / "killed"
    with KilledTrot(first) as trot:
        _, seconds = trot.run([*first[:-1], str(tmp_path / "timed")])
        code, _ = trot.run([*first[:-1], str(root)], 0.6 * seconds, signal.SIGKILL)
        # On a busy machine it may be killed before all folders are there, or not at all.
        if not all((path / "settings.json").is_file() for path in folders(root)):
            shutil.rmtree(root, ignore_errors=True)
            assert trot.run([*first[:-1], str(root)])[0] == 0
        for share in (0.3, 0.5):
            trot.run(["resume", *map(str, folders(root))], share * seconds, signal.SIGKILL)
        assert trot.run(["resume", *map(str, folders(root))])[0] == 0
    assert code in (0, -signal.SIGKILL)
    for path, expected in zip(folders(root), folders(whole), strict=True):
        assert same_bits(end_of(path), end_of(expected))


def test_runs_that_reach_their_goal_at_different_times(whole, tmp_path, monkeypatch, capsys):
    def at_goal(self, record):
        return record.last_row["iteration"] >= 4 + SEEDS.index(record.run.settings["seed"])

    monkeypatch.setattr(Trainer, "_at_goal", at_goal)
    assert train(tmp_path) == 0
    monkeypatch.undo()
    paths = folders(tmp_path)
    saved = [RunFolder.open(path).load_checkpoint("last") for path in paths]
    assert [(one["iteration"], one["finished"]) for one in saved] == [(4, True), (5, True), (6, True)]
    assert [len(timeless_rows(path)) for path in paths] == [4, 5, 6]
    assert resume(tmp_path) == 0
    assert "All 3 runs are finished or stopped" in capsys.readouterr().out
    # Those that are ahead wait for the others, and come to where a run would that had no goal.
    assert resume(tmp_path, "--iterations", str(ITERATIONS)) == 0
    for path, expected in zip(paths, folders(whole), strict=True):
        assert same_bits(end_of(path), end_of(expected))


def test_a_bad_gradient_stops_one_run_and_the_others_are_done(whole, tmp_path, monkeypatch, capsys):
    exact, calls = shac_module.policy_loss, []

    def spoilt(*given):
        calls.append(None)
        return exact(*given) * torch.tensor([1.0, float("nan") if len(calls) == 5 else 1.0, 1.0])

    monkeypatch.setattr(shac_module, "policy_loss", spoilt)
    assert train(tmp_path) == 2
    monkeypatch.undo()
    first, bad, last = folders(tmp_path)
    printed = capsys.readouterr()
    window = bad / "checkpoints" / "bad_gradient.pt"
    assert "9 iterations, 2 seeds" in printed.out
    assert printed.err.splitlines()[-1] == (
        "trot train: 1 of 3 stopped. the policy's gradient became non-finite in iteration 5 or shortly before; nothing "
        f"was learned from it. The window is kept in {window}; run it again: trot replay-fault {window}"
    )
    assert [row["stopped"] for row in timeless_rows(bad)] == [0, 0, 0, 0, 1]
    assert RunFolder.open(bad).load_checkpoint("last")["iteration"] == 4
    for path, expected in zip((first, last), (folders(whole)[0], folders(whole)[2]), strict=True):
        assert same_bits(end_of(path), end_of(expected))
        assert "bad_gradient" not in RunFolder.open(path).checkpoint_names()
    assert main(["replay-fault", str(window)]) == 0
    assert "a window of 16 steps in 4 worlds" in capsys.readouterr().out

    files = {file: file.read_bytes() for file in bad.rglob("*") if file.is_file() and file.name != "writer.lock"}
    assert resume(tmp_path, "--iterations", "11") == 0
    assert f"{bad} stopped at a bad gradient, and stays as it is" in capsys.readouterr().out
    assert files == {file: file.read_bytes() for file in files}
    assert [len(timeless_rows(path)) for path in (first, bad, last)] == [11, 5, 11]


def test_where_every_run_stops_the_training_ends(tmp_path, monkeypatch, capsys):
    exact = shac_module.policy_loss
    monkeypatch.setattr(shac_module, "policy_loss", lambda *given: exact(*given) * float("nan"))
    assert train(tmp_path) == 2
    assert capsys.readouterr().err.count("became non-finite in iteration 1 or shortly before") == 3
    assert [len(timeless_rows(path)) for path in folders(tmp_path)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "0-2", "--seed", "1"], "--seed is for one run, --seeds for several: give one of them"),
        (["--seeds", "0-2", "--seed=1"], "--seed is for one run, --seeds for several: give one of them"),
        (["--seeds"], "--seeds names no seed: give some, such as 0-15 or 0 3 7"),
        (["--seeds", "0-3", "2"], "the seed 2 is there twice"),
        (["--seeds", "3-2"], "seeds are whole numbers or ranges, such as 0 3 7 or 0-15, not '3-2'"),
        (["--seeds", "one"], "not 'one'"),
        (["--seeds", "0-1", "--algo", "ppo"], "Ppo cannot learn with several seeds at once"),
    ],
)
def test_what_cannot_be_trained_together_leaves_no_folder(tmp_path, capsys, options, message):
    assert main(["train", "hopper", "--device", "cpu", "--runs", str(tmp_path), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_a_range_and_a_name(tmp_path):
    assert train(tmp_path, "--name", "ours", seeds=("--seeds", "3-4", "1"), iterations=1) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours-1", "ours-3", "ours-4"]
    assert [RunFolder.open(tmp_path / f"ours-{seed}").settings["seed"] for seed in (1, 3, 4)] == [1, 3, 4]


def test_what_cannot_go_on_together_is_refused(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "runs")
    one, two, three = folders(tmp_path / "runs")
    shutil.copytree(one, tmp_path / "same")

    def refused(*paths):
        capsys.readouterr()
        assert main(["resume", *map(str, paths), "--iterations", "20"]) == 2
        return capsys.readouterr().err.splitlines()[-1].removeprefix("trot resume: ")

    assert refused(one, two, one) == f"'{one}' is named twice"
    assert refused(one, tmp_path / "same") == (
        f"{one} and {tmp_path / 'same'} have the same seed: they are the same run"
    )
    settings = json.loads((three / "settings.json").read_text())
    del settings["checksum"]
    settings["settings"]["actor_lr"] = 1e-3
    settings["schedule"]["save_every"] = 5
    (three / "settings.json").write_text(json.dumps(settings))
    assert refused(one, two, three) == (
        f"{one} and {three} cannot go on together: they differ in actor_lr, save_every. "
        "One batch takes runs that differ in their seeds alone"
    )
