"""Losses of many policies at once: against one policy after the other, SHAC's own, and differences in float64."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import tasks_with_memory
import torch
from small_run import close, small_run
from tasks_with_memory import COMMANDED

from trot.learn.algorithms import find_algorithm
from trot.learn.resume import settings_of
from trot.learn.returns import policy_loss
from trot.learn.train import make_learner, make_training_env
from trot.runs.folder import RunFolder
from trot.study import members_rollout, objective
from trot.study.common_worlds import CommonWorlds
from trot.study.learned import load_learned
from trot.study.moved_weights import Moves, flat, random_direction
from trot.study.objective import episode_objective, window_objective

OBJECTIVES = pytest.mark.parametrize("make", [window_objective, episode_objective])
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
STEP = 1e-5
COUNTING = f"{tasks_with_memory.__file__}:Counting"


def learned_from(run, device="cpu"):
    return load_learned(run, "last", device, torch.float64)


def moved(found, *shifts):
    """Policies along a random direction."""
    direction = random_direction(found.weights, torch.Generator().manual_seed(3), scaled=True)
    shift = torch.tensor(shifts, dtype=torch.float64, device=found.env.device)
    return Moves(found.weights, [direction], shift.unsqueeze(1))


def cut_short(found, steps):
    """The same over fewer steps: differences of a thousand steps of contact tell nothing."""
    return replace(found, conditions=replace(found.conditions, noise=found.conditions.noise[:steps]))


@pytest.fixture
def recorded(monkeypatch):
    """What the worlds did, step by step."""
    moves, advance = [], CommonWorlds.advance

    def recording(worlds, action):
        moves.append(advance(worlds, action))
        return moves[-1]

    monkeypatch.setattr(CommonWorlds, "advance", recording)
    return moves


@OBJECTIVES
def test_losses_are_those_of_one_policy_after_the_other(make, docking_run):
    learned = learned_from(docking_run)
    found = make(learned, 5, seed=1)
    moves, settings = moved(found, -0.7, 0.0, 0.4), learned.settings
    expected = []
    for index in range(3):
        agent = copy.deepcopy(learned.agent)
        agent.policy.load_state_dict({name: part[index] for name, part in moves.stacked().items()})
        env = learned.env(5)
        env.worlds = found.conditions.begin
        observation, total = env.worlds.observation, np.zeros(5)
        for step, noise in enumerate(found.conditions.noise):
            observation, reward, _, _, info = env.step(agent(observation, noise))
            total += settings.gamma**step * reward.numpy()
        if make is window_objective:
            beyond = learned.critic(agent.normalized(info["final_obs"]))
            total += settings.gamma**settings.horizon * beyond.detach().numpy()
        expected.append(-total.mean() / len(found.conditions.noise))
    assert found.conditions.begin.clock.max() == (16 if make is window_objective else 0)
    close(found.losses(moves), torch.tensor(expected, dtype=torch.float64))
    close(found.derivatives(moves)[0], torch.tensor(expected, dtype=torch.float64))
    assert np.ptp(expected) > 0.01


@OBJECTIVES
def test_batches_of_policies_make_no_difference(make, hopper_run, monkeypatch):
    found = make(learned_from(hopper_run), 3, seed=1)
    moves = moved(found, -0.5, -0.2, 0.0, 0.3)
    together = found.losses(moves)
    monkeypatch.setitem(objective.WORLDS_AT_ONCE, "cpu", 3)
    assert len(found._batches(moves)) == 4
    close(found.losses(moves), together, 1e-6)


def test_the_windows_loss_and_gradient_are_those_that_shac_follows(docking_run):
    """In single precision, as it trains."""
    folder = RunFolder.open(docking_run)
    settings = settings_of(folder, "cpu")
    shac = make_learner(find_algorithm("shac"), make_training_env(settings), settings)
    shac.load_state_dict(folder.load_checkpoint("last")["learner"])
    found = window_objective(load_learned(docking_run, "last", "cpu"), settings.settings.num_worlds, seed=2)
    shac.rollout(found.conditions.noise)
    # The last step of the window is the last of an episode, so that no fresh start comes in.
    assert shac.window.done[-1].all() and not shac.window.done[:-1].any()
    loss, gradient = found.gradients()
    close(loss[0].float(), shac.window.loss.detach(), 1e-6)
    expected = torch.cat([part.flatten() for part in shac.policy_gradient()])
    close(flat(gradient)[0], expected, 1e-5)
    assert expected.norm() > 0.01


def test_a_window_with_falls_is_worth_what_shac_says(hopper_run, recorded):
    learned = learned_from(hopper_run)
    found = window_objective(learned, 4, seed=1)
    # Upright no Hopper falls within eight steps.
    found.conditions.begin.joint_q[1, 1:3], found.conditions.begin.joint_qd[1, 1] = torch.tensor([-0.3, 1.5]), -3.0
    found.conditions.begin.clock[2] = found.env.episode_length - 4
    loss = found.losses(moved(found, 0.0))
    worlds = CommonWorlds(found.env, found.conditions, 1)
    fell, late = (torch.stack([getattr(move, name) for move in recorded]) for name in ("terminated", "truncated"))
    assert fell[:-1].any() and late[3, 2]
    final = torch.stack([move.final_obs for move in recorded])
    value = torch.where(fell, 0.0, learned.critic(learned.agent.normalized(final)).detach())
    close(loss[0], policy_loss(worlds.rewards(recorded), value, fell | late, learned.settings.gamma))


def test_a_whole_episode_ends_with_its_fall(hopper_run, recorded):
    found = episode_objective(learned_from(hopper_run), 4, seed=1, gamma=0.9)
    loss = found.losses(moved(found, 0.0))
    reward = CommonWorlds(found.env, found.conditions, 1).rewards(recorded).numpy()
    done = np.array([(move.terminated | move.truncated).numpy() for move in recorded])
    ends = done.argmax(axis=0)
    assert done.any(axis=0).all() and len(set(ends)) > 1 and ends.max() < found.steps - 1
    returns = [sum(0.9**t * reward[t, world] for t in range(end + 1)) for world, end in enumerate(ends)]
    close(loss[0], torch.tensor(-np.mean(returns) / found.steps))


@DEVICES
@OBJECTIVES
def test_equal_policies_meet_equal_luck_to_the_bit(make, device, hopper_run, recorded):
    found = make(learned_from(hopper_run, device), 16, seed=1)
    if make is window_objective:
        found.conditions.begin.clock[::2] = found.env.episode_length - 3
    # The policy between them falls at other times.
    losses = found.losses(moved(found, 0.3, -1.0, 0.3))
    assert losses[0] == losses[2] != losses[1]
    first, other, again = (torch.stack([move.observation.view(3, 16, -1)[k] for move in recorded]) for k in range(3))
    assert first.equal(again) and not first.allclose(other)
    done = torch.stack([(move.terminated | move.truncated).view(3, 16) for move in recorded])
    if make is episode_objective:
        assert (done[:, 0] != done[:, 1]).any()
    world = 0
    begins = [torch.stack([move.observation.view(3, 16, -1)[k, world] for move in recorded]) for k in range(3)]
    of_first, of_other = (begins[k][done[:, k, world]] for k in (0, 1))
    # World 0 begins anew where world 0 does, whenever that is.
    assert len(of_first) and len(of_other) and of_first[0].equal(of_other[0])


@DEVICES
@pytest.mark.parametrize("task", ["docking", "hopper", "commanded"])
@OBJECTIVES
def test_derivatives_are_the_limit_of_differences(make, task, device, docking_run, hopper_run, tmp_path):
    run = {"docking": docking_run, "hopper": hopper_run}.get(task) or small_run(tmp_path, COMMANDED, iterations=2)
    found = cut_short(make(learned_from(run, device), 3, seed=1), 16)
    at = [-0.4, 0.0, 0.6]
    _, slopes = found.derivatives(moved(found, *at))

    def difference(step):
        below, above = (found.losses(moved(found, *(shift + side for shift in at))) for side in (-step, step))
        return (above - below) / (2 * step)

    # A bend of contact may lie within the longer step, and rounding is larger in the shorter one.
    long, short = difference(STEP), difference(1e-3 * STEP)
    near = torch.where((long - slopes[:, 0]).abs() < (short - slopes[:, 0]).abs(), long, short)
    close(slopes[:, 0], near, 1e-6)
    assert slopes.abs().min() > 1e-3


@DEVICES
@pytest.mark.parametrize("task", ["hopper", "remembers its actions"])
@OBJECTIVES
def test_steps_that_are_run_again_give_the_same_gradient(make, task, device, hopper_run, tmp_path, monkeypatch):
    run = hopper_run if task == "hopper" else small_run(tmp_path, COUNTING, iterations=2)
    found = cut_short(make(learned_from(run, device), 2, seed=1), 20)
    at_once = found.gradients()
    monkeypatch.setitem(members_rollout.ROOM, device, 1)
    loss, gradient = found.gradients()
    close(loss, at_once[0])
    close(flat(gradient), flat(at_once[1]), 1e-9)
    assert flat(gradient).norm() > 1e-3


def test_the_gradient_over_all_worlds_is_the_mean_of_their_halves(docking_run):
    found = episode_objective(learned_from(docking_run), 6, seed=1)
    (loss, gradient), (losses, halves) = found.gradients(), found.gradients(parts=2)
    close(losses.mean(), loss[0])
    close(flat(halves).mean(dim=0), flat(gradient)[0])
    assert not losses[0].isclose(losses[1], rtol=1e-3)
    with pytest.raises(ValueError, match="6 worlds do not split into 4 equal parts"):
        found.gradients(parts=4)


@pytest.mark.parametrize("kind", ["state_dependent", "deterministic"])
def test_other_policies_have_derivatives_too(kind, tmp_path):
    run = small_run(tmp_path, "cartpole", "--policy", kind, iterations=2)
    found = cut_short(episode_objective(learned_from(run), 3, seed=1), 20)
    _, slopes = found.derivatives(moved(found, 0.2))
    below, above = (found.losses(moved(found, 0.2 + side)) for side in (-STEP, STEP))
    close(slopes[0], (above - below) / (2 * STEP), 1e-6)
    assert slopes.abs().min() > 1e-3


def test_work_is_told_as_it_is_done(docking_run, monkeypatch):
    found = episode_objective(learned_from(docking_run), 2, seed=1)
    monkeypatch.setitem(members_rollout.ROOM, "cpu", 30_000)
    told = []
    found.derivatives(moved(found, 0.1, 0.2), told.append)
    assert len(told) > 4 and sum(told) == pytest.approx(2 * found.steps)


def test_worlds_that_no_memory_holds_are_refused(docking_run, monkeypatch):
    found = episode_objective(learned_from(docking_run), 2, seed=1)
    monkeypatch.setattr(members_rollout, "memory_bytes", lambda device: 1e3)
    with pytest.raises(ValueError, match="2 worlds keep 0 GB for one step backward; cpu has 0 GB"):
        found.gradients()
