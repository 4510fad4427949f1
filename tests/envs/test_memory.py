"""Memory: numbers worked by hand, what sees which of them, gradients through them, and everything that saves them."""

import io
from dataclasses import replace

import pytest
import torch
from tasks_with_memory import COMMANDED, Counting, commanded, without_memory
from two_ways import random_actions, rewards_both_ways

import trot
from trot.envs.check_task import TaskCheckSettings, check_task_gradients, count_ends, draw_windows
from trot.envs.explain_fault import explain_fault
from trot.envs.fault import load_fault
from trot.envs.registry import make_task

BAD = 3


def counting(num_worlds=2, **options):
    env = trot.make_env(Counting, num_worlds, dtype=torch.float64, stochastic_start=False, **options)
    return env, env.reset()[0]


def remembered(state, world=0):
    return {name: part[world].tolist() for name, part in state.memory.items()}


def test_memory_by_hand_through_an_episode_and_into_the_next():
    env, observation = counting()
    assert env.observation_layout["total"] == slice(2, 4)
    assert remembered(env.state) == {"goal": [100], "steps": [0], "total": [0, 0]}
    assert observation[0, 1:].tolist() == [0, 0, 0, 100]
    # Actions 0.5, 0.25, -1, 0.5, then the same again; a reward sees what was remembered before its own action.
    actions = [0.5, 0.25, -1.0, 0.5]
    totals = [0, 5.5, 8.25, -2.75, 2.75]
    for _ in range(2):
        for step, value in enumerate(actions):
            action = torch.full((2, 1), value, dtype=torch.float64)
            observation, reward, _, truncated, info = env.step(action)
            assert reward.tolist() == [100 + step + totals[step]] * 2
            # What comes after: 1 part of it in the first column, 10 in the second.
            share = totals[step + 1] / 11
            after = {"goal": [100], "steps": [step + 1], "total": [share, 10 * share]}
            assert remembered(info["final_state"]) == after
            assert info["final_obs"][0, 1:].tolist() == [step + 1, share, 10 * share, 100]
            if step < 3:
                assert not truncated.any() and remembered(env.state, 1) == after
                assert observation.equal(info["final_obs"])
    assert truncated.all()
    assert remembered(env.state) == {"goal": [100], "steps": [0], "total": [0, 0]}
    assert observation[0, 1:].tolist() == [0, 0, 0, 100]


def test_each_episode_draws_its_own():
    env = trot.make_env(Counting, 8, seed=2)
    env.reset()
    goals = [env.state.memory["goal"].flatten()]
    for step in range(8):
        env.step(torch.zeros(8, 1))
        if step in (3, 7):
            goals.append(env.state.memory["goal"].flatten())
        else:
            assert env.state.memory["goal"].flatten().equal(goals[-1])
    drawn = torch.cat(goals)
    assert len(drawn.unique()) == 24 and drawn.min() >= 100 and drawn.max() <= 200


def test_rewards_of_many_moves_see_what_each_step_remembered():
    env, _ = counting()
    # Six steps, so that the fourth ends an episode.
    actions = torch.tensor([0.5, 0.25, -1, 0.5, 0.5, 0.25], dtype=torch.float64).view(6, 1, 1).expand(6, 2, 1)
    found = env.rewards([env.advance(action) for action in actions])
    assert found[:, 1].tolist() == [100, 106.5, 110.25, 100.25, 100, 106.5]


def test_gradients_flow_through_memory_until_they_are_cut():
    env, _ = counting(1)
    actions = torch.zeros(6, 1, 1, dtype=torch.float64, requires_grad=True)
    rewards = [env.step(action)[1].sum() for action in actions[:3]]
    # 11 for each later step of the episode.
    (gradient,) = torch.autograd.grad(sum(rewards), actions, retain_graph=True)
    assert gradient.flatten().tolist() == [22, 11, 0, 0, 0, 0]
    # The fourth step ends the episode; the fifth knows nothing of it.
    env.step(actions[3])
    env.step(actions[4])
    last = env.step(actions[5])[1].sum()
    (gradient,) = torch.autograd.grad(last, actions, retain_graph=True)
    assert gradient.flatten().tolist() == [0, 0, 0, 0, 11, 0]
    env.detach()
    assert not any(part.requires_grad for part in env.state.memory.values())
    assert not env.step(torch.zeros(1, 1, dtype=torch.float64))[1].requires_grad


def test_place_brings_memory_along_or_leaves_it():
    env, _ = counting()
    env.step(torch.full((2, 1), 0.5, dtype=torch.float64))
    before = env.state
    env.place(trot.State(before.joint_q, before.joint_qd))
    assert remembered(env.state) == {"goal": [100], "steps": [1], "total": [0.5, 5]}
    goal = torch.tensor([[7.0], [8.0]], dtype=torch.float64, requires_grad=True)
    observation = env.place(trot.Situation(before.joint_q, before.joint_qd, {"goal": goal}))
    assert observation[:, 4].tolist() == [7, 8]
    assert remembered(env.state, 1) == {"goal": [8], "steps": [1], "total": [0.5, 5]}
    _, reward, *_ = env.step(torch.zeros(2, 1, dtype=torch.float64))
    assert reward.tolist() == [13.5, 14.5]
    (gradient,) = torch.autograd.grad(reward.sum(), goal)
    assert gradient.tolist() == [[1], [1]]
    with pytest.raises(ValueError, match="has no memory 'gaol'; it has: goal, steps, total"):
        env.place(trot.Situation(before.joint_q, before.joint_qd, {"gaol": goal}))
    with pytest.raises(ValueError, match=r"memory 'goal' is \(2, 1\) torch.float32 .* needs \(2, 1\) torch.float64"):
        env.place(trot.Situation(before.joint_q, before.joint_qd, {"goal": goal.float()}))


def test_a_situation_is_cut_off_as_a_whole():
    ones = torch.ones(2, 1, requires_grad=True)
    cut = trot.Situation(ones, ones, {"goal": ones * 2}).detach()
    assert not cut.joint_q.requires_grad and not cut.memory["goal"].requires_grad
    assert cut.memory["goal"].tolist() == [[2], [2]]


def test_the_commanded_hopper_by_hand():
    """Command, clock, running mean and servos worked out beside it, from nothing but joint_q and joint_qd."""
    env = commanded()
    start = {name: part.clone() for name, part in env.state.memory.items()}
    assert (start["command"] >= 0.5).all() and (start["command"] <= 2).all() and (start["mean_speed"] == 0).all()
    assert len(start["command"].unique()) == 8 and len(start["phase"].unique()) == 8
    mean = start["mean_speed"]
    for step, action in enumerate(random_actions(env, 10)):
        before = env.state
        phase = (start["phase"] + step / 30) % 1
        swing = (1 - torch.cos(2 * torch.pi * phase)) / 2
        target = 0.5 * action + swing * torch.tensor([0, -0.3, 0], dtype=torch.float64)
        control = (150 * (target - before.joint_q[:, 3:]) - 5 * before.joint_qd[:, 3:]) / 200
        _, _, terminated, _, info = env.step(action)
        torch.testing.assert_close(info["control"], control, rtol=0, atol=1e-12)
        after = trot.step(env.task.model, before, control, 1 / 60, 16)
        torch.testing.assert_close(info["final_state"].joint_qd, after.joint_qd, rtol=0, atol=1e-9)
        assert not terminated.any()
        torch.testing.assert_close(info["reward_terms"]["speed"], (2 - (mean - start["command"]) ** 2)[:, 0])
        mean = mean + (after.joint_qd[:, :1] - mean) / 30
        torch.testing.assert_close(env.state.memory["mean_speed"], mean, rtol=0, atol=1e-9)
        torch.testing.assert_close(env.state.memory["command"], start["command"], rtol=0, atol=0)
    assert control.abs().max() < 1.5 and env.observation_layout["rhythm"] == slice(13, 15)


def test_gradients_against_central_differences():
    """Eight rewards along actions and start state; inside, worlds fall and time runs out."""
    settings = TaskCheckSettings(COMMANDED)
    env = trot.make_env(COMMANDED, settings.worlds, dtype=torch.float64)
    windows = draw_windows(env, settings)
    assert min(count_ends(env, windows)) > 0
    for row in check_task_gradients(env, windows, settings):
        assert row.error <= 1e-6, row
        assert row.checked > 8 * row.skipped, row


def test_gradients_by_memory_against_central_differences():
    """Through the reward, the running mean, the rhythm in the servos, and a fall with its fresh start."""
    env = commanded()
    state = env.state.detach()
    state.joint_q[BAD, 1:3], state.joint_qd[BAD, 1] = torch.tensor([-0.3, 1.5]), -3.0
    saved, actions = env.get_state(), random_actions(env, 8)
    # Away from the turn of the phase, where it jumps.
    memory = {**state.memory, "phase": 0.6 * state.memory["phase"]}

    def rewards(offsets):
        env.set_state(saved)
        env.place(replace(state, memory={name: part + offsets[name] for name, part in memory.items()}))
        steps = [env.step(action) for action in actions]
        assert any(bool(terminated[BAD]) for _, _, terminated, _, _ in steps)
        return torch.stack([reward for _, reward, _, _, _ in steps]).sum(dim=0)

    zeros = {name: torch.zeros_like(part) for name, part in memory.items()}
    leaves = {name: zero.clone().requires_grad_() for name, zero in zeros.items()}
    gradients = torch.autograd.grad(rewards(leaves).sum(), list(leaves.values()))
    for name, gradient in zip(leaves, gradients, strict=True):
        h = 1e-5
        with torch.no_grad():
            above, below = (rewards({**zeros, name: sign * h + zeros[name]}) for sign in (1, -1))
        slope = (above - below) / (2 * h)
        assert slope.abs().min() > 1e-3
        torch.testing.assert_close(gradient[:, 0], slope, rtol=1e-6, atol=1e-7)


def test_rewards_of_many_moves_are_those_of_the_steps_and_so_are_their_gradients():
    rewards, gradients = rewards_both_ways(lambda: commanded(3))
    assert rewards[0][0, 1] == 0 and (rewards[0] != 0).sum() == 11
    torch.testing.assert_close(*rewards, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-12)


def test_a_resumed_run_equals_an_uninterrupted_one():
    randomize = trot.Randomize(mass=(0.9, 1.1), motor_strength=(0.9, 1.1))
    env, resumed = (commanded(16, torch.float32, seed=seed, randomize=randomize) for seed in (3, 99))
    # Two worlds run out of time before the state is saved, two after it.
    clock = torch.zeros(16, 1, dtype=torch.int64)
    clock[:2], clock[2:4] = env.episode_length - 10, env.episode_length - 30
    env.worlds = replace(env.worlds, clock=clock)
    actions = random_actions(env, 40)
    for action in actions[:20]:
        env.step(action)
    file = io.BytesIO()
    torch.save(env.get_state(), file)
    expected = [env.step(action)[:4] for action in actions[20:]]
    assert env.worlds.clock.flatten().tolist() == [30, 30, 10, 10, *[40] * 12]
    file.seek(0)
    resumed.set_state(torch.load(file, weights_only=True))
    for action, outputs in zip(actions[20:], expected, strict=True):
        assert all(a.equal(b) for a, b in zip(resumed.step(action)[:4], outputs, strict=True))
    assert resumed.worlds.memory.equal(env.worlds.memory)


def test_states_saved_before_there_was_memory():
    env = trot.make_env("hopper", 4)
    env.reset()
    saved = without_memory(env.get_state())
    expected = env.step(torch.zeros(4, 3))[1]
    env.set_state(saved)
    assert env.step(torch.zeros(4, 3))[1].equal(expected)
    with pytest.raises(
        ValueError, match=r"memory of nothing; 'command' \(1\), 'mean_speed' \(1\), 'phase' \(1\) is what"
    ):
        commanded(4, torch.float32).set_state(saved)
    other = commanded(4, torch.float32).get_state()
    with pytest.raises(ValueError, match=r"has a memory of 'command' \(1\), .*; nothing is what"):
        env.set_state(other)


@pytest.mark.parametrize("servo_sees", ["huge velocity", "nan velocity", "nan action"])
def test_a_fault_ends_in_fresh_memory_and_leaves_the_others_alone(servo_sees):
    results = []
    for spoilt in (False, True):
        env = commanded(dtype=torch.float32)
        actions, joint_qd = random_actions(env, 4), env.state.joint_qd.clone()
        if spoilt and servo_sees == "nan action":
            actions[0, BAD, 0] = torch.nan
        elif spoilt:
            joint_qd[BAD, 0] = 1e9 if servo_sees == "huge velocity" else torch.nan
        env.worlds = replace(env.worlds, joint_qd=joint_qd)
        before = env.state
        actions.requires_grad_()
        steps = [env.step(action) for action in actions]
        rewards = torch.stack([reward for _, reward, _, _, _ in steps])
        results.append((torch.autograd.grad(rewards.sum(), actions)[0], rewards.detach(), env.worlds.memory.detach()))
    others = [world for world in range(8) if world != BAD]
    for clean, faulty, world_axis in zip(*results, (1, 1, 0), strict=True):
        index = torch.tensor(others)
        assert faulty.isfinite().all()
        assert clean.index_select(world_axis, index).equal(faulty.index_select(world_axis, index))
    assert steps[0][4]["fault"].nonzero().flatten().tolist() == [BAD]
    assert results[1][1][0, BAD] == 0 and (results[1][0][0, BAD] == 0).all()
    final = steps[0][4]["final_state"].memory
    assert final["command"][BAD] == 1.25 and abs(float(final["phase"][BAD]) - 1 / 30) < 1e-7
    assert env.state.memory["command"][BAD] != before.memory["command"][BAD]
    (fault,) = env.last_faults()
    assert {name: part.tolist() for name, part in fault.memory.items()} == remembered(before, BAD)


def test_a_fault_file_keeps_memory_and_the_replay_uses_it(tmp_path):
    env = commanded(dtype=torch.float32)
    joint_qd = env.state.joint_qd.clone()
    joint_qd[BAD, 4] = 3e5
    env.worlds = replace(env.worlds, joint_qd=joint_qd)
    env.step(torch.zeros(8, 3))
    (fault,) = env.last_faults()
    fault.save(tmp_path / "fault.pt")
    again = load_fault(tmp_path / "fault.pt")
    assert again.memory.keys() == fault.memory.keys()
    assert all(again.memory[name].equal(part) for name, part in fault.memory.items())
    # Servos that work against 3e5 rad/s with 5 N m s/rad: 7500 times what a motor can do, and still bounded by it.
    assert "float32: " in explain_fault(again) and "float64: " in explain_fault(again)
    lost = replace(again, memory={**again.memory, "phase": torch.tensor([torch.nan])})
    assert "memory 'phase' is [nan]: look at the task's next_memory()" in explain_fault(lost)


def test_fault_files_from_before_there_was_memory(tmp_path):
    env = trot.make_env("hopper", 4)
    env.reset()
    joint_qd = env.state.joint_qd.clone()
    joint_qd[0, 4] = 1e9
    env.worlds = replace(env.worlds, joint_qd=joint_qd)
    env.step(torch.zeros(4, 3))
    (fault,) = env.last_faults()
    old = {name: value for name, value in vars(fault).items() if name != "memory"}
    torch.save({"fault": 1, **old}, tmp_path / "fault.pt")
    assert explain_fault(load_fault(tmp_path / "fault.pt")) == explain_fault(fault)
    torch.save({"fault": 1, **old, "task": COMMANDED}, tmp_path / "fault.pt")
    with pytest.raises(ValueError, match=r"has a memory of nothing; 'command' \(1\)"):
        explain_fault(load_fault(tmp_path / "fault.pt"))


def test_gymnasium_worlds_remember():
    trot_gym = pytest.importorskip("trot.envs.gymnasium")
    envs = [trot_gym.TrotVectorEnv(make_task(COMMANDED), num_envs=4) for _ in range(2)]
    observations = [env.reset(seed=5)[0] for env in envs]
    command = envs[0].simulation.observation_layout["command"]
    assert (observations[0] == observations[1]).all() and len(set(observations[0][:, command].flatten())) == 4
    after = envs[0].step(envs[0].action_space.sample())[0]
    assert (after[:, command] == observations[0][:, command]).all()
    single = trot_gym.TrotEnv(make_task(COMMANDED))
    first, _ = single.reset(seed=5)
    assert 0.5 <= first[command][0] <= 2 and (single.reset(seed=5)[0] == first).all()
