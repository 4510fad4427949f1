"""Tasks that nothing can learn, found before training begins: later they show only as a curve that stays flat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trot.envs.dependence import surely_independent
from trot.envs.env import Env, Info
from trot.envs.source_line import task_error
from trot.envs.task import Task

WORLDS = 16
STEPS = 1000
"""Random actions after which an observation counts as constant; one that changes ends the trial at once."""


@torch.no_grad()
def require_trainable(env: Env) -> None:
    """Raise ValueError where no algorithm could learn this environment's task. The environment stays as it is."""
    task = env.task
    if task.num_actions == 0:
        raise task_error(task, "num_actions", "is 0: there is nothing to learn. Give the robot actuators")
    # Noise would make the most constant observation differ.
    randomize = None if env.randomize is None else replace(env.randomize, observation_noise=())
    trial = Env(task, WORLDS, env.device, randomize=randomize)
    first, _ = trial.reset()
    _refuse_not_finite(task, _observed(trial, first), torch.ones(WORLDS, dtype=torch.bool, device=env.device))
    actions = _random_actions(trial)
    _, reward, _, _, info = trial.step(next(actions))
    _refuse_bad_step(trial, info)
    sees = _differ(first, first) or _differ(info["final_obs"], first)
    pays = _differ(reward, reward) or _may_pay_more_or_less(trial)
    for action in actions:
        if sees and pays:
            return
        _, paid, _, _, info = trial.step(action)
        sees, pays = sees or _differ(info["final_obs"], first), pays or _differ(paid, reward)
    if not sees:
        raise task_error(
            task, "observation()", f"is the same in all worlds and {STEPS} steps of random actions: it tells nothing"
        )
    raise task_error(
        task, "reward_terms()", "depend on neither state nor action, and no episode ends early: all actions are as good"
    )


def _random_actions(trial: Env) -> Iterator[Tensor]:
    generator = torch.Generator(trial.device).manual_seed(0)
    shape = (WORLDS, trial.num_actions)
    for _ in range(STEPS):
        yield 2 * torch.rand(shape, generator=generator, dtype=trial.dtype, device=trial.device) - 1


def _differ(numbers: Tensor, reference: Tensor) -> bool:
    """Whether not all of them are what the reference has in its first world."""
    return bool((numbers != reference[:1]).any())


def _may_pay_more_or_less(trial: Env) -> bool:
    """Whether the sum of rewards may depend on what is done, be it by the length of episodes. A goal may be far off."""
    task, state = trial.task, trial.state
    if task.fallen(task.measure(state)) is not None:
        return True
    action = torch.zeros_like(trial.worlds.previous_action)
    sources = [state.joint_q, state.joint_qd, action, *state.memory.values()]
    if state.activation is not None:
        sources.append(state.activation)
    return not surely_independent(lambda: task.reward_terms(task.measure(state), action).values(), sources)


def _refuse_bad_step(trial: Env, info: Info) -> None:
    """Name what is not finite at once, in worlds that did not blow up."""
    task, sound = trial.task, ~info["fault"]
    _refuse_not_finite(task, {"control()": info["control"]}, torch.ones_like(sound))
    if not bool(sound.any()):
        raise ValueError(f"{type(task).__name__}: every world blows up in the first step. Raise substeps")
    _refuse_not_finite(task, {f"reward_terms()['{name}']": term for name, term in info["reward_terms"].items()}, sound)
    _refuse_not_finite(task, _observed(trial, info["final_obs"]), sound)


def _observed(trial: Env, observation: Tensor) -> dict[str, Tensor]:
    return {f"observation()['{name}']": observation[:, part] for name, part in trial.observation_layout.items()}


def _refuse_not_finite(task: Task[Any], results: Mapping[str, Tensor], worlds: Tensor) -> None:
    for what, result in results.items():
        numbers = result[worlds]
        bad = numbers[~numbers.isfinite()]
        if len(bad):
            raise task_error(task, what, f"is {float(bad[0])} at once, before anything was learned")
