"""`trot train` and `trot resume`, as a user meets them."""

import itertools
import json
import os
import re
import signal
from pathlib import Path

import docking
import pytest
import torch

from trot.cli import main
from trot.learn.algorithms import ALGORITHMS, find_algorithm
from trot.learn.train import parse_settings
from trot.learn.trainer import Trainer
from trot.runs.folder import RunFolder
from trot.sim.threads import get_num_threads, set_num_threads

SMALL = ["--iterations", "12", "--num-worlds", "4", "--horizon", "8", "--save-every", "4", "--keep-every", "6"]
CLOCKS = ("seconds",)
DOCKING = f"{docking.__file__}:Docking"
"""Episodes of 24 steps that never end before."""


def train(tmp_path, *options, task="hopper", name="run"):
    assert main(["train", task, "--device", "cpu", "--runs", str(tmp_path), "--name", name, *SMALL, *options]) == 0
    return RunFolder.open(tmp_path / name)


def metrics(run):
    return [{name: value for name, value in row.items() if name not in CLOCKS} for row in run.read_metrics()]


def same(first, second):
    """Bit for bit, through dicts and lists; NaN is nowhere."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    return torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second


def learner(run):
    return run.load_checkpoint("last")["learner"]


def test_a_run_folder_holds_settings_machine_metrics_and_checkpoints(tmp_path):
    run = train(tmp_path, "--seed", "3", "--actor-lr", "1e-3")
    assert run.settings["task"] == "hopper" and run.settings["algo"] == "shac" and run.settings["seed"] == 3
    # Given on the command line, tuned for the task, and general.
    assert run.settings["settings"]["actor_lr"] == 1e-3
    assert run.settings["settings"]["critic_lr"] == 2e-4
    assert run.settings["settings"]["td_lambda"] == 0.95
    assert "torch" in (run.path / "machine.json").read_text()
    rows = run.read_metrics()
    assert [row["iteration"] for row in rows] == list(range(1, 13))
    assert [row["steps"] for row in rows] == [32 * i for i in range(1, 13)]
    assert all(row["gradient_norm"] > 0 and row["adjoint_first"] > 0 for row in rows)
    names = run.checkpoint_names()
    assert {"initial", "last", "iteration_000006", "iteration_000012"} <= set(names)


def test_wide_networks_learn_the_same_bits_on_any_number_of_threads(tmp_path):
    before = get_num_threads()
    wide = ("--actor-hidden", "200", "8", "--critic-hidden", "200", "--num-worlds", "72", "--iterations", "3")
    runs = []
    try:
        for threads in (1, 2, 5):
            set_num_threads(threads)
            runs.append(train(tmp_path, *wide, task="cartpole", name=f"on-{threads}"))
    finally:
        set_num_threads(before)
    assert metrics(runs[0]) == metrics(runs[1]) == metrics(runs[2])
    assert same(learner(runs[0]), learner(runs[1])) and same(learner(runs[0]), learner(runs[2]))


def test_same_seed_same_metrics_to_the_bit_and_another_seed_others(tmp_path):
    first, second = (train(tmp_path, name=name) for name in ("first", "second"))
    assert metrics(first) == metrics(second)
    assert same(learner(first), learner(second))
    assert metrics(train(tmp_path, "--seed", "1", name="third")) != metrics(first)


@pytest.mark.parametrize("task", ["hopper", "ant"])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, task, monkeypatch):
    whole = train(tmp_path, task=task, name="whole")
    # Stopped by Ctrl-C in its seventh iteration.
    from trot.learn.algorithms.shac import Shac

    finish, calls = Shac.finish, []

    def interrupting(self):
        calls.append(None)
        if len(calls) == 7:
            os.kill(os.getpid(), signal.SIGINT)
        finish(self)

    monkeypatch.setattr(Shac, "finish", interrupting)
    arguments = ["train", task, "--device", "cpu", "--runs", str(tmp_path), "--name", "parts", *SMALL]
    assert main(arguments) == 130
    monkeypatch.undo()
    parts = RunFolder.open(tmp_path / "parts")
    assert len(metrics(parts)) == 7 and not parts.load_checkpoint("last")["finished"]
    assert main(["resume", str(parts.path)]) == 0
    assert metrics(parts) == metrics(whole)
    assert same(learner(parts), learner(whole))


def test_damaged_metrics_are_mended_on_resume_and_the_run_goes_on(tmp_path, capsys):
    whole = metrics(train(tmp_path, "--no-lr-decay", "--iterations", "16", name="whole"))
    run = train(tmp_path, "--no-lr-decay")
    file = run.path / "metrics.csv"
    lines = file.read_text().splitlines()
    lines[0], lines[5] = lines[0].replace("steps", "stfps"), lines[5].replace(",", "\r", 3)
    damaged = "\n".join(lines).encode() + b"\n"
    file.write_bytes(damaged)
    capsys.readouterr()
    assert main(["resume", str(run.path), "--iterations", "16"]) == 0
    message = "was damaged and is mended: lines that cannot be read: 2; the rows of iterations 5 are lost"
    assert f"{file} {message}\n" in capsys.readouterr().out
    assert metrics(run) == [*whole[:4], *whole[5:]]
    assert (run.path / "metrics.damaged.csv").read_bytes() == damaged


def test_a_finished_run_is_not_trained_any_further(tmp_path, capsys):
    run = train(tmp_path)
    before = metrics(run)
    assert main(["resume", str(run.path)]) == 0
    assert "is finished: 12 iterations" in capsys.readouterr().out
    assert metrics(run) == before


def test_a_finished_run_goes_on_to_more_iterations(tmp_path, capsys):
    """With rates that stay as they are, to where a longer run would have come."""
    whole = train(tmp_path, "--no-lr-decay", "--iterations", "16", name="whole")
    run = train(tmp_path, "--no-lr-decay")
    assert main(["resume", str(run.path), "--iterations", "16"]) == 0
    assert "hopper: on from iteration 12, on cpu" in capsys.readouterr().out
    assert [row["iteration"] for row in run.read_metrics()] == list(range(1, 17))
    assert metrics(run) == metrics(whole)
    assert same(learner(run), learner(whole))
    assert run.load_checkpoint("last")["finished"]


def test_a_longer_run_remembers_its_new_length_and_its_rates_fall_along_it(tmp_path, capsys):
    run = train(tmp_path)
    before = metrics(run)
    assert main(["resume", str(run.path), "--iterations", "20"]) == 0
    assert metrics(run)[:12] == before
    settings = json.loads((run.path / "settings.json").read_text())
    assert settings["iterations"] == settings["settings"]["iterations"] == 20
    capsys.readouterr()
    assert main(["list", "--root", str(tmp_path)]) == 0
    line = capsys.readouterr().out.splitlines()[1].split()
    assert line[3] == "20/20" and line[-2] == "yes"
    # The last of twenty, nineteen twentieths of the way from 2e-3 down to 1e-5.
    assert float(learner(run)["policy_optimizer.rate"]) == pytest.approx(2e-3 + (1e-5 - 2e-3) * 19 / 20, rel=1e-5)
    assert main(["resume", str(run.path)]) == 0
    assert "is finished: 20 iterations" in capsys.readouterr().out


def test_fewer_iterations_than_are_done_are_refused(tmp_path, capsys):
    run = train(tmp_path)
    before = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    capsys.readouterr()
    assert main(["resume", str(run.path), "--iterations", "11"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"trot resume: {run.path} has done 12 iterations already; --iterations is their number in all"
    assert main(["resume", str(run.path), "--iterations", "12"]) == 0
    assert "is finished: 12 iterations" in capsys.readouterr().out
    assert {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()} == before


def test_a_gradient_that_is_not_finite_stops_the_run_and_can_be_replayed(tmp_path, capsys, monkeypatch):
    from trot.learn.algorithms.shac import Shac

    rollout, calls = Shac.rollout, []

    def spoiling(self, noise=None):
        calls.append(None)
        rollout(self, noise)
        if len(calls) == 5:
            self.window.loss = self.window.loss * float("inf")

    monkeypatch.setattr(Shac, "rollout", spoiling)
    arguments = ["train", "hopper", "--device", "cpu", "--runs", str(tmp_path), "--name", "run", *SMALL]
    assert main(arguments) == 2
    monkeypatch.undo()
    error = capsys.readouterr().err
    assert "non-finite in iteration 5" in error
    command = re.search(r"trot (replay-fault \S+)", error)
    assert command is not None
    assert main(command[1].split()) == 0
    printed = capsys.readouterr().out
    assert "hopper: a window of 8 steps in 4 worlds" in printed
    assert "float32: all adjoints are finite" in printed and "float64: all adjoints are finite" in printed
    run = RunFolder.open(tmp_path / "run")
    assert run.read_metrics()[-1]["stopped"] == 1
    # What was learned before the bad window is still there, and sound.
    saved = run.load_checkpoint("last")
    assert saved["iteration"] == 4 and all(t.isfinite().all() for t in saved["agent"].values())


def test_a_bad_window_that_no_longer_fits_is_not_replayed_with_other_weights(tmp_path, capsys, monkeypatch):
    from trot.learn.algorithms.shac import Shac

    rollout = Shac.rollout

    def spoiling(self, noise=None):
        rollout(self, noise)
        self.window.loss = self.window.loss * float("inf")

    with monkeypatch.context() as patch:
        patch.setattr(Shac, "rollout", spoiling)
        assert main(["train", "hopper", "--device", "cpu", "--runs", str(tmp_path), "--name", "run", *SMALL]) == 2
    run = RunFolder.open(tmp_path / "run")
    saved = run.load_checkpoint("bad_gradient")
    saved["learner"]["agent.policy.other"] = saved["learner"].pop("agent.policy.log_std")
    path = run.save_checkpoint("changed", saved)
    capsys.readouterr()
    assert main(["replay-fault", str(path)]) == 2
    error = capsys.readouterr().err
    assert "does not fit SHAC as it is now: agent.policy.log_std, agent.policy.other" in error


def test_weights_that_are_lost_without_a_bad_gradient_keep_no_window(tmp_path, capsys):
    options = ["--actor-lr", "1e38", "--device", "cpu", "--runs", str(tmp_path), "--name", "run"]
    assert main(["train", "hopper", *SMALL, *options]) == 2
    assert "learning met a number that is not finite in iteration 1" in capsys.readouterr().err
    assert "bad_gradient" not in RunFolder.open(tmp_path / "run").checkpoint_names()


def test_stop_at_ends_a_run_that_is_good_enough(tmp_path):
    options = ["--iterations", "200", "--num-worlds", "4", "--horizon", "60", "--stop-at", "-100000"]
    arguments = ["train", "cartpole", "--device", "cpu", "--runs", str(tmp_path), "--name", "run", *options]
    assert main(arguments) == 0
    run = RunFolder.open(tmp_path / "run")
    assert run.load_checkpoint("last")["finished"]
    assert len(run.read_metrics()) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "the task comes first"),
        (["train", "--seed", "1"], "the task comes first"),
        (["train", "cartpole", "--stop-at", "nan"], "stop_at must be a number, not nan"),
        (["train", "cartpole", "--minutes", "0"], "minutes must be above 0 and finite, not 0"),
        (["train", "cartpole", "--minutes", "nan"], "minutes must be above 0 and finite, not nan"),
        (["train", "cartpole", "--minutes", "inf"], "minutes must be above 0 and finite, not inf"),
        (["train", "hoper"], "no task 'hoper'. Did you mean hopper?"),
        (["train", "missing.py:Walker"], "no task file 'missing.py'"),
        (["train", "ant", "--horizon", "31"], "horizon 31 does not split into critic_batches 4"),
        (["train", "ant", "--actor-lr", "0"], "actor_lr must be above 0, not 0"),
        (["train", "ant", "--device", "meta"], "cpu or cuda"),
        (["resume", "no_such_run"], "no_such_run"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--algo", "shacc"],
            f"there is no algorithm 'shacc'. Did you mean shac? There are: {', '.join(ALGORITHMS)}; ",
        ),
        (["--algo", "x"], f"there is no algorithm 'x'. There are: {', '.join(ALGORITHMS)}; your own is "),
        (["--algo", "missing.py:MINE"], "no algorithm file 'missing.py'"),
        (["--preset", "tunde"], "preset must be one of tuned, paper, general, gpu, not 'tunde'"),
    ],
)
def test_an_unknown_algorithm_or_preset_names_those_there_are(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "ant", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"trot train: {message}")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_setting_suggests_the_nearest(capsys):
    assert main(["train", "ant", "--world", "4"]) == 2
    assert "--worlds" in capsys.readouterr().err


def test_settings_come_from_task_algorithm_and_preset():
    assert parse_settings(["ant"]).settings.critic_lr == 2e-3
    assert parse_settings(["ant", "--preset", "general"]).settings.critic_lr == 5e-4
    bptt = parse_settings(["ant", "--seed", "2", "--algo", "bptt", "--num-worlds", "8"])
    assert (bptt.settings.horizon, bptt.settings.critic, bptt.settings.num_worlds, bptt.seed) == (128, False, 8, 2)
    own = Path(__file__).parents[2] / "examples" / "walker" / "my_task.py"
    assert parse_settings([f"{own}:Walker"]).settings.num_worlds == 64
    assert parse_settings(["ant", "--randomize.mass", "0.8", "1.2"]).randomize.mass == (0.8, 1.2)


def test_an_own_task_trains_with_random_physics_and_resumes(tmp_path):
    task = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "walker", "my_task.py:Walker")
    run = train(tmp_path, "--randomize.friction", "0.7", "1.3", task=task)
    assert json.loads((run.path / "settings.json").read_text())["randomize"]["friction"] == [0.7, 1.3]
    assert main(["resume", str(run.path)]) == 0


def test_the_demo_trains_until_its_goal_and_says_where_the_run_lies(tmp_path, capsys):
    assert main(["demo", "--runs", str(tmp_path), "--goal", "-100000"]) == 0
    printed = capsys.readouterr().out
    assert "It is solved: 128 new episodes return -" in printed
    assert f"The run lies in {tmp_path / 'demo-0'}" in printed
    assert RunFolder.open(tmp_path / "demo-0").load_checkpoint("last")["finished"]
    assert f"Watch it: open {tmp_path / 'demo-0' / 'motion.html'}" in printed
    assert "<html" in (tmp_path / "demo-0" / "motion.html").read_text()[:1000].lower()


def test_the_demo_learns_on_while_new_episodes_are_too_bad(tmp_path, capsys, monkeypatch):
    returns = [-200_000.0, -150_000.0, -90_000.0]
    monkeypatch.setattr("trot.demo._play", lambda run: returns.pop(0))
    assert main(["demo", "--runs", str(tmp_path), "--goal", "-100000"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("On the way: 128 new episodes return -") == 2
    assert "It is solved: 128 new episodes return -90000" in printed
    rows = RunFolder.open(tmp_path / "demo-0").read_metrics()
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1)) and not returns


def test_a_run_that_reached_its_goal_goes_on_towards_another_one(tmp_path, capsys):
    run = train(tmp_path, "--stop-at", "-1e6", "--num-worlds", "1", "--horizon", "12", task=DOCKING)
    reached = run.load_checkpoint("last")["iteration"]
    assert main(["resume", str(run.path)]) == 0
    assert "is finished" in capsys.readouterr().out
    assert main(["resume", str(run.path), "--stop-at", "0"]) == 0
    assert run.load_checkpoint("last")["iteration"] == run.settings["iterations"] > reached
    assert main(["resume", str(run.path), "--stop-at", "1"]) == 0
    assert "is finished" in capsys.readouterr().out


def test_another_goal_is_remembered(tmp_path, capsys):
    run = train(tmp_path, "--stop-at", "-1e6", "--num-worlds", "1", "--horizon", "12", task=DOCKING)
    reached = run.load_checkpoint("last")["iteration"]
    assert main(["resume", str(run.path), "--stop-at", "-1e5"]) == 0
    assert run.load_checkpoint("last")["iteration"] == reached + 1 < 12
    assert json.loads((run.path / "settings.json").read_text())["schedule"]["stop_at"] == -1e5
    capsys.readouterr()
    assert main(["list", "--root", str(tmp_path)]) == 0
    line = capsys.readouterr().out.splitlines()[1].split()
    assert line[3] == f"{reached + 1}/12" and line[-2] == "yes"
    # More iterations of a run that met its goal: the goal does not end it again.
    assert main(["resume", str(run.path), "--iterations", "9"]) == 0
    assert run.load_checkpoint("last")["iteration"] == 9 > reached + 1
    assert json.loads((run.path / "settings.json").read_text())["schedule"]["stop_at"] is None


def test_minutes_end_a_run_that_goes_on_for_more_of_them(tmp_path, capsys, monkeypatch):
    """By a clock that moves on by three seconds whenever it is asked."""
    whole = metrics(train(tmp_path, "--no-lr-decay", name="whole"))
    clock = itertools.count(0, 3)
    monkeypatch.setattr("trot.learn.trainer.time.monotonic", lambda: float(next(clock)))
    run = train(tmp_path, "--minutes", "1", "--no-lr-decay")
    *earlier, last = [row["seconds"] for row in run.read_metrics()]
    assert max(earlier) < 60 <= last and 2 < len(earlier) < 11
    saved = run.load_checkpoint("last")
    assert saved["finished"] and saved["iteration"] == len(earlier) + 1
    capsys.readouterr()
    for options in ([], ["--minutes", "1"], ["--minutes", "0.5"], ["--minutes", "1"]):
        assert main(["resume", str(run.path), *options]) == 0
        message = f"is finished: {saved['iteration']} iterations. To go on: trot resume {run.path} --minutes M\n"
        assert capsys.readouterr().out.endswith(message)
    assert main(["list", "--root", str(tmp_path)]) == 0
    (line,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.endswith("run")]
    assert line[3] == f"{saved['iteration']}/12" and line[-2] == "yes"
    # What was trained before counts.
    assert main(["resume", str(run.path), "--minutes", "1.7"]) == 0
    *earlier, last = [row["seconds"] for row in run.read_metrics()]
    assert max(earlier) < 102 <= last and saved["iteration"] < len(earlier) + 1 < 12
    # A time that is up does not end the run again.
    assert main(["resume", str(run.path), "--iterations", "12"]) == 0
    assert metrics(run) == whole
    assert json.loads((run.path / "settings.json").read_text())["schedule"]["minutes"] is None


def test_a_time_that_is_up_is_noticed_between_two_looks(tmp_path, monkeypatch):
    """On a GPU the metrics are looked at every 16 iterations, more than this run has."""
    begin, clock = Trainer.__init__, itertools.count(0, 3)

    def looking_seldom(self, *given):
        begin(self, *given)
        self.look_every = 16

    monkeypatch.setattr(Trainer, "__init__", looking_seldom)
    monkeypatch.setattr("trot.learn.trainer.time.monotonic", lambda: float(next(clock)))
    run = train(tmp_path, "--minutes", "0.5", "--save-every", "100", "--keep-every", "100")
    assert 1 < len(metrics(run)) < 12 and run.load_checkpoint("last")["finished"]


def test_a_goal_and_a_time_are_kept_as_long_as_they_have_not_ended_the_run(tmp_path):
    def schedule(*options):
        assert main(["resume", str(run.path), *options]) == 0
        kept = json.loads((run.path / "settings.json").read_text())["schedule"]
        return kept["stop_at"], kept["minutes"]

    goal = ["--num-worlds", "1", "--horizon", "24", "--iterations", "15", "--stop-at"]
    run = train(tmp_path, *goal, "-1e6", "--minutes", "60", task=DOCKING)
    reached = len(metrics(run))
    assert reached < 12
    assert schedule("--stop-at", "-1e5") == (-1e5, 60) and len(metrics(run)) == reached + 1
    # Its goal was met: more time is of no use with it.
    assert schedule("--minutes", "50") == (None, 50) and len(metrics(run)) == 15
    run = train(tmp_path, *goal, "1e6", "--minutes", "1e-6", task=DOCKING, name="late")
    assert len(metrics(run)) == 1
    assert schedule("--minutes", "2e-6") == (1e6, 2e-6)
    assert schedule("--stop-at", "0") == (0, None) and len(metrics(run)) == 15
    run = train(tmp_path, "--minutes", "1e-6", task=DOCKING, name="lifted")
    assert len(metrics(run)) == 1
    assert schedule("--minutes", "inf") == (None, None) and len(metrics(run)) == 12


def test_every_algorithm_is_listed(capsys):
    assert main(["algorithms"]) == 0
    head, *lines, hint = capsys.readouterr().out.splitlines()
    assert head.split() == ["algorithm", "presets", "what", "it", "does"]
    assert [line.split()[0] for line in lines] == list(ALGORITHMS)
    for line, name in zip(lines, ALGORITHMS, strict=True):
        found = find_algorithm(name)
        assert found.name == name
        assert f"{', '.join(found.presets)} " in line and line.endswith(f"{found.label}: {found.summary}")
    assert "path/to/file.py:NAME" in hint


@pytest.mark.slow
def test_cartpole_swings_up(tmp_path):
    """500 iterations lead to about -550; a pole that hangs down costs -2400."""
    own = ["--runs", str(tmp_path), "--name", "run", "--stop-at", "-700"]
    arguments = ["train", "cartpole", "--preset", "paper", "--device", "cpu", *own]
    assert main(arguments) == 0
    run = RunFolder.open(tmp_path / "run")
    assert run.read_metrics()[-1]["episode_return"] >= -700
    assert len(run.read_metrics()) < 400


def test_six_checkpoints_of_a_training_are_kept_unless_told_otherwise(tmp_path):
    few = ["--num-worlds", "4", "--horizon", "8", "--runs", str(tmp_path)]
    assert main(["train", "cartpole", "--device", "cpu", "--iterations", "23", "--name", "run", *few]) == 0
    names = RunFolder.open(tmp_path / "run").checkpoint_names()
    assert names == ["initial", *(f"iteration_{number:06d}" for number in (4, 8, 12, 16, 20)), "last"]
