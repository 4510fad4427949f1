"""Whole steps of muscles with curves and activation: against MuJoCo, and gradients against central differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from manifold import central_difference, integrate, least_doubtful, lively_states, to_tangent
from numpy.testing import assert_allclose
from probe import PLACES
from random_muscles import with_hill_muscles
from random_robots import random_robot
from torch import Tensor

from trot.sim.check_robot import CheckSettings
from trot.sim.doctor import run_check
from trot.sim.linearize import linearize
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.state import State
from trot.sim.step import step

LEGS = Path(__file__).parents[1] / "robots" / "muscles" / "legs.xml"
NUM_WORLDS = 20
CONTROL_DT, SUBSTEPS = 1 / 60, 16

Numbers = dict[str, np.ndarray]


def lively_inputs(model: Model, rng: np.random.Generator) -> Numbers:
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    lower, upper = model.sample_range()
    return {
        "joint_q": joint_q,
        "joint_qd": joint_qd,
        "activation": rng.uniform(0.1, 0.85, (NUM_WORLDS, model.num_acts)),
        "control": lower + rng.uniform(0.05, 0.95, (NUM_WORLDS, model.num_controls)) * (upper - lower),
    }


def stepped(model: Model, inputs: dict[str, Tensor], count: int = 1, substeps: int = SUBSTEPS) -> State:
    state = State(inputs["joint_q"], inputs["joint_qd"], activation=inputs["activation"])
    for _ in range(count):
        state = step(model, state, inputs["control"], CONTROL_DT * substeps / SUBSTEPS, substeps)
    return state


def numbers(state: State) -> Tensor:
    assert state.activation is not None
    return torch.cat([state.joint_q, state.joint_qd, state.activation], dim=1)


def tensors(inputs: Numbers, place: str = "cpu", dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=dtype, device=place) for name, value in inputs.items()}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_a_substep_is_mujocos(
    every_muscle: Model, rng: np.random.Generator, place: str, dtype: torch.dtype, tolerance: float
) -> None:
    """Semi-implicit Euler with MuJoCo's accelerations and rates of activation."""
    inputs = lively_inputs(every_muscle, rng)
    expected = by_mujoco(every_muscle, inputs)
    found = numbers(stepped(every_muscle, tensors(inputs, place, dtype), substeps=1)).double().cpu().numpy()
    assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def by_mujoco(model: Model, inputs: Numbers) -> np.ndarray:
    """The state after one substep."""
    data, expected, dt = mujoco.MjData(model.source), [], CONTROL_DT / SUBSTEPS
    for q, qd, activation, control in zip(*inputs.values(), strict=True):
        data.qpos[:], data.qvel[:], data.act[:], data.ctrl[:] = q, qd, activation, control
        mujoco.mj_forward(model.source, data)
        next_qd, next_q = qd + dt * data.qacc, q.copy()
        mujoco.mj_integratePos(model.source, next_q, next_qd, dt)
        bounded = np.clip(activation + dt * data.act_dot, *model.act_range.T)
        expected.append(np.concatenate([next_q, next_qd, bounded]))
    return np.array(expected)


RANDOM_ROBOTS = given(seed=st.integers(0, 2**32 - 1), num_bodies=st.integers(1, 6), num_muscles=st.integers(1, 5))


@pytest.mark.slow
@settings(max_examples=2, derandomize=True, deadline=None, database=None)
@RANDOM_ROBOTS
def test_random_robots_with_muscles(seed: int, num_bodies: int, num_muscles: int) -> None:
    check_a_random_robot(seed, num_bodies, num_muscles)


@pytest.mark.campaign
@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@RANDOM_ROBOTS
def test_many_random_robots_with_muscles(seed: int, num_bodies: int, num_muscles: int) -> None:
    check_a_random_robot(seed, num_bodies, num_muscles)


def check_a_random_robot(seed: int, num_bodies: int, num_muscles: int) -> None:
    """A substep as MuJoCo's, and right gradients; without limits and springs, which have laws of their own."""
    rng = np.random.default_rng(seed)
    model = load_model(with_hill_muscles(random_robot(rng, num_bodies, ground=False), rng, num_muscles))
    nothing = np.zeros(model.num_joints)
    model = replace(model, joint_stiffness=nothing, joint_limit_stiffness=nothing)
    model.source.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_SPRING
    inputs = lively_inputs(model, rng)
    expected = by_mujoco(model, inputs)
    found = numbers(stepped(model, tensors(inputs), substeps=1)).numpy()
    assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    check_gradients(model, inputs, 1, (1e-6, 1e-5, 1e-4), rng, 0.1)


def check_gradients(
    model: Model, inputs: Numbers, count: int, steps: tuple[float, ...], rng: np.random.Generator, excluded: float
) -> None:
    """Of a random linear function of the last state, along three random directions of each input."""
    weights = torch.tensor(rng.normal(size=(NUM_WORLDS, model.num_q + model.num_dofs + model.num_acts)))
    leaves = {name: value.requires_grad_() for name, value in tensors(inputs).items()}
    reference = numbers(stepped(model, leaves, count))
    found = dict(zip(leaves, torch.autograd.grad((reference * weights).sum(), list(leaves.values())), strict=True))
    gradients = {name: gradient.numpy() for name, gradient in found.items()}
    gradients["joint_q"] = to_tangent(model, inputs["joint_q"], gradients["joint_q"])
    for name, value in inputs.items():
        directions = rng.normal(size=(3, NUM_WORLDS, gradients[name].shape[1]))

        def losses(moved: np.ndarray, name: str = name) -> np.ndarray:
            copies = len(moved) // NUM_WORLDS
            repeated = {key: np.tile(rows, (copies, 1)) for key, rows in inputs.items()}
            with torch.no_grad():
                end = numbers(stepped(model, tensors(repeated | {name: moved}), count))
                return ((end - reference.repeat(copies, 1)) * weights.repeat(copies, 1)).sum(dim=1).numpy()

        move = (lambda x, change: integrate(model, x, change)) if name == "joint_q" else np.add
        expected, doubt = least_doubtful(
            [central_difference(losses, value, length, move=move, directions=directions) for length in steps]
        )
        allowed = 1e-6 * np.abs(expected).max(axis=1, keepdims=True)
        clear = doubt <= allowed
        assert 1 - clear.mean() <= excluded, f"{1 - clear.mean():.1%} of the differences by {name} are in doubt"
        error = abs(np.einsum("dwi,wi->wd", directions, gradients[name]) - expected)
        assert (error <= allowed)[clear].all(), (
            f"the gradient by {name} is wrong by {(error / allowed)[clear].max()}e-6"
        )


@pytest.mark.parametrize("count", [1, 8])
def test_gradients(every_muscle: Model, rng: np.random.Generator, count: int) -> None:
    check_gradients(every_muscle, lively_inputs(every_muscle, rng), count, (1e-6, 1e-5, 1e-4), rng, 0.05)


def test_linearization_is_the_gradient(every_muscle: Model, rng: np.random.Generator) -> None:
    """Of activations by activations and controls; oracle: one backward pass per row."""
    model, inputs = every_muscle, tensors(lively_inputs(every_muscle, rng))
    state = State(inputs["joint_q"], inputs["joint_qd"], activation=inputs["activation"])
    found = linearize(model, state, inputs["control"], CONTROL_DT, SUBSTEPS)
    width = 2 * model.num_dofs + model.num_acts
    assert found.state.shape == (NUM_WORLDS, width, width)
    leaves = {name: value.clone().requires_grad_() for name, value in inputs.items()}
    end = stepped(model, leaves)
    assert end.activation is not None
    rows = [*end.joint_qd.sum(dim=0), *end.activation.sum(dim=0)]
    for row, output in enumerate(rows, start=model.num_dofs):
        by_qd, by_activation, by_control = torch.autograd.grad(
            output, [leaves[name] for name in ("joint_qd", "activation", "control")], retain_graph=True
        )
        assert_allclose(found.state[:, row, model.num_dofs : 2 * model.num_dofs], by_qd, atol=1e-12)
        assert_allclose(found.state[:, row, 2 * model.num_dofs :], by_activation, atol=1e-12)
        assert_allclose(found.control[:, row], by_control, atol=1e-12)


def test_a_state_without_activation_is_refused(every_muscle: Model) -> None:
    state = every_muscle.default_state(2)
    control = torch.zeros(2, every_muscle.num_controls)
    with pytest.raises(ValueError, match=r"needs an activation of \(2, 6\)"):
        step(every_muscle, State(state.joint_q, state.joint_qd), control, CONTROL_DT)
    short = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"activation must be \(2, 6\).*not \(2, 3\)"):
        step(every_muscle, State(state.joint_q, state.joint_qd, activation=short), control, CONTROL_DT)


def test_activation_follows_a_step_of_control() -> None:
    """From rest to full control and back: mju_muscleDynamics, step by step."""
    model = load_model(LEGS)
    state, constants = model.default_state(1, dtype=torch.float64), model.source.actuator_dynprm[0, :3]
    expected = 0.0
    for level in (1.0, 0.0):
        control = torch.full((1, model.num_controls), level, dtype=torch.float64)
        for _ in range(6):
            state = step(model, state, control, CONTROL_DT, SUBSTEPS)
            for _ in range(SUBSTEPS):
                expected += CONTROL_DT / SUBSTEPS * mujoco.mju_muscleDynamics(level, expected, constants)
            assert state.activation is not None
            assert_allclose(state.activation, expected, rtol=1e-12)


@pytest.mark.parametrize("place", PLACES)
def test_legs_move_and_stay_whole(place: str) -> None:
    """Five seconds of random excitation: no bone faster than 60 rad/s, none flies off, activations between 0 and 1."""
    model, generator = load_model(LEGS), torch.Generator().manual_seed(0)
    state, fastest = model.default_state(32, device=place), 0.0
    for _ in range(300):
        control = torch.rand(32, model.num_controls, generator=generator).to(place)
        state = step(model, state, control, CONTROL_DT, SUBSTEPS)
        fastest = max(fastest, float(state.joint_qd.abs().max()))
    assert bool(state.finite.all()) and 1 < fastest < 60
    assert float(state.joint_q[:, :3].abs().max()) < 3
    assert state.activation is not None and float(state.activation.min()) > 0 and float(state.activation.max()) < 1


def test_legs_pass_the_gradient_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_check(CheckSettings(LEGS, worlds=4))
    assert "20 muscles" in capsys.readouterr().out
