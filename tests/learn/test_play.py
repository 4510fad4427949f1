"""Playing: the same as a loop written by hand, whoever acts, and nothing left behind for whoever asked."""

import itertools

import pytest
import torch
from made_run import make_agent

from trot.envs.registry import make_env
from trot.envs.start import Start
from trot.envs.tasks.hopper import Hopper
from trot.learn.learner import NOISE_STREAM
from trot.learn.play import agent_acts, chance_acts, nothing_acts, play

WORLDS, SEED = 6, 4


class TumblingHopper(Hopper):
    """Falls sooner or later, by its start, or runs out of time."""

    start = Start(joint_noise=0.3, velocity_noise=3.0)
    episode_length = 30


def tumbling():
    return make_env(TumblingHopper, WORLDS, seed=SEED)


def agent():
    return make_agent(11, 3)


def drawing(seed):
    return torch.Generator().manual_seed(seed)


def by_noise(seed):
    generator, player = drawing(seed), agent()
    return lambda observation: player(observation, torch.randn(WORLDS, 3, generator=generator))


def by_chance(seed):
    generator = drawing(seed)
    return lambda observation: torch.empty(WORLDS, 3).uniform_(-1, 1, generator=generator)


ACTING = {
    "mean": (lambda env: agent_acts(agent(), env, stochastic=False, seed=SEED), lambda: agent()),
    "noisy": (lambda env: agent_acts(agent(), env, stochastic=True, seed=SEED), lambda: by_noise(SEED + NOISE_STREAM)),
    "chance": (lambda env: chance_acts(env, SEED), lambda: by_chance(SEED)),
    "nothing": (nothing_acts, lambda: lambda observation: torch.zeros(WORLDS, 3)),
}


@pytest.mark.parametrize("who", ACTING)
def test_it_is_a_loop_of_steps(who):
    make_act, make_by_hand = ACTING[who]
    env, again, act = tumbling(), tumbling(), make_by_hand()
    played = list(play(env, make_act(env), 70))
    assert len(played) == 70
    ended = 0
    with torch.no_grad():
        observation, _ = again.reset()
        for step in played:
            action = act(observation)
            observation, reward, terminated, truncated, info = again.step(action)
            assert step.action.equal(action) and step.reward.equal(reward)
            assert step.terminated.equal(terminated) and step.truncated.equal(truncated)
            assert step.done.tolist() == [a or b for a, b in zip(terminated.tolist(), truncated.tolist(), strict=True)]
            assert step.info.keys() == info.keys()
            assert step.info["final_obs"].equal(info["final_obs"])
            assert step.info["final_state"].joint_q.equal(info["final_state"].joint_q)
            ended += int(step.done.sum())
    assert ended > WORLDS, "no world began a second episode that could differ"


def test_chance_fills_the_whole_range_evenly():
    env = make_env("cartpole", 2000)
    act, observation = chance_acts(env, 0), torch.zeros(2000, 5)
    actions = torch.cat([act(observation) for _ in range(20)])
    assert actions.shape == (40_000, 1) and actions.abs().max() <= 1
    # Ten cells of 4000 on average, each with a deviation of (40000 * 0.1 * 0.9)^0.5 = 60.
    counts = torch.histc(actions, 10, -1, 1)
    assert (counts - 4000).abs().max() < 5 * 60


def test_on_start_comes_once_after_the_reset_and_before_the_first_step():
    env, again = tumbling(), tumbling()
    seen = []
    for _ in play(env, nothing_acts(env), 3, on_start=lambda: seen.append(env.state.joint_q.clone())):
        assert len(seen) == 1
    again.reset()
    assert seen[0].equal(again.state.joint_q)


def test_actions_beyond_the_range_are_brought_back_into_it():
    env = make_env("cartpole", 3)
    wild = torch.tensor([[-7.0], [0.5], [1.5]])
    (step,) = play(env, lambda observation: wild, 1)
    assert step.action.tolist() == [[-1], [0.5], [1]]


@pytest.mark.parametrize("enabled", [True, False])
def test_gradients_are_off_inside_and_as_they_were_outside(enabled):
    env, player = tumbling(), agent()
    inside = []
    player.register_forward_hook(lambda *_: inside.append(torch.is_grad_enabled()))
    with torch.set_grad_enabled(enabled):
        playing = play(
            env, agent_acts(player, env, False, SEED), 5, on_start=lambda: inside.append(torch.is_grad_enabled())
        )
        for step in playing:
            assert torch.is_grad_enabled() is enabled
            assert not any(tensor.requires_grad for tensor in (step.action, step.reward, step.info["final_obs"]))
        assert torch.is_grad_enabled() is enabled
    # What is called at the start is the caller's own.
    assert inside == [enabled] + [False] * 5


def test_whoever_asks_may_change_gradients_between_steps():
    env = tumbling()
    playing = play(env, agent_acts(agent(), env, False, SEED), 3)
    with torch.no_grad():
        next(playing)
    assert torch.is_grad_enabled()
    assert not next(playing).action.requires_grad
    assert torch.is_grad_enabled()


def test_it_may_be_stopped_early_and_does_no_more_than_was_asked():
    env, asked = make_env("cartpole", 2), []

    def act(observation):
        asked.append(None)
        return torch.zeros(2, 1)

    playing = play(env, act, 1000)
    assert asked == []
    taken = list(itertools.islice(playing, 3))
    playing.close()
    assert len(taken) == len(asked) == 3
    assert env.worlds.clock.tolist() == [[3], [3]] and torch.is_grad_enabled()
    # The environment can be used on: another play begins with new episodes.
    next(play(env, act, 1))
    assert env.worlds.clock.tolist() == [[1], [1]]


def test_the_agent_stays_as_it_is_and_later_changes_do_not_reach_the_play():
    env, player = tumbling(), agent()
    before = {name: tensor.clone() for name, tensor in player.state_dict().items()}
    act = agent_acts(player, env, stochastic=True, seed=SEED)
    list(play(env, act, 3))
    assert all(tensor.equal(before[name]) for name, tensor in player.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in player.parameters())
    quiet = agent_acts(player, env, stochastic=False, seed=SEED)
    observation = torch.randn(WORLDS, 11)
    expected = quiet(observation)
    with torch.no_grad():
        player.policy.network[0].weight.zero_()
    assert quiet(observation).equal(expected)


def test_an_agent_of_another_task_is_refused_before_the_first_step():
    with pytest.raises(ValueError, match=r"5 observations and 1 actions, but the task .* has 11 and 3"):
        agent_acts(make_agent(5, 1), tumbling(), stochastic=False, seed=0)
