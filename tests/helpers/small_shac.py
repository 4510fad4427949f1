"""SHAC on four Hoppers in float64, episodes that end when a test wants it, and readings of what an iteration did."""

from dataclasses import replace

import numpy as np
import torch

import trot
from trot.learn.algorithms import find_algorithm

SMALL = {
    "num_worlds": 4,
    "horizon": 6,
    "gamma": 0.99,
    "iterations": 20,
    "critic_batches": 2,
    "critic_passes": 2,
    "actor_hidden": (8,),
    "critic_hidden": (8,),
}
FALLS, RUNS_OUT_OF_TIME = 1, 2
"""The worlds in which prepared() ends an episode in the third of six steps."""


def learner(seed=0, algo="shac", **changes):
    algorithm = find_algorithm(algo)
    settings = replace(algorithm.resolve("hopper"), **(SMALL | changes))
    return algorithm.learner(
        trot.make_env("hopper", settings.num_worlds, dtype=torch.float64, seed=seed), settings, seed
    )


def run(shac, iterations=3):
    for _ in range(iterations):
        shac.iterate()
    return shac


def prepared(after=2, falls=True, time_out=True, **changes):
    """After some iterations, so that target critic, critic and statistics all differ from how they began."""
    shac = run(learner(**changes), after)
    end_inside(shac.env, falls, time_out)
    return shac


def end_inside(env, falls=True, time_out=True):
    """Let two Hoppers' episodes end in the third step of the next window."""
    start = env.window_start.clone()
    if falls:
        # Lies in the air and drops below the limit in the third step.
        start.joint_q[FALLS, 1:3], start.joint_qd[FALLS, 1] = torch.tensor([-0.3, 1.5]), -3.0
    if time_out:
        start.clock[RUNS_OUT_OF_TIME] = env.episode_length - 3
    env.worlds = start
    env.place(env.state)
    env.end_window()


def end_soon(shac, worlds, steps):
    """Let these worlds run out of time in the given step of the next window, counted from 1."""
    shac.env.window_start.clock[worlds] = shac.env.episode_length - steps


def copies(module):
    return [tensor.detach().clone() for tensor in module.state_dict().values()]


def same(first, second):
    return all(a.equal(b) for a, b in zip(first, second, strict=True))


def metrics(shac):
    return dict(zip(shac.all_columns(), shac.metrics.tolist(), strict=True))


def normalised(observation, mean, variance):
    return (observation - mean) / (variance + 1e-5).sqrt()


def watched(shac):
    """A list that every later move of the environment leaves in it what env.step would have returned."""
    record, advance = [], shac.env.advance

    def watching(action, **how):
        move = advance(action, **how)
        info = {"final_obs": move.final_obs, "final_state": move.final_state}
        record.append((move.observation, shac.env.rewards([move])[0], move.terminated, move.truncated, info))
        return move

    shac.env.advance = watching
    return record


def vector(tensors):
    return np.concatenate([tensor.detach().numpy().ravel() for tensor in tensors])


def loss_at(shac, saved, change):
    """The loss of the same window, same start and same noise, with weights moved by `change`."""
    shac.load_state_dict(saved)
    with torch.no_grad():
        weights = torch.nn.utils.parameters_to_vector(shac.policy.parameters())
        torch.nn.utils.vector_to_parameters(weights + change, shac.policy.parameters())
        shac.rollout()
    return shac.window.loss.item()


def gradient_error(shac, saved, num_random, num_weights):
    """Of the policy's gradient in the window that was rolled out from `saved`, against central differences.

    Along some random directions and some weights alone; relative to the sizes of gradient and direction.
    """
    gradient = torch.cat([part.flatten() for part in shac.policy_gradient()])
    generator = torch.Generator().manual_seed(1)
    directions = list(torch.randn(num_random, len(gradient), generator=generator, dtype=torch.float64))
    directions += list(torch.eye(len(gradient), dtype=torch.float64)[:: len(gradient) // num_weights])
    errors = []
    for direction in directions:
        step = 1e-6 * direction
        difference = (loss_at(shac, saved, step) - loss_at(shac, saved, -step)) / 2e-6
        errors.append(abs(difference - (gradient @ direction).item()) / (gradient.norm() * direction.norm()).item())
    return max(errors)
