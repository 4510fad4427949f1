"""Every task through the environment: shapes, clocks, seeds, resuming, and where gradients flow and do not."""

import io

import pytest
import torch
from two_ways import random_actions, rewards_both_ways

import trot
from trot.envs.registry import TASKS, make_task
from trot.envs.start import Start

ALL = pytest.mark.parametrize("name", list(TASKS))


def run(env, actions):
    """Everything that a run puts out, stacked over steps."""
    outputs = [env.step(action)[:4] for action in actions]
    return [torch.stack(column) for column in zip(*outputs, strict=True)]


@ALL
def test_shapes_and_finite_over_a_thousand_random_steps(name):
    worlds = 20  # one whole block of 16 and an incomplete one
    env = trot.make_env(name, num_worlds=worlds)
    obs, info = env.reset()
    assert obs.shape == (worlds, env.num_observations) and info == {}
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for _ in range(1000):
            action = 2 * torch.rand(worlds, env.num_actions, generator=generator) - 1
            obs, reward, terminated, truncated, info = env.step(action)
            assert obs.isfinite().all() and reward.isfinite().all() and info["final_obs"].isfinite().all()
    assert obs.shape == info["final_obs"].shape == (worlds, env.num_observations)
    assert reward.shape == terminated.shape == truncated.shape == (worlds,)
    assert terminated.dtype == truncated.dtype == torch.bool
    assert env.state.joint_q.shape == (worlds, env.task.model.num_q)
    assert int(info["faults"].sum()) == 0


@ALL
def test_the_named_terms_add_up_to_the_reward(name):
    env = trot.make_env(name, num_worlds=16, dtype=torch.float64)
    env.reset()
    for action in random_actions(env, 40):
        _, reward, _, _, info = env.step(action)
        torch.testing.assert_close(sum(info["reward_terms"].values()), reward, rtol=0, atol=1e-12)


@ALL
def test_same_seed_same_bits(name):
    first, second, other = (trot.make_env(name, num_worlds=16, seed=seed) for seed in (5, 5, 6))
    starts = [env.reset()[0] for env in (first, second, other)]
    assert starts[0].equal(starts[1]) and not starts[0].equal(starts[2])
    actions = random_actions(first, 100)
    results = [run(env, actions) for env in (first, second)]
    assert all(a.equal(b) for a, b in zip(*results, strict=True))
    # A seed given to reset() begins its stream anew, whatever came before.
    assert first.reset(seed=5)[0].equal(starts[0])


@ALL
def test_a_resumed_run_equals_an_uninterrupted_one(name):
    env = trot.make_env(name, num_worlds=16, seed=3, randomize=trot.Randomize(mass=(0.9, 1.1)))
    env.reset()
    actions = random_actions(env, 120)
    run(env, actions[:60])
    file = io.BytesIO()
    torch.save(env.get_state(), file)
    expected = run(env, actions[60:])
    file.seek(0)
    resumed = trot.make_env(name, num_worlds=16, seed=99, randomize=trot.Randomize(mass=(0.9, 1.1)))
    resumed.set_state(torch.load(file, weights_only=True))
    assert all(a.equal(b) for a, b in zip(run(resumed, actions[60:]), expected, strict=True))
    assert resumed.state.joint_q.equal(env.state.joint_q)


@ALL
def test_time_is_up_at_exactly_the_episode_length(name):
    env = trot.make_env(name, num_worlds=4)
    obs, _ = env.reset()
    worlds = env.worlds.tensors()
    env.worlds = type(env.worlds)(**{**worlds, "clock": torch.full((4, 1), env.episode_length - 2)})
    still = torch.zeros(4, env.num_actions)
    assert not env.step(still)[3].any()
    obs, _, terminated, truncated, info = env.step(still)
    assert truncated.all() and not terminated.any()
    assert not obs.equal(info["final_obs"])
    assert (env.worlds.clock == 0).all() and (env.worlds.previous_action == 0).all()


@pytest.mark.parametrize(("name", "length"), [("cartpole", 240), ("half_cheetah", 1000)])
def test_a_whole_episode_lasts_as_long_as_its_task_says(name, length):
    env = trot.make_env(name, num_worlds=2)
    env.reset()
    with torch.no_grad():
        _, _, terminated, truncated = run(env, torch.zeros(2 * length, 2, env.num_actions))
    assert not terminated.any()
    assert truncated.all(dim=1).nonzero().flatten().tolist() == [length - 1, 2 * length - 1]


def test_without_stochastic_start_every_world_begins_alike():
    env = trot.make_env("ant", num_worlds=8, stochastic_start=False)
    env.reset()
    nominal = torch.tensor(env.task.start.joint_q)
    assert (env.state.joint_q == nominal).all() and (env.state.joint_qd == 0).all()


def falling_hoppers(dtype=torch.float64):
    """Eight Hoppers, of which world 3 lies in the air and falls below the limit in the third step."""
    env = trot.make_env("hopper", num_worlds=8, dtype=dtype, seed=4)
    env.reset()
    joint_q, joint_qd = env.state.joint_q.clone(), env.state.joint_qd.clone()
    joint_q[3, 1:3], joint_qd[3, 1] = torch.tensor([-0.3, 1.5]), -3.0
    return env, trot.State(joint_q, joint_qd)


def test_a_fall_inside_a_window_leaves_the_gradients_of_other_worlds_alone():
    others = [w for w in range(8) if w != 3]
    gradients = []
    for falls in (True, False):
        env, state = falling_hoppers()
        if not falls:
            state.joint_q[3], state.joint_qd[3] = 0.0, 0.0
        env.place(state)
        actions = random_actions(env, 8).requires_grad_()
        steps = [env.step(action) for action in actions]
        assert any(bool(terminated[3]) for _, _, terminated, _, _ in steps) is falls
        torch.stack([reward for _, reward, _, _, _ in steps]).sum().backward()
        gradients.append(actions.grad)
    assert gradients[0][:, others].equal(gradients[1][:, others])
    assert not gradients[0][:, 3].equal(gradients[1][:, 3])


def test_nothing_flows_from_a_new_episode_into_the_old_one():
    env, state = falling_hoppers()
    env.place(state)
    actions = random_actions(env, 8).requires_grad_()
    steps = [env.step(action) for action in actions]
    (end,) = torch.stack([terminated[3] for _, _, terminated, _, _ in steps]).nonzero().flatten().tolist()
    later = sum(reward[3] for _, reward, _, _, _ in steps[end + 1 :])
    (gradient,) = torch.autograd.grad(later, actions, retain_graph=True)
    assert (gradient[: end + 1, 3] == 0).all()
    assert (gradient[end + 1 :, 3] != 0).any()
    # The old episode's last reward and last observation still know their past.
    final_obs = steps[end][4]["final_obs"]
    for last in (steps[end][1][3], final_obs[3].sum()):
        (gradient,) = torch.autograd.grad(last, actions, retain_graph=True)
        assert (gradient[: end + 1, 3] != 0).any()
    # The new one's first observation has none.
    (gradient,) = torch.autograd.grad(steps[end][0][3].sum(), actions, retain_graph=True)
    assert (gradient == 0).all()


def test_the_observation_before_a_reset_is_kept():
    env, state = falling_hoppers()
    env.place(state)
    while True:
        before = env.state
        action = torch.zeros(8, 3, dtype=torch.float64)
        obs, _, terminated, _, info = env.step(action)
        if terminated[3]:
            break
    after = trot.step(env.task.model, before, action, 1 / 60, 16)
    expected = torch.cat([after.joint_q[3, 1:], after.joint_qd[3]])
    assert info["final_obs"][3].equal(expected) and not obs[3].equal(expected)
    assert obs[[0, 1, 2, 4]].equal(info["final_obs"][[0, 1, 2, 4]])


@ALL
def test_rewards_of_many_moves_are_those_of_the_steps_and_so_are_their_gradients(name):
    def fresh():
        env = trot.make_env(name, 3, dtype=torch.float64)
        env.reset()
        return env

    rewards, gradients = rewards_both_ways(fresh)
    assert rewards[0][0, 1] == 0 and (rewards[0] != 0).sum() == 11
    torch.testing.assert_close(*rewards, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-12)
    assert gradients[0].abs().max() > 1e-3


def test_detach_cuts_the_gradient_and_keeps_the_numbers():
    env = trot.make_env("ant", num_worlds=2)
    env.reset()
    first = torch.zeros(2, 8, requires_grad=True)
    obs = env.step(first)[0]
    assert obs.requires_grad
    cut = env.detach()
    assert cut.equal(obs) and not cut.requires_grad and not env.state.joint_q.requires_grad
    assert not env.step(torch.zeros(2, 8))[1].requires_grad


def test_gradient_reaches_the_reward_through_the_observation_alone():
    """A policy sees the last action in Ant's observation: that path has a gradient as well."""
    env = trot.make_env("ant", num_worlds=2)
    env.reset()
    action = torch.full((2, 8), 0.3, requires_grad=True)
    obs = env.step(action)[0]
    columns = env.observation_layout["previous_action"]
    (gradient,) = torch.autograd.grad(obs[:, columns].sum(), action)
    assert gradient.equal(torch.ones(2, 8))


def test_starts_of_ended_episodes_differ_from_each_other_and_from_the_first_ones():
    env = trot.make_env("cartpole", num_worlds=4)
    first, _ = env.reset()
    with torch.no_grad():
        seen = [first]
        for _ in range(3 * 240):
            obs, _, _, truncated, _ = env.step(torch.zeros(4, 1))
            if truncated.all():
                seen.append(obs)
    rows = torch.cat(seen)
    assert len(rows) == 16 and len(torch.unique(rows, dim=0)) == 16


class Wrong(type(make_task("hopper"))):
    def reward_terms(self, measured, action):
        return {"forward": measured.forward_speed * measured.height.squeeze(1)}


class TooShort(type(make_task("hopper"))):
    start = Start(joint_q=(0.0, 1.0))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: trot.make_env("atn", 4), r"no task 'atn'\. Did you mean ant\?"),
        (lambda: trot.make_env("ant", 0), "num_worlds must be a whole number of at least 1, not 0"),
        (lambda: trot.make_env("ant", 4, dtype=torch.float16), "float32 or torch.float64"),
        (lambda: trot.make_env("ant", 4, device="meta"), "cpu or cuda"),
        (lambda: trot.make_env(Wrong, 4), r"reward_terms\(\)\['forward'\] must be \(num_worlds, 1\)"),
        (lambda: trot.make_env(TooShort, 4), "start pose has 2 numbers; this robot's joint_q has 6"),
        (lambda: trot.make_env("ant", 4).step(torch.zeros(4, 8)), r"call env\.reset\(\) first"),
        (lambda: started().step(torch.zeros(4, 7)), r"action must be \(4, 8\), one row per world, not \(4, 7\)"),
        (lambda: started().step(torch.zeros(4, 8).double()), "action is torch.float64"),
        (lambda: started().step([0.0]), "action must be a tensor, not list"),
        (lambda: started().place(trot.State(torch.zeros(4, 14), torch.zeros(4, 14))), r"joint_q is \(4, 14\)"),
        (lambda: started().set_state(started(5).get_state()), r"saved joint_q is \(5, 15\)"),
        (lambda: trot.Randomize(mass=(1.2, 0.8)), r"randomize\.mass is \(1\.2, 0\.8\)"),
        (lambda: trot.make_env(7, 4), "not int"),
    ],
)
def test_mistakes_are_named(act, message):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
        act()


def started(worlds=4):
    env = trot.make_env("ant", worlds)
    env.reset()
    return env
