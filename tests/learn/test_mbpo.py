"""MBPO and SE-MBPO: schedules, pools, batches and rollouts by hand; neighbours against formulas and differences."""

from dataclasses import replace

import docking
import numpy as np
import pytest
import torch

from trot.envs.env import Env
from trot.envs.registry import make_env
from trot.learn.algorithms.mbpo import MBPO, Mbpo, MbpoSettings
from trot.learn.algorithms.se_mbpo import SE_MBPO, SeMbpo, SeMbpoSettings, moved

TINY = {
    "num_worlds": 4, "iterations": 8, "horizon": 3, "random_iterations": 1, "updates": 1, "batch": 40, "hidden": (8,),
    "model_interval": 3, "rollouts": 10, "rollouts_kept": 2, "rollout_lengths": (1, 3), "model_hidden": (8,),
    "model_batch": 16, "model_passes": 2,
}  # fmt: skip

EDGE = 0.2


class Falling(docking.Docking):
    """The sled falls off the rail's end; episodes are short."""

    episode_length = 5

    def fallen(self, measured):
        return measured.joint_q > EDGE

    def looks_fallen(self, observation):
        return observation["offset"] > EDGE


def make_learner(task=docking.Docking, kind=Mbpo, dtype=torch.float32, seed=0, **changes):
    settings_type = SeMbpoSettings if kind is SeMbpo else MbpoSettings
    settings = settings_type(**(TINY | changes))
    return kind(Env(task(), settings.num_worlds, seed=seed, dtype=dtype), settings, seed)


def act(learner, action):
    learner.remember(action, learner.advance(action))


def explored(learner):
    learner.explore()
    return learner


@pytest.mark.parametrize(
    ("epochs", "lengths", "expected"),
    [
        # By hand: 1 + (e - 20) / 80 * 24 of the Ant, cut: 23 -> 1.9, 24 -> 2.2, 60 -> 13, 99 -> 24.7.
        ((20, 100), (1, 25), {0: 1, 20: 1, 23: 1, 24: 2, 60: 13, 99: 24, 100: 25, 500: 25}),
        # 1 + (e - 20) / 130 * 14: 29 -> 1.97, 30 -> 2.08, 85 -> 8, 149 -> 14.9.
        ((20, 150), (1, 15), {0: 1, 29: 1, 30: 2, 85: 8, 149: 14, 150: 15}),
        ((20, 150), (1, 1), {0: 1, 85: 1, 1000: 1}),
    ],
)
def test_the_length_of_rollouts_follows_the_schedule(epochs, lengths, expected):
    settings = MbpoSettings(rollout_epochs=epochs, rollout_lengths=lengths)
    assert {epoch: settings.rollout_length(epoch) for epoch in expected} == expected


def test_epochs_count_the_steps_of_all_worlds_from_the_first_update_on():
    learner = make_learner(epoch_steps=12)
    found = []
    for _ in range(4):
        learner.iterate()
        found.append(learner.epoch())
    # An iteration is 3 steps of 4 worlds; the first was random.
    assert found == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("task", "actions", "entropy", "between", "kept", "updates", "width"),
    [
        ("cartpole", 1, -1, 250, 400_000, 20, 200),
        ("hopper", 3, -1, 250, 400_000, 20, 200),
        ("half_cheetah", 6, -3, 250, 400_000, 40, 200),
        ("ant", 8, -4, 250, 400_000, 20, 200),
        ("humanoid", 21, -2, 1000, 500_000, 20, 400),
    ],
)
def test_the_paper_preset_is_its_table(task, actions, entropy, between, kept, updates, width):
    assert make_env(task, 1).num_actions == actions
    for algorithm in (MBPO, SE_MBPO):
        settings = algorithm.resolve(task, "paper")
        assert settings.num_worlds == 1
        assert settings.random_iterations * settings.horizon == 5000
        assert settings.model_interval * settings.horizon == between
        # Rows of the pool per step of a rollout's length.
        assert settings.rollouts_kept * settings.rollouts == kept
        assert settings.entropy_per_action * actions == pytest.approx(entropy)
        assert (settings.updates, settings.policy_updates) == (updates, "each")
        assert settings.model_hidden == (width,) * 4
        # Ends where the schedule of rollouts does.
        steps = (settings.iterations - settings.random_iterations) * settings.horizon
        assert steps == settings.rollout_epochs[1] * settings.epoch_steps


def test_the_model_is_due_now_and_then():
    learner = make_learner()
    learner.fresh.fill_(1)
    explore, model, imagine, learn = learner.phases()
    due = {phase.name: [k for k in range(8) if phase.takes_part(k)] for phase in (explore, model, imagine, learn)}
    assert due == {"explore": [0], "model": [1, 4, 7], "imagine": [1, 4, 7], "learn": [1, 2, 3, 4, 5, 6, 7]}
    assert [model.captured, imagine.captured, learn.captured] == [False, False, True]
    # Whoever comes in late, with nothing imagined so far, does not learn from nothing.
    learner.fresh.zero_()
    assert model.takes_part(6) and imagine.takes_part(6) and not model.takes_part(0)


@pytest.mark.parametrize(("share", "real"), [(0.05, 2), (0.0, 0), (1.0, 40), (0.49, 19)])
def test_batches_have_their_share_of_real_steps(share, real):
    learner = explored(make_learner(real_share=share))
    learner.train_model()
    learner.imagine()
    learner.memory.rows_reward.fill_(1)
    learner.pool.rows_reward.fill_(2)
    rewards = learner.draw()["reward"].tolist()
    assert rewards == [1] * real + [2] * (40 - real)
    assert learner.draw(3)["reward"].tolist() == 3 * rewards
    # Of MBPO's batch of 256, 12.
    assert int(MbpoSettings().real_share * MbpoSettings().batch) == 12


def test_the_pool_keeps_the_last_trainings_rollouts_whatever_their_length():
    learner = explored(make_learner(epoch_steps=12, rollout_epochs=(1, 3), rollout_lengths=(1, 3)))
    learner.train_model()
    found = []
    for epoch in (0, 0, 0, 2, 3, 3, 3):
        learner.steps.fill_(12 + 12 * epoch)
        learner.imagine()
        found.append((int(learner.rollout_length), int(learner.imagined), int(learner.fresh)))
    # Two trainings of 10 rollouts: 20 rows at length 1, 40 at 2, 60 at 3.
    assert found == [(1, 10, 10), (1, 10, 20), (1, 10, 20), (2, 20, 40), (3, 30, 60), (3, 30, 60), (3, 30, 60)]
    assert learner.pool.capacity == 60


def test_updates_draw_only_from_what_the_pool_keeps():
    learner = explored(make_learner(real_share=0.0, batch=500))
    zero = {name: part[:10] * 0 for name, part in learner.memory.everything().items()}
    for number in range(4):
        learner.pool.add(**zero | {"reward": torch.full((10,), float(number))})
    learner.fresh.fill_(20)
    assert set(learner.draw()["reward"].tolist()) == {2, 3}


def scripted_rollouts(learner, steps):
    """Have the model move every sled by these offsets, one after the other, and pay a hundredth of where it is."""
    script = iter(steps)

    def imagine(observation, action, generator):
        following = observation + torch.tensor([next(script), 0.0])
        return following, following[:, 0] / 100

    learner.model.imagine = imagine


def test_an_imagined_fall_ends_its_rollout():
    learner = explored(make_learner(Falling, rollout_lengths=(3, 3), rollouts=3))
    # Sleds at -0.5, 0 and 0.1 move by 0.15, by 0.15 and by 1: the third falls at once, the second in the second step.
    starts = torch.tensor([[-0.5, 0.0], [0.0, 0.0], [0.1, 0.0]])
    learner.memory.sample = lambda count, generator: {"observation": starts}
    scripted_rollouts(learner, [0.15, 0.15, 1.0])
    learner.imagine()
    rows = learner.pool.everything()
    offsets = [-0.5, 0.0, 0.1, -0.35, 0.15, -0.2]
    after = [-0.35, 0.15, 0.25, -0.2, 0.3, 0.8]
    np.testing.assert_allclose(rows["observation"][:, 0], offsets, atol=1e-6)
    np.testing.assert_allclose(rows["next_observation"][:, 0], after, atol=1e-6)
    np.testing.assert_allclose(rows["reward"], np.array(after) / 100, atol=1e-6)
    assert rows["end"].tolist() == [0, 0, 1, 0, 1, 1]
    assert int(learner.imagined) == int(learner.fresh) == 6


def test_tasks_that_never_fall_have_no_imagined_ends():
    learner = explored(make_learner(rollout_lengths=(2, 2)))
    learner.train_model()
    learner.imagine()
    assert not learner.pool.everything()["end"].any() and int(learner.imagined) == 20


def test_imagined_steps_that_are_not_finite_are_left_out_and_counted():
    learner = explored(make_learner(rollout_lengths=(2, 2), rollouts=3))
    learner.memory.sample = lambda count, generator: {"observation": torch.tensor([[0.0, 0.0]] * 3)}

    def imagine(observation, action, generator):
        following = observation.clone()
        following[0, 1] = torch.nan
        reward = torch.zeros(len(observation))
        reward[-1] = torch.inf
        return following, reward

    learner.model.imagine = imagine
    learner.imagine()
    # Of three the first and the last; of the one that went on, itself.
    assert (int(learner.imagined), int(learner.not_finite)) == (1, 3)
    assert learner.pool.everything()["next_observation"].isfinite().all()
    assert "3 imagined steps" in learner.warning({"misjudged": 0, "not_finite": 3})
    assert not learner.stopped
    learner.fresh.zero_()
    learner.model.imagine = lambda observation, action, generator: (observation * torch.nan, observation[:, 0])
    learner.imagine()
    assert learner.stopped, "there is nothing to learn from"


@pytest.mark.parametrize("task", ["hopper", "ant", "humanoid", "muscle_humanoid"])
def test_what_looks_fallen_has_fallen(task):
    env = make_env(task, 64, dtype=torch.float64)
    env.reset()
    heights = torch.linspace(-1.0, 1.0, 64, dtype=torch.float64)
    state = env.state
    # z of a planar torso is its second coordinate, of a free one its third.
    state.joint_q[:, 1 if task == "hopper" else 2] = heights
    seen = env.place(state)
    parts = {name: seen[:, columns] for name, columns in env.observation_layout.items()}
    fallen, looks = env.task.fallen(env.task.measure(env.state)), env.task.looks_fallen(parts)
    assert fallen.equal(looks) and 5 < int(looks.sum()) < 60


def test_a_task_that_can_fall_must_tell_how_that_looks():
    class Silent(Falling):
        def looks_fallen(self, observation):
            return None

    with pytest.raises(ValueError, match=r"Silent can fall, .* give the task looks_fallen\(self, observation\)"):
        make_learner(Silent)


def test_a_rule_that_tells_something_else_is_noticed():
    class Lying(Falling):
        def looks_fallen(self, observation):
            return observation["offset"] > EDGE + 0.1

    def pushed(task):
        learner = make_learner(task)
        learner.begin()
        learner.env.place(replace(learner.env.state, joint_q=torch.tensor([[0.15], [-0.5], [0.4], [-0.5]]),
                                  joint_qd=torch.tensor([[1.0], [0.0], [1.0], [0.0]])))  # fmt: skip
        act(learner, torch.zeros(4, 1))
        return int(torch.stack(learner.misjudged).sum())

    # The first ends a little behind the edge, the third far.
    assert (pushed(Falling), pushed(Lying)) == (0, 1)
    warning = make_learner(Lying).warning({"misjudged": 1, "not_finite": 0})
    assert "Lying.looks_fallen() and fallen() differ on 1 " in warning


@pytest.mark.parametrize("kind", [Mbpo, SeMbpo])
@pytest.mark.parametrize(("time_outs", "late"), [("bootstrap", 0), ("end", 1)])
def test_a_fall_and_a_time_out_inside_a_window(kind, time_outs, late):
    learner = make_learner(Falling, kind, time_outs=time_outs)
    learner.begin()
    env = learner.env
    place = replace(env.state, joint_q=torch.tensor([[0.15], [-0.5], [0.1], [-0.6]]),
                    joint_qd=torch.tensor([[1.0], [0.0], [0.0], [0.0]]))  # fmt: skip
    learner.observation = env.place(place)
    env.worlds = replace(env.worlds, clock=torch.tensor([[0], [4], [4], [3]]))
    first = learner.observation.clone()
    act(learner, torch.tensor([[0.0], [1.0], [1.0], [1.0]]))
    act(learner, torch.zeros(4, 1))
    count = 4 * (1 + learner.settings.num_neighbours) if kind is SeMbpo else 4
    rows = learner.memory.everything()
    ends, seen, after = (
        torch.stack([rows[name][:4], rows[name][count : count + 4]]) for name in ("end", "observation",
        "next_observation")
    )  # fmt: skip
    # v' = v + dt (6 u - v / 2) / 2, x' = x + dt v': the first falls in the first step, the second and third run out of
    # time in it, the fourth in the second.
    assert ends.tolist() == [[1, late, late, 0], [0, 0, 0, late]]
    speeds = [1 - 0.1 * 0.25, 0.3, 0.3, 0.3]
    expected = [[x + 0.1 * v, v] for x, v in zip([0.15, -0.5, 0.1, -0.6], speeds, strict=True)]
    np.testing.assert_allclose(after[0], expected, atol=1e-6)
    assert seen[0].equal(first)
    # A new episode where one ended; where none did, on from where it was.
    assert seen[1, 3].equal(after[0, 3]) and not any(seen[1, k].equal(after[0, k]) for k in range(3))
    assert torch.stack(learner.done).tolist() == [[True, True, True, False], [False, False, False, True]]


@pytest.mark.parametrize(("policy_updates", "expected"), [("once", "cccp"), ("each", "cpcpcp")])
def test_the_policy_follows_each_update_or_the_last(monkeypatch, policy_updates, expected):
    learner, order = explored(make_learner(updates=3, policy_updates=policy_updates)), []
    learner.train_model()
    learner.imagine()
    for name in ("critic_gradient", "policy_gradient"):
        method = getattr(learner, name)

        def noted(batch, *lots, method=method, letter=name[0]):
            order.append(letter)
            return method(batch, *lots)

        monkeypatch.setattr(learner, name, noted)
    learner.update(learner.draw(3))
    assert "".join(order) == expected


@pytest.mark.parametrize("kind", [Mbpo, SeMbpo])
def test_it_resumes_to_the_bit_between_two_trainings_of_the_model(kind):
    whole, resumed = make_learner(Falling, kind), make_learner(Falling, kind, seed=1)
    # Trainings in iterations 1, 4 and 7, counted from 0.
    for _ in range(3):
        whole.iterate()
    resumed.load_state_dict(whole.state_dict())
    for _ in range(5):
        whole.iterate()
        resumed.iterate()
        assert whole.metrics.equal(resumed.metrics)
    first, second = whole.state_dict(), resumed.state_dict()
    different = [n for n in first if isinstance(first[n], torch.Tensor) and not first[n].equal(second[n])]
    assert different == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"real_share": 1.5}, "real_share must be between 0 and 1"),
        ({"model_elites": 8}, "model_elites 8 is more than the members: 7"),
        ({"rollout_epochs": (5, 5)}, "rollout_epochs must be an epoch and a later one"),
        ({"rollout_lengths": (0, 3)}, "rollout_lengths must be at least 1"),
        ({"model_hidden": ()}, "model_hidden must be widths of at least 1"),
        ({"rollouts": 0}, "rollouts must be at least 1, not 0"),
        ({"model_lr": 0.0}, "model_lr must be above 0"),
        ({"policy_updates": "twice"}, "policy_updates must be once or each, not 'twice'"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        MbpoSettings(**(TINY | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reach": 0.0}, "reach must be above 0"),
        ({"steepest": -1.0}, "steepest must be above 0"),
        ({"num_neighbours": -1}, "num_neighbours must be 0 or more"),
        ({"neighbours": "all"}, "neighbours must be released or full, not 'all'"),
        ({"memory": 39}, "memory 39 holds not even one step of all worlds and its neighbours, 40"),
    ],
)  # fmt: skip
def test_neighbours_that_cannot_be_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        SeMbpoSettings(**(TINY | change))


def sled_after(observation, action):
    offset, speed = observation[:, 0], observation[:, 1]
    new_speed = speed + docking.DT * (docking.FORCE * action[:, 0] - docking.DAMPING * speed) / docking.MASS
    return torch.stack([offset + docking.DT * new_speed, new_speed], dim=1)


def sled_reward(after, action):
    cost = torch.tensor([docking.OFFSET_COST, docking.SPEED_COST], dtype=after.dtype)
    return -(cost * after.square()).sum(dim=1) - docking.EFFORT_COST * action[:, 0].square()


def one_step(**changes):
    """Rows of one step of many sleds: real ones, and their neighbours, (worlds, neighbours, ...)."""
    learner = make_learner(kind=SeMbpo, dtype=torch.float64, num_worlds=500, **changes)
    learner.begin()
    action = 2 * torch.rand(500, 1, generator=learner.generator, dtype=torch.float64) - 1
    action[:2] = torch.tensor([[1.0], [-1.0]])
    act(learner, action)
    rows = learner.memory.everything()
    assert len(rows["reward"]) == 500 * 10
    return learner, {n: p[:500] for n, p in rows.items()}, {n: p[500:].unflatten(0, (500, 9)) for n, p in rows.items()}


def test_full_neighbours_of_a_linear_system_are_exact():
    learner, real, near = one_step(neighbours="full")
    observation, action = near["observation"].flatten(0, 1), near["action"].flatten(0, 1)
    after = near["next_observation"].flatten(0, 1)
    torch.testing.assert_close(after, sled_after(observation, action), rtol=0, atol=1e-13)
    # Linear in states and actions, so that nothing is left; the reward is quadratic and lacks the changes' squares.
    missing = near["reward"].flatten() - sled_reward(after, action)
    change = (near["next_observation"] - real["next_observation"].unsqueeze(1)).flatten(0, 1)
    turned = (near["action"] - real["action"].unsqueeze(1)).flatten(0, 1)
    torch.testing.assert_close(missing, -sled_reward(change, turned), rtol=0, atol=1e-13)
    assert missing.max() > 1e-6
    for name in ("observation", "action"):
        spread = (near[name] - real[name].unsqueeze(1)).abs()
        assert spread.max() <= 0.01 + 1e-15 and spread.max() > 0.0099
    assert near["action"].abs().max() <= 1
    assert learner.left_out[0] == 0 and near["end"].equal(real["end"].unsqueeze(1).expand(-1, 9))


def test_released_neighbours_take_one_row_for_all():
    _, real, near = one_step()
    assert near["observation"].equal(real["observation"].unsqueeze(1).expand(-1, 9, -1))
    turned = near["action"] - real["action"].unsqueeze(1)
    assert turned.abs().max() <= 0.01 + 1e-15 and near["action"].abs().max() <= 1
    # Half of the changes at the bound would lead beyond it.
    assert (turned[0] <= 0).all() and (turned[0] == 0).any() and (turned[1] >= 0).all()
    push = docking.DT * docking.FORCE / docking.MASS
    rows = torch.tensor([docking.DT * push, push], dtype=torch.float64)
    change = near["next_observation"] - real["next_observation"].unsqueeze(1)
    # Of the two rows either one, doubled; the same for all neighbours of a step, and each as often.
    of_offset = change[:, :, 0].abs().sum(dim=1) > 0
    of_speed = change[:, :, 1].abs().sum(dim=1) > 0
    assert (of_offset ^ of_speed).all() and 200 < int(of_offset.sum()) < 300
    expected = torch.where(torch.stack([of_offset, of_speed], dim=1).unsqueeze(1), 2 * rows * turned, 0.0)
    torch.testing.assert_close(change, expected, rtol=0, atol=1e-13)
    # The reward gets its whole gradient.
    after, action = real["next_observation"], real["action"]
    cost = torch.tensor([docking.OFFSET_COST, docking.SPEED_COST], dtype=torch.float64)
    slope = -2 * (cost * after * rows).sum(dim=1, keepdim=True) - 2 * docking.EFFORT_COST * action
    paid = near["reward"] - real["reward"].unsqueeze(1)
    torch.testing.assert_close(paid, slope * turned.squeeze(2), rtol=0, atol=1e-13)


def test_steep_slopes_are_cut_and_told():
    learner, real, near = one_step(steepest=0.1)
    turned = near["action"] - real["action"].unsqueeze(1)
    change = near["next_observation"] - real["next_observation"].unsqueeze(1)
    # Rows 2 * 0.03 and 2 * 0.3: only the second is cut.
    expected = torch.where(change[:, :, 1:] != 0, 0.1 * turned, 0.0)
    torch.testing.assert_close(change[:, :, 1:], expected, rtol=0, atol=1e-13)
    assert 0 < learner.slopes_cut[0] < 1
    assert one_step(steepest=100.0)[0].slopes_cut[0] == 0


@pytest.mark.parametrize("task", ["cartpole", "hopper", "ant"])
def test_slopes_are_those_of_finite_differences_and_leave_second_order(task):
    settings = SeMbpoSettings(**(TINY | {"neighbours": "full", "num_worlds": 8}))
    env = make_env(task, 8, dtype=torch.float64)
    learner = SeMbpo(env, settings, 0)
    learner.begin()
    state = env.state
    if task != "cartpole":
        # In the air: where contacts begin and end there are kinks.
        state.joint_q[:, 1 if task == "hopper" else 2] += 2
    if task == "hopper":
        # And where joints meet their limits, as its straight leg does.
        state.joint_q[:, 3:] -= 0.5
    generator = torch.Generator().manual_seed(1)
    state.joint_qd.add_(torch.randn(state.joint_qd.shape, generator=generator, dtype=torch.float64))
    env.place(state)
    worlds = env.worlds.detach()
    action = torch.rand(8, env.num_actions, generator=generator, dtype=torch.float64) - 0.5
    move, slopes = learner.advance(action), learner.around.slopes
    before = torch.cat([env.rewards([move])[0].unsqueeze(1), move.final_obs], dim=1).detach()
    direction = torch.randn(8, slopes.shape[2], generator=generator, dtype=torch.float64)

    def outputs(distance):
        of_state, of_action = (distance * direction).split_with_sizes([learner.state_width, env.num_actions], dim=1)
        env.worlds = worlds
        env.place(moved(env, state, of_state), worlds.previous_action)
        step = env.advance(action + of_action)
        return torch.cat([env.rewards([step])[0].unsqueeze(1), step.final_obs], dim=1)

    assert outputs(0.0).equal(before)
    slope = torch.einsum("woc,wc->wo", slopes, direction)
    difference = (outputs(1e-5) - outputs(-1e-5)) / 2e-5
    torch.testing.assert_close(slope, difference, rtol=1e-6, atol=1e-6)
    far, near = ((outputs(d) - before - d * slope).norm() for d in (2e-3, 1e-3))
    assert 3.8 < far / near < 4.2, "half the distance is to leave a quarter of the error"
    assert near < 0.02 * (1e-3 * slope).norm()


def test_a_gradient_that_is_not_finite_is_told_and_its_neighbours_left_out():
    class Root(docking.Docking):
        def reward_terms(self, measured, action):
            # At 0 the root's slope is infinite, and of the product with 0 it is no number.
            return {"root": (0 * action).abs().sqrt() * measured.joint_q}

    learner = make_learner(Root, SeMbpo)
    learner.begin()
    act(learner, torch.full((4, 1), 0.5))
    assert int(learner.left_out[0]) == 4 * 9
    rows = learner.memory.everything()
    assert len(rows["reward"]) == 40 and all(part.isfinite().all() for part in rows.values())
    # In their place the step itself.
    for part in rows.values():
        assert part[4:].equal(part[:4].repeat_interleave(9, dim=0))
    told = learner.warning({"left_out": 36, "misjudged": 0, "not_finite": 0})
    assert told == "36 neighbours of the last steps had no finite gradient, and were left out"


@pytest.mark.parametrize("neighbours", ["released", "full"])
def test_only_real_steps_count(neighbours):
    learner = make_learner(kind=SeMbpo, neighbours=neighbours)
    learner.iterate()
    learner.iterate()
    assert int(learner.steps) == 2 * 3 * 4 and int(learner.memory.filled) == 10 * int(learner.steps)
    row = dict(zip(learner.all_columns(), learner.metrics.tolist(), strict=True))
    assert row["left_out"] == 0 and row["model_passes"] == 2 and row["imagined"] == 10
    # Nor does a step's gradient go on into the next.
    learner.begin()
    act(learner, torch.zeros(4, 1))
    assert not any(tensor.requires_grad for tensor in learner.env.worlds.tensors().values())
