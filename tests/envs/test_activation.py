"""Activations of muscles in an environment: carried, saved, begun anew, and differentiated through."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import trot
from trot.envs.check_task import TaskCheckSettings, run_task_check
from trot.envs.explain_fault import explain_fault
from trot.sim.load import load_model
from trot.sim.state import State
from trot.sim.step import step

LEGS = Path(__file__).parents[1] / "robots" / "muscles" / "legs.xml"


class Legs(trot.Task[trot.Situation]):
    """Stand up, seen from the state itself."""

    robot = LEGS
    start = trot.Start(joint_noise=0.05, velocity_noise=0.1)
    episode_length = 5

    def control(self, action: Tensor) -> Tensor:
        return (action + 1) / 2

    def measure(self, state: trot.Situation) -> trot.Situation:
        return state

    def observation(self, measured: trot.Situation, previous_action: Tensor) -> dict[str, Tensor]:
        assert measured.activation is not None
        return {"height": measured.joint_q[:, 2:3], "speed": measured.joint_qd, "activation": measured.activation}

    def reward_terms(self, measured: trot.Situation, action: Tensor) -> dict[str, Tensor]:
        assert measured.activation is not None
        return {"height": measured.joint_q[:, 2], "effort": -measured.activation.square().mean(dim=1)}


def legs(num_worlds: int = 4, **options: Any) -> trot.Env:
    env = trot.make_env(Legs, num_worlds, dtype=torch.float64, seed=3, **options)
    env.reset()
    return env


def actions(env: trot.Env, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    shape = (count, env.num_worlds, env.num_actions)
    return 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1


def test_activation_goes_from_step_to_step_and_begins_anew() -> None:
    """Oracle: trot.step from the same states."""
    env, model = legs(), load_model(LEGS)
    for count, action in enumerate(actions(env, 7)):
        before = env.state
        assert before.activation is not None
        if count in (0, 5):
            assert not before.activation.any(), "an episode begins with muscles at rest"
        expected = step(model, before, (action + 1) / 2, 1 / 60, 16)
        observation, _, _, truncated, info = env.step(action)
        assert info["final_state"].activation.equal(expected.activation)
        assert info["final_obs"][:, env.observation_layout["activation"]].equal(expected.activation)
        assert env.state.joint_q.equal(expected.joint_q) != bool(truncated.all())
        assert observation[:, env.observation_layout["activation"]].equal(env.worlds.activation)


def test_a_saved_state_goes_on_bit_for_bit() -> None:
    env = legs()
    first, rest = actions(env, 6).split([3, 3])
    for action in first:
        env.step(action)
    saved = env.get_state()
    expected = [env.step(action)[0] for action in rest]
    env.set_state(saved)
    assert all(env.step(action)[0].equal(one) for action, one in zip(rest, expected, strict=True))
    other = legs()
    other.set_state(saved)
    assert other.worlds.activation.equal(saved["worlds"]["activation"])


def test_a_state_that_was_saved_before_there_were_activations() -> None:
    env = trot.make_env("hopper", 2)
    env.reset()
    saved = env.get_state()
    assert saved["worlds"].pop("activation").shape == (2, 0)
    env.set_state(saved)
    assert env.worlds.activation.shape == (2, 0) and env.state.activation is None
    muscles = legs(2)
    saved = muscles.get_state()
    del saved["worlds"]["activation"]
    with pytest.raises(ValueError, match=r"the saved activation is \(2, 0\).*\(2, 20\)"):
        muscles.set_state(saved)


def test_place_takes_an_activation_or_leaves_it() -> None:
    env = legs()
    env.step(actions(env, 1)[0])
    state, before = env.state, env.worlds.activation.clone()
    env.place(State(state.joint_q, state.joint_qd))
    assert env.worlds.activation.equal(before)
    given = torch.full_like(before, 0.3, requires_grad=True)
    env.place(State(state.joint_q, state.joint_qd, activation=given))
    reward = sum(env.step(action)[1].sum() for action in actions(env, 2))
    (gradient,) = torch.autograd.grad(reward, given)
    assert bool((gradient != 0).all())
    with pytest.raises(ValueError, match=r"activation is \(4, 3\)"):
        env.place(State(state.joint_q, state.joint_qd, activation=before[:, :3]))


def test_gradients_of_a_task_are_right() -> None:
    assert run_task_check(TaskCheckSettings(f"{Path(__file__)}:Legs", worlds=4, steps=3, directions=2))


def test_rewards_of_many_moves_are_those_of_each() -> None:
    env = legs()
    saved, given = env.get_state(), actions(env, 4)
    expected = torch.stack([env.step(action)[1] for action in given])
    env.set_state(saved)
    torch.testing.assert_close(env.rewards([env.advance(action) for action in given]), expected)


def test_a_fault_remembers_the_activation() -> None:
    env = legs()
    env.step(actions(env, 1)[0])
    bad = env.worlds.joint_qd.clone()
    bad[1] = 1e5
    env.worlds = replace(env.worlds, joint_qd=bad)
    before = env.worlds.activation[1].clone()
    info = env.step(actions(env, 1)[0])[4]
    assert info["fault"].tolist() == [False, True, False, False]
    assert not env.worlds.activation[1].any()
    (fault,) = env.last_faults()
    assert fault.activation.equal(before)
    named = replace(fault, task=f"{Path(__file__)}:Legs")
    assert "float64" in explain_fault(named)
