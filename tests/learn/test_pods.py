"""PODS: its line search and loss against numbers worked by hand, its gradient against differences, its books."""

import copy
from dataclasses import replace

import docking
import numpy as np
import pytest
import torch

from trot.cli import main
from trot.envs.registry import make_env, make_task
from trot.learn.algorithms import find_algorithm
from trot.learn.algorithms.pods import LineSearch, PodsSettings

TASK = f"{docking.__file__}:Docking"
WORLDS, BAD = 4, 2
OTHERS = [world for world in range(WORLDS) if world != BAD]
SMALL = {"num_worlds": WORLDS, "actor_hidden": (8,), "halvings": 3, "imitation_steps": 5}


def learner(task=TASK, seed=0, **changes):
    settings = replace(PodsSettings(), **(SMALL | changes))
    env = make_env(task, settings.num_worlds, seed=seed, dtype=torch.float64)
    return find_algorithm("pods").learner(env, settings, seed)


def improve(pods):
    pods.rollout()
    pods.differentiate()
    for _ in range(pods.settings.trials):
        pods.try_step()


def metrics(pods):
    return dict(zip(pods.all_columns(), pods.metrics.tolist(), strict=True))


def play(pods, actions=None):
    """Returns and observations of an episode by env.step(), from where the learner's next ones begin.

    The policy acts where no actions are given.
    """
    env = copy.deepcopy(pods.env)
    observation = env.begin_window()
    seen, returns = [], torch.zeros(env.num_worlds, dtype=torch.float64)
    for step in range(env.episode_length):
        seen.append(observation)
        observation, reward, *_ = env.step(pods.agent(observation).detach() if actions is None else actions[step])
        returns += reward
    return returns, torch.stack(seen)


def spoil(env, world):
    """As a fault arises: in the state that a step begins from, behind the observation's back."""
    env.window_start.joint_qd[world] = torch.nan


PARABOLAS = {
    # Best action, begin and direction; step that is kept by the first and by the best.
    "1 is the best": (1.0, 0.0, 1.0, 1.0, 1.0),
    "1/2 returns more than before, 1/4 still more, 1/8 less": (0.3, 0.0, 1.0, 0.5, 0.25),
    "downwards": (-0.4, 0.0, -1.0, 0.5, 0.5),
    "half as long": (0.25, 0.0, 0.5, 0.5, 0.5),
    "all but 1 return more": (0.26, 0.0, 1.0, 0.5, 0.25),
    "only 1/8 is short enough": (0.1, 0.0, 1.0, 0.125, 0.125),
    "none is short enough": (0.05, 0.0, 1.0, 0.0, 0.0),
    "the wrong way": (0.5, 0.0, -1.0, 0.0, 0.0),
    "no way at all": (0.5, 0.2, 0.0, 0.0, 0.0),
    "the bound, which the first three reach": (3.0, 0.75, 1.0, 1.0, 1.0),
}


@pytest.mark.parametrize("choice", ["first", "best"])
def test_the_line_search_on_parabolas(choice):
    """Each world is one action a that returns -(a - best)^2; steps of 1, 1/2, 1/4 and 1/8 are tried."""
    best, begin, direction, first, most = torch.tensor(list(PARABOLAS.values()), dtype=torch.float64).T
    step = first if choice == "first" else most
    action = (begin + step * direction).clamp(max=1)
    pays = lambda actions: -(actions[0, :, 0] - best).square()  # noqa: E731
    begin, direction = begin.view(1, -1, 1), direction.view(1, -1, 1)
    search = LineSearch(begin, pays(begin), direction, 1.0, choice)
    for _ in range(4):
        tried = search.proposal()
        search.judge(tried, pays(tried))
    assert dict(zip(PARABOLAS, search.kept_step.tolist(), strict=True)) == dict(
        zip(PARABOLAS, step.tolist(), strict=True)
    )
    assert search.actions.flatten().equal(action)
    assert search.value.equal(pays(action.view(1, -1, 1)))


def test_a_trial_that_blew_up_is_never_kept_and_a_rollout_that_did_is_never_improved():
    begin, direction = torch.zeros(1, 3, 1), torch.ones(1, 3, 1)
    search = LineSearch(begin, torch.tensor([-1.0, -1.0, torch.nan]), direction, 1.0, "best")
    search.judge(search.proposal(), torch.tensor([torch.nan, -0.5, 7.0]))
    assert search.actions.flatten().tolist() == [0, 1, 0] and search.kept_step.tolist() == [0, 1, 0]


@pytest.mark.parametrize(("task", "length"), [("cartpole", 240), ("half_cheetah", 60)])
def test_the_gradient_by_a_whole_sequence_is_that_of_differences(task, length, monkeypatch):
    monkeypatch.setattr(type(make_task(task)), "episode_length", length)
    pods = learner(task)
    pods.rollout()
    gradient = pods.action_gradient()
    actions = torch.stack(pods.played.actions).detach()
    generator = torch.Generator().manual_seed(1)
    for first in (0, length // 2, length - 1):
        moved = torch.zeros_like(actions)
        moved[first:] = torch.randn(moved[first:].shape, generator=generator, dtype=torch.float64)
        moved *= 1e-6 / moved.flatten(2).square().sum(dim=(0, 2)).sqrt().unsqueeze(1)
        above, below = (play(pods, actions + sign * moved)[0] for sign in (1, -1))
        expected, found = (above - below) / 2, (gradient * moved).sum(dim=(0, 2))
        # Returns of thousands are rounded to 1e-12.
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6, atol=2e-12)


def test_the_direction_has_a_largest_entry_of_one_in_every_world():
    pods = learner()
    pods.rollout()
    gradient = pods.action_gradient()
    pods.rollout()
    pods.differentiate()
    for world in range(WORLDS):
        mine = gradient[:, world]
        assert pods.search.direction[:, world].allclose(mine / mine.abs().max())
    norms = sorted(np.linalg.norm(gradient[:, world].numpy()) for world in range(WORLDS))
    # PyTorch's median of an even number is the lower of the two in the middle.
    assert pods.gradient_norm.item() == pytest.approx(norms[1], rel=1e-12)


def test_worlds_improve_as_the_simulation_pays():
    pods = learner()
    before, _ = play(pods)
    improve(pods)
    assert pods.played.value.allclose(before, rtol=1e-12)
    assert play(pods, pods.search.actions)[0].allclose(pods.search.value, rtol=1e-12)
    assert (pods.search.value > before).all()


def test_the_policy_imitates_what_is_seen_along_the_improved_sequences():
    pods = learner()
    improve(pods)
    _, seen = play(pods, pods.search.actions)
    before = copy.deepcopy(pods.agent)
    pods.resimulate()
    for _ in range(pods.settings.imitation_steps):
        pods.imitate()

    # The same by PyTorch's own optimiser, from statistics by NumPy; the prior counts for one part in a million.
    rows = seen.flatten(0, 1).numpy()
    inputs = torch.tensor((seen.numpy() - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-5))
    policy = before.policy
    optimizer = torch.optim.Adam(policy.parameters(), lr=pods.settings.imitation_lr)
    for _ in range(pods.settings.imitation_steps):
        optimizer.zero_grad()
        off = policy(inputs) - pods.search.actions
        loss = sum(0.5 * off[:, world].square().sum() for world in range(WORLDS)) / WORLDS
        loss.backward()
        optimizer.step()
    assert pods.imitation_loss.item() == pytest.approx(loss.item(), rel=1e-4)
    for found, expected in zip(pods.agent.policy.parameters(), policy.parameters(), strict=True):
        assert (found - expected).abs().max() < 1e-3 * pods.settings.imitation_lr * pods.settings.imitation_steps


def test_every_simulated_step_counts_and_the_return_is_the_policys_own(monkeypatch):
    pods = learner()
    taken = []
    advance = pods.env.advance
    monkeypatch.setattr(pods.env, "advance", lambda action: taken.append(len(action)) or advance(action))
    for iteration in (1, 2):
        returns, _ = play(pods)
        taken.clear()
        steps = int(pods.steps)
        pods.episodes.finished.zero_()
        pods.iterate()
        # One rollout, four trials, one more simulation.
        assert int(pods.steps) - steps == sum(taken) == 6 * docking.STEPS * WORLDS
        row = metrics(pods)
        assert row["episodes"] == WORLDS and row["episode_length"] == docking.STEPS
        assert row["episode_return"] == pytest.approx(returns.mean().item(), rel=1e-12), iteration


def test_columns_say_what_the_line_search_did():
    pods = learner()
    pods.iterate()
    row, search = metrics(pods), pods.search
    assert row["gain"] == pytest.approx((search.value - pods.played.value).mean().item()) and row["gain"] > 0
    assert row["improved_worlds"] == 1 and row["lost_gradients"] == 0
    assert row["step_size"] == search.kept_step.mean().item() > 0


def test_episodes_end_by_time_in_their_last_step_and_others_begin():
    pods = learner()
    starts = []
    for _ in range(3):
        starts.append(pods.env.window_start.observation.clone())
        assert pods.env.window_start.clock.sum() == 0
        pods.iterate()
        assert pods.played.seen[0].equal(starts[-1])
        assert pods.played.done[-1].all() and not pods.played.done[:-1].any()
    everyone = torch.cat(starts)
    assert len(everyone.unique(dim=0)) == len(everyone)


def test_a_world_that_blows_up_teaches_nothing_and_begins_anew():
    clean, spoilt = learner(), learner()
    spoil(spoilt.env, BAD)
    for pods in (clean, spoilt):
        improve(pods)
        pods.resimulate()
        pods.imitate()
    assert spoilt.search.actions[:, OTHERS].equal(clean.search.actions[:, OTHERS])
    assert spoilt.search.actions[:, BAD].equal(torch.stack(spoilt.played.actions)[:, BAD].detach())
    off = (clean.agent.policy(spoilt.inputs) - clean.search.actions).detach()
    assert off.isfinite().all() and spoilt.imitation_loss.isfinite()
    assert spoilt.counts.tolist() == [0 if world == BAD else 1 for world in range(WORLDS)]

    spoilt.finish()
    row = metrics(spoilt)
    assert row["faults"] == 1 and row["stopped"] == 0 and row["improved_worlds"] == 3 / 4
    assert all(np.isfinite(value) for value in row.values())
    assert spoilt.env.window_start.clock.sum() == 0 and spoilt.episodes.age.sum() == 0
    spoilt.iterate()
    # One that ended in its first step, and all others whole; what began behind it in the same iteration is none.
    assert metrics(spoilt)["episodes"] == 2 * WORLDS and metrics(spoilt)["faults"] == 1


def test_the_loss_leaves_out_a_world_that_blew_up():
    pods = learner()
    spoil(pods.env, BAD)
    improve(pods)
    pods.resimulate()
    off = (pods.agent.policy(pods.inputs) - pods.search.actions).detach().numpy()
    pods.imitate()
    expected = sum(0.5 * np.square(off[:, world]).sum() for world in OTHERS) / WORLDS
    assert pods.imitation_loss.item() == pytest.approx(expected, rel=1e-12)


def test_a_world_whose_gradient_is_lost_keeps_its_actions_and_is_told_of(monkeypatch):
    clean, lost = learner(), learner()
    gradient = lost.action_gradient

    def overflown():
        found = gradient()
        found[3, BAD] = torch.inf
        return found

    monkeypatch.setattr(lost, "action_gradient", overflown)
    improve(clean)
    lost.iterate()
    assert lost.search.direction[:, BAD].equal(torch.zeros(docking.STEPS, 1, dtype=torch.float64))
    assert lost.search.actions[:, OTHERS].equal(clean.search.actions[:, OTHERS])
    assert lost.search.actions[:, BAD].equal(torch.stack(lost.played.actions)[:, BAD].detach())
    row = metrics(lost)
    assert row["lost_gradients"] == 1 / 4 and row["improved_worlds"] == 3 / 4 and row["gain"] > 0
    assert lost.warning(row) == "25% of worlds have a gradient that is not finite, and did not improve"
    assert clean.warning(row | {"lost_gradients": 0.0}) is None


def test_the_same_seed_gives_the_same_bits():
    def trained(seed):
        pods = learner(seed=seed)
        for _ in range(3):
            pods.iterate()
        return pods.metrics

    assert trained(1).equal(trained(1)) and not trained(1).equal(trained(2))


@pytest.mark.parametrize("task", ["ant", "hopper", "humanoid", "muscle_humanoid"])
def test_a_task_that_can_fall_is_refused_before_there_is_a_run_folder(task, tmp_path, capsys):
    small = ["--iterations", "1", "--num-worlds", "2", "--device", "cpu"]
    assert main(["train", task, "--algo", "pods", *small, "--runs", str(tmp_path / "runs")]) == 2
    message = capsys.readouterr().err
    assert f"PODS needs episodes that are all of one length, but in '{task}' they can end early" in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_worlds": 0}, "num_worlds must be at least 1, not 0"),
        ({"imitation_steps": 0}, "imitation_steps must be at least 1, not 0"),
        ({"halvings": -1}, "halvings must be at least 0, not -1"),
        ({"line_search": "last"}, "line_search must be one of first, best, not 'last'"),
        ({"first_step": 0.0}, r"first_step must be above 0, not 0\.0"),
        ({"imitation_lr": float("nan")}, "imitation_lr must be above 0, not nan"),
        ({"adam_betas": (0.9, 1.0)}, "adam_betas must be 0 or more and below 1"),
        ({"actor_hidden": (0,)}, "actor_hidden must be widths of at least 1"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        PodsSettings(**changes)


@pytest.mark.parametrize(
    ("task", "hidden"), [("cartpole", (64, 64)), ("half_cheetah", (128, 64, 32)), ("mine.py:Own", (128, 64, 32))]
)
def test_the_preset(task, hidden):
    found = find_algorithm("pods").resolve(task)
    assert (found.num_worlds, found.iterations, found.actor_hidden) == (64, 500, hidden)
    assert (found.first_step, found.trials, found.line_search) == (1, 11, "first")
    assert (found.imitation_steps, found.imitation_lr) == (50, 1e-3)
