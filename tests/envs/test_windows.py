"""Windows of an environment: each begins where the last one ended, in tensors that stay where they are."""

from dataclasses import replace

import pytest
import torch

import trot
from trot.envs.registry import make_task


def window(env, actions):
    seen = [env.begin_window()]
    for action in actions:
        seen.append(env.step(action)[0])
    return torch.stack(seen)


def test_a_window_begins_where_the_last_one_ended():
    whole, parts = (trot.make_env("hopper", 4, dtype=torch.float64, seed=3) for _ in range(2))
    actions = 2 * torch.rand(12, 4, whole.num_actions, dtype=torch.float64) - 1
    whole.reset()
    expected = torch.stack([whole.worlds.observation, *(whole.step(action)[0] for action in actions)])
    parts.reset()
    parts.end_window()
    places = [tensor.data_ptr() for tensor in parts.window_start.tensors().values()]
    first = window(parts, actions[:5])
    # Not ended yet: it begins there again.
    assert window(parts, actions[:5]).equal(first)
    parts.end_window()
    assert torch.cat([first, window(parts, actions[5:])[1:]]).equal(expected)
    assert [tensor.data_ptr() for tensor in parts.window_start.tensors().values()] == places


def test_gradients_end_where_a_window_begins():
    env = trot.make_env("hopper", 4, dtype=torch.float64)
    env.reset()
    env.end_window()
    action = torch.zeros(4, env.num_actions, dtype=torch.float64, requires_grad=True)
    assert window(env, [action]).requires_grad
    env.end_window()
    assert not env.begin_window().requires_grad and not env.worlds.joint_q.requires_grad


def test_a_reset_and_a_saved_state_move_the_windows_along():
    env = trot.make_env("hopper", 4, seed=1)
    env.reset()
    env.end_window()
    saved, begin = env.get_state(), env.begin_window().clone()
    window(env, torch.zeros(3, 4, env.num_actions))
    env.end_window()
    assert not env.begin_window().equal(begin)
    env.set_state(saved)
    assert env.begin_window().equal(begin)
    fresh, _ = env.reset(seed=9)
    assert env.begin_window().equal(fresh) and not fresh.equal(begin)


def test_no_window_before_the_first_reset():
    env = trot.make_env("hopper", 4)
    with pytest.raises(RuntimeError, match=r"call env\.reset"):
        env.end_window()
    with pytest.raises(RuntimeError, match="no window can begin yet"):
        env.begin_window()


def test_episodes_under_way_can_be_ended():
    env = trot.make_env("cartpole", 3, seed=2)
    env.reset()
    env.step(torch.ones(3, 1))
    clock, faults = torch.tensor([[4], [0], [239]]), torch.tensor([[0], [1], [2]])
    env.worlds = replace(env.worlds, clock=clock, faults=faults)
    before, drawn = env.worlds.clone(), env.get_state()["used"]
    observation = env.end_episodes()
    assert env.worlds.clock.flatten().tolist() == [0, 0, 0] and env.worlds.faults.equal(faults)
    # Where none was under way, all is as before; elsewhere the cart stands at a start, and its action is forgotten.
    for name, tensor in env.worlds.tensors().items():
        assert tensor[1].equal(getattr(before, name)[1]), name
    assert (env.worlds.joint_qd != before.joint_qd).any(dim=1).tolist() == [True, False, True]
    assert env.worlds.previous_action.flatten().tolist() == [0, 1, 0]
    assert env.get_state()["used"] == drawn + 2 and observation.equal(env.worlds.observation)


def test_staggered_worlds_run_out_of_time_one_after_the_other():
    task = make_task("cartpole")
    task.episode_length = 8
    env = trot.Env(task, 4, seed=2)
    env.reset()
    env.end_window()
    drawn = env.worlds.joint_q.clone()
    env.stagger()
    assert env.worlds.joint_q.equal(drawn) and env.window_start.clock.flatten().tolist() == [0, 2, 4, 6]
    ended = []
    for _ in range(16):
        _, _, terminated, truncated, _ = env.step(torch.zeros(4, 1))
        assert not terminated.any()
        ended.append(truncated.nonzero().flatten().tolist())
    # Each first after what is left of its first episode, then after a whole one.
    assert [step for step, worlds in enumerate(ended, 1) if worlds] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert [worlds for worlds in ended if worlds] == [[3], [2], [1], [0]] * 2
