"""The end of a step and the guard as kernels, beside the same of PyTorch's operations: the same bits, both ways."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tasks_with_memory import COMMANDED
from torch.autograd import gradcheck

import trot
from trot.sim.guard import BOUND, Guard

BAD, STEPS, WORLDS = 3, 6, 12
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
EVERYTHING = trot.Randomize(
    mass=(0.5, 2.0),
    motor_strength=(0.5, 2.0),
    observation_noise={"joint_rates": 0.1},
    push_interval=0.05,
    push_speed=0.5,
    action_delay=(0, 2),
)
CASES = {
    "ant": ("ant", None, torch.float32),
    "ant in float64": ("ant", None, torch.float64),
    "never falls": ("half_cheetah", None, torch.float32),
    "one action": ("cartpole", None, torch.float32),
    "muscles": ("muscle_humanoid", None, torch.float32),
    "a memory": (COMMANDED, None, torch.float64),
    "all that differs": ("ant", EVERYTHING, torch.float32),
}


def made(name, randomize, dtype, device, in_kernels):
    """Starts are taken as on CUDA, one for each world in every step, either way."""
    env = trot.make_env(name, WORLDS, device, seed=4, dtype=dtype, randomize=randomize)
    env._store.in_rounds = True
    env._step_end.in_one_kernel = in_kernels
    env._physics = replace(env._physics, guard=replace(env._physics.guard, native=in_kernels))
    return env


def window(env, spoil=True):
    """Everything that comes out of some steps, in which worlds fall, run out of time and blow up, and gradients."""
    env.reset()
    generator = torch.Generator().manual_seed(1)
    drawn = 2 * torch.rand(STEPS, WORLDS, env.num_actions, generator=generator, dtype=torch.float64) - 1
    actions = drawn.to(env.device, env.dtype)
    worlds = env.worlds.clone()
    worlds.clock[5] = env.episode_length - 2
    if spoil:
        worlds.joint_qd[BAD, 0] = 10 * BOUND
        actions[2, 7, 0] = torch.nan
    if "ant" in env.task.name:
        worlds.joint_q[1, 2] = 0.28
        worlds.joint_qd[1, 2] = -3.0
    env.worlds = worlds
    begin = [part.requires_grad_() for part in (env.worlds.joint_q, env.worlds.joint_qd)]
    actions.requires_grad_()
    moves = [env.advance(action) for action in actions]
    reward = env.rewards(moves)
    told = [
        torch.cat([move.observation, move.final_obs, *(part.unsqueeze(1) for part in ended)], dim=1)
        for move in moves
        for ended in [(move.terminated, move.truncated)]
    ]
    weights = torch.arange(1, told[0].shape[1] + 1, device=env.device, dtype=env.dtype)
    loss = (torch.stack(told) * weights).sum() + reward.sum()
    # And what a learner asks for: how much hangs on the state after each step.
    states = [part for move in moves for part in (move.final_state.joint_q, move.final_state.joint_qd)]
    return told, reward, env.worlds, torch.autograd.grad(loss, [actions, *begin, *states])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_as_by_operations(case, device):
    name, randomize, dtype = CASES[case]
    found, expected = (window(made(name, randomize, dtype, device, kernels)) for kernels in (True, False))
    for one, other in zip(found[0], expected[0], strict=True):
        assert one.equal(other)
    assert found[1].equal(expected[1])
    for field, tensor in expected[2].tensors().items():
        # An action that is not finite is remembered as it was.
        torch.testing.assert_close(found[2].tensors()[field], tensor, rtol=0, atol=0, equal_nan=True, msg=field)
    for one, other in zip(found[3], expected[3], strict=True):
        assert one.equal(other) and one.isfinite().all() and one.any()
    # What the case is for did happen.
    assert found[2].faults.flatten().tolist() == [int(world in (BAD, 7)) for world in range(WORLDS)]
    assert found[2].clock[5] == STEPS - 2


@pytest.mark.parametrize("device", DEVICES)
def test_derivatives(device):
    """By finite differences, through a step in which one world of three begins anew."""
    env = trot.make_env("ant", 3, device, dtype=torch.float64)
    env._store.in_rounds = env._step_end.in_one_kernel = True
    env._physics = replace(env._physics, guard=replace(env._physics.guard, native=True))
    env.reset(seed=2)
    worlds = env.worlds.clone()
    worlds.clock[1] = env.episode_length - 1
    saved = {**env.get_state(), "worlds": worlds.tensors()}

    def stepped(action, joint_qd):
        env.set_state(saved)
        env._worlds = replace(env.worlds, joint_qd=joint_qd)
        move = env.advance(action)
        assert move.truncated.tolist() == [False, True, False]
        return move.observation, env.worlds.joint_q, env.worlds.joint_qd, env.worlds.previous_action

    action = torch.full((3, 8), 0.3, dtype=torch.float64, device=device)
    inputs = [part.clone().requires_grad_() for part in (action, worlds.joint_qd)]
    assert gradcheck(stepped, inputs, eps=1e-6, atol=1e-4, rtol=1e-4, nondet_tol=0.0)


@pytest.mark.parametrize("device", DEVICES)
def test_a_world_that_blows_up_by_hand(device):
    """Two worlds of numbers: the second holds a NaN in its last velocity."""
    nominal = torch.tensor([[5.0, 6.0]], device=device)
    guard = Guard(nominal, torch.zeros((), device=device), native=True)
    joint_q, joint_qd = torch.tensor([[1.0, BOUND], [3.0, 4.0]]), torch.tensor([[0.0], [torch.nan]])
    action = torch.tensor([[0.5, 0.25], [torch.nan, 1.0]], device=device)
    found = guard.take(joint_q.to(device), joint_qd.to(device), None, action)
    assert found.sound.tolist() == [[True], [False]] and not found.all_sound
    assert found.joint_q.tolist() == [[1.0, BOUND], [5.0, 6.0]] and found.joint_qd.tolist() == [[0.0], [0.0]]
    assert found.action.tolist() == [[0.5, 0.25], [0.0, 0.0]] and action[0].tolist() == [0.5, 0.25]
    bars = dict.fromkeys(("joint_q", "joint_qd", "activation", "control", "parameter"))
    bars["control"] = torch.tensor([[1.0, 2.0], [torch.nan, 3.0]], device=device)
    by_action = torch.tensor([[7.0, 8.0], [torch.nan, 9.0]], device=device)
    gradients, action_bar = guard.silence(found.sound, bars, by_action)
    assert gradients[3].tolist() == [[1.0, 2.0], [0.0, 0.0]] and action_bar.tolist() == [[7.0, 8.0], [0.0, 0.0]]
    assert gradients[:3] == [None] * 3
