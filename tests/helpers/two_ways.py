"""Rewards step by step, and of many moves at once."""

from dataclasses import replace

import torch


def random_actions(env, steps, seed=1):
    """(steps, worlds, actions) between -1 and 1."""
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(steps, env.num_worlds, env.num_actions, generator=generator, dtype=env.dtype) - 1


def rewards_both_ways(make_env):
    """Of four steps of three worlds by step(), and by advance() and rewards(); then their gradients by the actions.

    The first world's time is up within the window, the second blows up in its first step.
    """
    rewards, gradients = [], []
    for many in (False, True):
        env = make_env()
        joint_qd = torch.where(torch.tensor([[False], [True], [False]]), 1e9, env.worlds.joint_qd)
        clock = torch.tensor([[env.episode_length - 2], [0], [0]])
        env.worlds = replace(env.worlds, joint_qd=joint_qd, clock=clock)
        actions = random_actions(env, 4).requires_grad_()
        if many:
            found = env.rewards([env.advance(action) for action in actions])
        else:
            found = torch.stack([env.step(action)[1] for action in actions])
        weights = torch.arange(1.0, 13.0, dtype=torch.float64).view(4, 3)
        gradients.append(torch.autograd.grad((weights * found).sum(), actions)[0])
        rewards.append(found.detach())
    return rewards, gradients
