"""`trot train --candidates`: who goes on, what the run takes over, and that a stopped contest goes on to the bit.

Four candidates on a sled, in rounds of six, three and three iterations; every world ends an episode in each of them.
"""

import shutil

import pytest
import torch
from alike import same_bits
from ctrl_c import ctrl_c_in_iteration, timeless_rows
from made_run import make_run
from small_run import DOCKING

import trot
from trot.cli import main
from trot.envs.ranks import LAUNCHED
from trot.learn import contest
from trot.learn.algorithms import shac as shac_module
from trot.learn.contest import has_contest
from trot.runs.folder import RunFolder
from trot.runs.listing import list_runs

CANDIDATES, WORLDS, HORIZON, ITERATIONS = 4, 16, 8, 12
FIRST, SECOND = 6, 9
"""Iterations after which rounds end: half of all, then half of what is left."""
TWO = {"candidates": 2, "worlds": 4, "iterations": 6}
SMALL = ["--horizon", str(HORIZON), "--actor-hidden", "8", "--critic-hidden", "8", "--critic-passes", "2"]
SMALL += ["--save-every", "3", "--keep-every", "6", "--device", "cpu"]


def train(root, *options, worlds=WORLDS, candidates=CANDIDATES, iterations=ITERATIONS):
    own = ["--num-worlds", str(worlds), "--candidates", str(candidates), "--iterations", str(iterations)]
    return main(["train", DOCKING, *SMALL, *own, "--runs", str(root), *options])


def folder(root, seed=0):
    return root / f"Docking-shac-{seed}"


def candidate(root, round_, place):
    return RunFolder.open(folder(root) / "candidates" / f"{round_}-{place}")


def without_times(saved):
    return {name: part for name, part in saved.items() if name not in ("seconds", "metrics_checksum")}


def left(path):
    """All that a run learned and wrote, but for the time that it took."""
    run = RunFolder.open(path)
    checkpoints = {name: without_times(run.load_checkpoint(name)) for name in run.checkpoint_names()}
    return {"rows": {str(row["iteration"]): row for row in timeless_rows(path)}, **checkpoints}


def spoil(monkeypatch, *places):
    """Let the first round's candidates in these places meet a bad gradient in their first iteration."""
    exact = shac_module.policy_loss

    def spoilt(*given):
        loss = exact(*given)
        if len(loss.view(-1)) != CANDIDATES:
            return loss
        return loss * torch.tensor([float("nan") if place in places else 1.0 for place in range(CANDIDATES)])

    monkeypatch.setattr(shac_module, "policy_loss", spoilt)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What nothing stops."""
    root = tmp_path_factory.mktemp("whole")
    assert train(root) == 0
    return root


def in_order(root, round_, number):
    """The candidates of a round, those with the highest return first."""
    found = [candidate(root, round_, place) for place in range(number)]
    return sorted(found, key=lambda run: -run.last_metrics()["episode_return"])


def test_in_the_first_round_each_learns_what_its_seed_learns_alone(whole, tmp_path):
    for place in range(CANDIDATES):
        seed, share = 10_000 * place, WORLDS // CANDIDATES
        assert train(tmp_path, "--seed", str(seed), "--name", "alone", worlds=share, candidates=1) == 0
        ours, alone = candidate(whole, 1, place), RunFolder.open(tmp_path / "alone")
        assert {**ours.settings, "preset": None} == {**alone.settings, "preset": None}
        assert same_bits(ours.load_checkpoint("initial"), alone.load_checkpoint("initial"))
        rows = timeless_rows(ours.path)
        assert len(rows) == FIRST
        # Float32 sums are taken in another order.
        for found, expected in zip(rows, timeless_rows(alone.path), strict=False):
            assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
        shutil.rmtree(alone.path)


def test_the_better_half_goes_on_and_then_the_better_one(whole):
    ranked = in_order(whole, 1, CANDIDATES)
    second = [candidate(whole, 2, place) for place in range(2)]
    assert [run.settings["seed"] for run in second] == [run.settings["seed"] for run in ranked[:2]]
    for run, parent in zip(second, ranked, strict=False):
        assert timeless_rows(run.path)[: FIRST - 1] == timeless_rows(parent.path)[: FIRST - 1]
    winner, _ = in_order(whole, 2, 2)
    assert timeless_rows(folder(whole))[:SECOND] == timeless_rows(winner.path)


def test_the_run_that_is_left_is_whole_and_counts_the_steps_of_all(whole):
    rows = timeless_rows(folder(whole))
    assert [row["iteration"] for row in rows] == [*range(1, ITERATIONS + 1)]
    assert rows[-1]["steps"] == ITERATIONS * HORIZON * WORLDS
    run = RunFolder.open(folder(whole))
    saved = run.load_checkpoint("last")
    assert len(saved["learner"]["_extra_state"]["env"]["worlds"]["joint_q"]) == WORLDS
    assert run.settings["settings"]["num_worlds"] == WORLDS and run.settings["seed"] == 0
    assert saved["finished"] and saved["iteration"] == ITERATIONS
    first = candidate(whole, 1, 0).load_checkpoint("initial")
    assert same_bits(run.load_checkpoint("initial"), first)
    best = {f"best.agent.{name}": part for name, part in run.load_checkpoint("best")["agent"].items()}
    assert same_bits(best, {name: saved["learner"][name] for name in best})


def test_the_winner_keeps_what_it_learned_and_takes_over_the_worlds_of_the_other(whole, tmp_path, monkeypatch):
    def stopped(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(contest, "resume", stopped)
    assert train(tmp_path) == 130
    monkeypatch.undo()
    crowned = RunFolder.open(folder(tmp_path)).load_checkpoint("last")
    assert crowned["iteration"] == SECOND and not crowned["finished"]
    winner, other = (run.load_checkpoint("last")["learner"] for run in in_order(tmp_path, 2, 2))
    learned = crowned["learner"]
    for name in ("episodes.collected", "episodes.age"):
        assert learned[name].equal(torch.cat([winner[name], other[name]]))
    assert learned["steps"] == winner["steps"] + other["steps"] == SECOND * HORIZON * WORLDS
    for name in winner:
        if name.startswith(("agent.", "critic.", "target_critic.", "best.", "policy_optimizer.")):
            assert learned[name].equal(winner[name]), name
    ours, first, second = (part["_extra_state"]["env"] for part in (learned, winner, other))
    assert list(ours["worlds"]) == list(first["worlds"])
    for name, rows in ours["worlds"].items():
        assert rows.equal(torch.cat([first["worlds"][name], second["worlds"][name]])), name
    assert len({tuple(row) for row in ours["worlds"]["joint_q"].tolist()}) == WORLDS


def test_scores_decide(whole, tmp_path, monkeypatch):
    order = {0: 3.0, 10_000: None, 20_000: 5.0, 30_000: -7.0}
    monkeypatch.setattr(contest, "score", lambda run: order[run.settings["seed"]])
    assert train(tmp_path) == 0
    assert [candidate(tmp_path, 2, place).settings["seed"] for place in range(2)] == [20_000, 0]
    assert timeless_rows(folder(tmp_path))[:SECOND] == timeless_rows(candidate(tmp_path, 2, 0).path)


def test_candidates_that_fail_at_once_end_and_the_one_that_does_not_wins(tmp_path, monkeypatch):
    spoil(monkeypatch, 0, 1, 3)
    assert train(tmp_path) == 0
    rows = timeless_rows(folder(tmp_path))
    assert [row["iteration"] for row in rows] == [*range(1, ITERATIONS + 1)] and not any(row["stopped"] for row in rows)
    assert rows[: FIRST - 1] == timeless_rows(candidate(tmp_path, 1, 2).path)[: FIRST - 1]
    worlds = RunFolder.open(folder(tmp_path)).load_checkpoint("last")["learner"]["_extra_state"]["env"]["worlds"]
    assert len(worlds["joint_q"]) == WORLDS


def test_where_all_candidates_fail_that_is_said(tmp_path, monkeypatch, capsys):
    spoil(monkeypatch, *range(CANDIDATES))
    assert train(tmp_path) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"no candidate of {folder(tmp_path)} has a return after {FIRST} iterations" in line


def test_a_goal_is_the_runs_not_the_candidates(tmp_path):
    assert train(tmp_path, "--stop-at", "-1e9") == 0
    for round_, number in ((1, 4), (2, 2)):
        for place in range(number):
            assert len(timeless_rows(candidate(tmp_path, round_, place).path)) == (FIRST, SECOND)[round_ - 1]
    run = RunFolder.open(folder(tmp_path))
    assert run.last_metrics()["iteration"] == SECOND + 1 and run.load_checkpoint("last")["finished"]


@pytest.mark.parametrize("iteration", [2, FIRST, FIRST + 2, SECOND + 2])
def test_after_ctrl_c_a_contest_goes_on_to_the_bit(whole, tmp_path, monkeypatch, capsys, iteration):
    ctrl_c_in_iteration(monkeypatch, iteration)
    assert train(tmp_path) == 130
    monkeypatch.undo()
    path = folder(tmp_path)
    assert capsys.readouterr().out.endswith(f"Stopped after iteration {iteration}. Go on: trot resume {path}\n")
    assert has_contest([path]) == (iteration <= SECOND)
    assert main(["resume", str(path)]) == 0
    assert not has_contest([path])
    assert same_bits(left(path), left(folder(whole)))


@pytest.mark.parametrize(("lacks", "place"), [("checkpoints/last.pt", 0), ("settings.json", 1)])
def test_folders_that_were_half_made_are_made_anew(whole, tmp_path, monkeypatch, lacks, place):
    ctrl_c_in_iteration(monkeypatch, FIRST + 1)
    assert train(tmp_path) == 130
    monkeypatch.undo()
    (folder(tmp_path) / "candidates" / f"2-{place}" / lacks).unlink()
    assert main(["resume", str(folder(tmp_path))]) == 0
    assert same_bits(left(folder(tmp_path)), left(folder(whole)))


def test_a_contest_that_is_killed_between_rounds_or_before_its_crown_goes_on_to_the_bit(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "crown")
    shutil.rmtree(folder(tmp_path / "crown") / "checkpoints")
    shutil.copytree(tmp_path / "crown", tmp_path / "between")
    for place in range(2):
        shutil.rmtree(folder(tmp_path / "between") / "candidates" / f"2-{place}")
    for name in ("crown", "between"):
        (folder(tmp_path / name) / "metrics.csv").unlink()
        assert has_contest([folder(tmp_path / name)])
        assert main(["resume", str(folder(tmp_path / name))]) == 0
        assert same_bits(left(folder(tmp_path / name)), left(folder(whole)))


def test_after_its_contest_a_run_is_like_any_other(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "runs")
    path = folder(tmp_path / "runs")
    assert not has_contest([path])
    assert main(["resume", str(path)]) == 0
    assert f"{path} is finished: {ITERATIONS} iterations" in capsys.readouterr().out
    assert main(["resume", str(path), "--iterations", str(ITERATIONS + 2)]) == 0
    rows = timeless_rows(path)
    assert rows[:ITERATIONS] == timeless_rows(folder(whole)) and len(rows) == ITERATIONS + 2
    assert rows[-1]["steps"] == (ITERATIONS + 2) * HORIZON * WORLDS


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Two seeds with two candidates each."""
    root = tmp_path_factory.mktemp("both")
    assert train(root, "--seeds", "0", "1", **TWO) == 0
    return root


def test_each_of_several_seeds_has_its_own_contest(both, tmp_path):
    for seed in (0, 1):
        assert train(tmp_path, "--seed", str(seed), **TWO) == 0
        ours, alone = (timeless_rows(folder(root, seed)) for root in (both, tmp_path))
        assert len(ours) == TWO["iterations"]
        for found, expected in zip(ours, alone, strict=True):
            assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_several_contests_that_were_stopped_go_on_together_to_the_bit(both, tmp_path, monkeypatch):
    ctrl_c_in_iteration(monkeypatch, 4)
    assert train(tmp_path, "--seeds", "0-1", **TWO) == 130
    monkeypatch.undo()
    paths = [folder(tmp_path, seed) for seed in (0, 1)]
    assert main(["resume", *map(str, reversed(paths))]) == 0
    for seed, path in enumerate(paths):
        assert same_bits(left(path), left(folder(both, seed)))


def test_a_contest_goes_on_with_none_that_has_other_settings(tmp_path, monkeypatch, capsys):
    for name, candidates in (("four", 4), ("two", 2), ("one", 1)):
        ctrl_c_in_iteration(monkeypatch, 1)
        assert train(tmp_path, "--name", name, "--seed", str(candidates), candidates=candidates) == 130
        monkeypatch.undo()
    capsys.readouterr()
    for other in ("two", "one"):
        assert main(["resume", str(tmp_path / "four"), str(tmp_path / other)]) == 2
        assert "cannot go on together: they differ in candidates" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--candidates", "3"], "candidates must be 2, 4, 8 or another power of 2, not 3"),
        (["--candidates", "-1"], "candidates must be 1 or more, or 0 for what serves the task, not -1"),
        (["--num-worlds", "18"], "18 worlds cannot be shared by 4 candidates"),
        (["--iterations", "11"], "the last of 3 rounds have 16 steps, and an episode"),
        (["--view"], "--view shows one policy: leave --candidates out"),
        (["--algo", "ppo"], "Ppo cannot learn with several seeds at once"),
    ],
)
def test_what_cannot_be_held_leaves_no_folder(tmp_path, capsys, options, message):
    sizes = [] if "ppo" in options else SMALL
    given = ["--num-worlds", "16", "--iterations", "600", "--candidates", "4", "--device", "cpu", *sizes, *options]
    assert main(["train", DOCKING, "--runs", str(tmp_path), *given]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_contest_has_no_run_to_start_from(tmp_path, capsys):
    make_run(tmp_path)
    assert train(tmp_path / "runs", "--start-from", str(tmp_path / "cartpole")) == 2
    assert "--start-from is for one policy: leave --candidates out" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


def test_under_torchrun_it_is_refused(tmp_path, monkeypatch, capsys):
    for name in LAUNCHED:
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert train(tmp_path) == 2
    assert "trot train --candidates runs in one process: start it without torchrun" in capsys.readouterr().err


def test_from_python(whole, tmp_path):
    given = {"horizon": HORIZON, "actor_hidden": (8,), "critic_hidden": (8,), "critic_passes": 2, "save_every": 3}
    given |= {"iterations": ITERATIONS, "worlds": WORLDS, "candidates": CANDIDATES, "keep_every": 6, "device": "cpu"}
    run = trot.train(DOCKING, runs=tmp_path, **given)
    assert isinstance(run, trot.TrainedRun)
    assert same_bits(left(tmp_path / "Docking-shac-0"), left(folder(whole)))
    runs = trot.train(DOCKING, runs=tmp_path / "two", seeds=[0, 1], **(given | TWO))
    assert isinstance(runs, trot.TrainedRuns) and len(runs) == 2


def test_candidates_are_not_listed_as_runs(whole):
    assert [run.folder for run in list_runs(whole)] == [folder(whole)]
