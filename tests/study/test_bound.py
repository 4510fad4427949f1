"""Improved actions: Riccati's optimum on a linear task, gains that plain stepping finds again, and none below zero."""

import csv

import docking
import numpy as np
import pytest
import torch
from made_run import make_run
from small_run import DOCKING

import trot.study
from trot import make_env
from trot.cli import main
from trot.learn.agent import load_agent
from trot.learn.play import agent_acts, play
from trot.runs.folder import RunFolder
from trot.study.bound_study import summary
from trot.study.improved_actions import Bound, bound, played_rewards
from trot.study.improver import Improver, Lengths

LINEAR = Lengths(settle=4, stretch=docking.STEPS - 4, tail=0, window=docking.STEPS, sweeps=1, tries=60)
SHORT = Lengths(settle=2, stretch=12, tail=4, window=6, sweeps=2, tries=4)


def settled_worlds(run, task, count, lengths, dtype):
    """The environment where the policy has led it, and who acts in it."""
    env = make_env(task, count, seed=0, dtype=dtype)
    agent = load_agent(RunFolder.open(run))
    agent.policy.to(dtype)
    act = agent_acts(agent, env, False, 0)
    for _ in play(env, act, lengths.settle):
        pass
    return env, act


def test_on_a_linear_task_improved_actions_come_to_riccatis_optimum(docking_run):
    found = bound(docking_run, LINEAR, num_worlds=5, device="cpu", dtype=torch.float64)
    env, _ = settled_worlds(docking_run, DOCKING, 5, LINEAR, torch.float64)
    best = torch.zeros(5, dtype=torch.float64)
    for step in range(LINEAR.settle, docking.STEPS):
        action = docking.best_actions(env.worlds.observation, step)
        assert action.abs().max() < 1
        best += env.step(action)[1]
    policy, improved, best = found.policy.sum(axis=0), found.improved.sum(axis=0), best.numpy()
    assert (improved <= best + 1e-12).all()
    # Of what the policy leaves, all but a thousandth.
    assert ((best - improved) < 1e-3 * (best - policy)).all() and (best - policy > 1e-2).all()


def test_actions_come_off_the_bound_that_a_policy_holds_them_at():
    env = make_env(DOCKING, 3, seed=1, dtype=torch.float64)
    env.reset()
    begin = env.worlds.clone()
    lengths = Lengths(stretch=docking.STEPS, tail=0, window=docking.STEPS, sweeps=1, tries=120)
    improver = Improver(env, lambda observation: torch.ones(3, 1, dtype=torch.float64), lengths)
    actions = improver.improved(begin, lambda amount: None)
    assert actions.abs().max() <= 1
    paid, _ = played_rewards(env, improver.act, begin, actions, docking.STEPS)
    np.testing.assert_allclose(paid.sum(axis=0), docking.best_return(begin.observation.numpy()), rtol=1e-3)


def test_gains_are_differences_of_returns_that_plain_stepping_finds(docking_run):
    found = bound(docking_run, SHORT, num_worlds=4, device="cpu", dtype=torch.float64)
    env, act = settled_worlds(docking_run, DOCKING, 4, SHORT, torch.float64)
    begin = env.worlds.clone()
    policy = torch.stack([env.step(act(env.worlds.observation))[1] for _ in range(SHORT.counted)])
    np.testing.assert_allclose(found.policy, policy.numpy(), rtol=1e-12)
    actions = Improver(env, act, SHORT).improved(begin, lambda amount: None)
    env.worlds = begin
    improved = [env.step(action)[1] for action in actions]
    improved += [env.step(act(env.worlds.observation))[1] for _ in range(SHORT.tail)]
    np.testing.assert_allclose(found.gains, (torch.stack(improved) - policy).sum(dim=0).numpy(), rtol=1e-9)
    assert (found.gains > 0).all()
    whole = {name: sum(pair[place] for pair in found.terms.values()) for place, name in enumerate(("own", "best"))}
    assert whole["own"] == pytest.approx(found.policy.mean()) and whole["best"] == pytest.approx(found.improved.mean())


def test_no_world_loses_and_falls_end_what_is_paid(hopper_run):
    lengths = Lengths(settle=40, stretch=24, tail=24, window=12, sweeps=1, tries=3)
    found = bound(hopper_run, lengths, num_worlds=6, device="cpu")
    assert (found.gains >= -1e-4).all() and (found.gains > 0.1).any()
    env, act = settled_worlds(hopper_run, "hopper", 6, lengths, torch.float32)
    running, paid = torch.ones(6, dtype=torch.bool), []
    for _ in range(lengths.counted):
        _, reward, terminated, _, _ = env.step(act(env.worlds.observation))
        paid.append(torch.where(running, reward, 0.0))
        running &= ~terminated
    # An untrained policy falls: what a new episode pays does not count.
    assert not running.all()
    np.testing.assert_allclose(found.policy, torch.stack(paid).numpy(), rtol=1e-4, atol=1e-4)


def test_worlds_that_fall_before_the_stretch_are_left_out(hopper_run):
    env, act = settled_worlds(hopper_run, "hopper", 4, Lengths(settle=1), torch.float32)
    ends = torch.stack([env.step(act(env.worlds.observation))[2] for _ in range(200)])
    fall = (ends.long().argmax(dim=0) + 2).sort().values
    assert ends.any(dim=0).all() and fall[0] < fall[-1]
    brief = {"stretch": 2, "tail": 0, "window": 2, "sweeps": 1, "tries": 1}
    found = bound(hopper_run, Lengths(settle=int(fall[0]), **brief), num_worlds=4, device="cpu")
    assert found.fell == int((fall == fall[0]).sum()) and len(found.gains) == 4 - found.fell
    with pytest.raises(ValueError, match=f"fell in all worlds before step {fall[-1]}"):
        bound(hopper_run, Lengths(settle=int(fall[-1]), **brief), num_worlds=4, device="cpu")


def test_figures_worked_by_hand():
    policy, improved = np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 4.0]]), np.array([[1.0, 3.0], [2.0, 3.0], [2.0, 3.0]])
    case = Bound("made", Lengths(stretch=2, tail=1), policy, improved, {"forward": (2.0, 2.5)}, fell=3)
    np.testing.assert_array_equal(case.gains, [1, 1])
    assert case.per_thousand == 2000 and case.gain_per_thousand == pytest.approx((500, 500, 500))
    text = summary([case])
    assert "2000.0    2500.0    500.0" in text and "25.0%" in text and "forward 2.000 to 2.500" in text
    assert "left out: 3 worlds" in text


@pytest.mark.parametrize(("stretch", "window"), [(128, 32), (12, 6), (5, 2), (4, 8), (7, 4), (3, 3)])
def test_windows_reach_every_step_of_the_stretch(stretch, window):
    places = Improver(None, None, Lengths(stretch=stretch, window=window)).places
    covered = {step for place in places for step in range(place, min(place + window, stretch))}
    assert covered == set(range(stretch))


def test_the_command_writes_numbers_and_a_figure(docking_run, tmp_path, capsys):
    short = [f"--{name}={getattr(SHORT, name)}" for name in ("settle", "stretch", "tail", "window", "sweeps", "tries")]
    options = ["--worlds", "4", "--device", "cpu", "--studies", str(tmp_path)]
    assert main(["study", "bound", str(docking_run), *short, *options]) == 0
    folder = tmp_path / "bound-run"
    names = {path.name for path in folder.iterdir()}
    assert {"rewards.npz", "bound.csv", "bound.png", "bound.svg", "command.txt"} <= names
    found = trot.study.bound(docking_run, SHORT, 4, device="cpu")
    np.testing.assert_array_equal(np.load(folder / "rewards.npz")["run-improved"], found.improved)
    with (folder / "bound.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["gain_per_thousand"]) == found.gain_per_thousand[0]
    assert float(row["effort_policy"]) == found.terms["effort"][0]
    assert "95 % interval" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name one run or more"),
        (["cartpole"], "'cartpole' is a task and has no policy"),
        (["RUN"], "settle, stretch and tail are 492 steps, but an episode has 240"),
        (["RUN", "--tries", "0"], "tries must be at least 1, not 0"),
        (["RUN", "--checkpoint", "first"], "first"),
    ],
)
def test_bad_input_is_one_line(arguments, said, tmp_path, capsys):
    run, _ = make_run(tmp_path, "cartpole")
    given = [str(run.path) if word == "RUN" else word for word in arguments]
    assert main(["study", "bound", *given, "--device", "cpu", "--studies", str(tmp_path / "studies")]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("trot study: ") and said in error
