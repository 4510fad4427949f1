"""Gradients through trot.sim.step.step in float64 against central differences on the manifold.

The loss is a random linear function of every state on the way. A contact, a limit or friction that switches makes a
kink, where no derivative exists: central_difference() says by how much a kink nearby may disturb each difference, and
those that it disturbs are left out and counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from campaign import in_a_campaign
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from manifold import (
    central_difference,
    integrate,
    least_doubtful,
    lively_states,
    point_heights,
    quaternions,
    to_tangent,
)
from random_robots import random_robot
from torch import Tensor

from trot.sim.load import load_model
from trot.sim.model import JointType, Model
from trot.sim.parameters import Parameters, own_parameters
from trot.sim.state import State
from trot.sim.step import step

HERE = Path(__file__).parent
ASSETS = HERE.parents[1] / "trot" / "envs" / "assets"
ROBOTS = {
    "every_pair": HERE.parent / "robots" / "every_pair.xml",
    "every_joint": HERE.parent / "robots" / "every_joint.xml",
    "every_law": HERE.parent / "robots" / "every_law.xml",
    "every_bond": HERE.parent / "robots" / "every_bond.xml",
    "ant": ASSETS / "ant.xml",
    "hopper": ASSETS / "hopper.xml",
    "half_cheetah": ASSETS / "half_cheetah.xml",
    "humanoid": ASSETS / "humanoid.xml",
    "muscle_humanoid": ASSETS / "muscle_humanoid.xml",
}
LIKE_OTHERS = ("hopper", "half_cheetah", "muscle_humanoid")
"""Whose joints, muscles and contacts the others have too."""
PARAMETERS = tuple(field.name for field in fields(Parameters))
NUM_WORLDS = 20  # whole blocks of 8 or 16, and an incomplete one
CONTROL_DT, SUBSTEPS = 1 / 60, 16
TOLERANCE = 1e-6


@dataclass
class Run:
    """A robot over some control steps, and the weight of each number on the way in the loss."""

    model: Model
    substeps: int
    dt: float
    weights: np.ndarray
    """(NUM_WORLDS, num_steps, num_q + num_dofs)"""
    with_parameters: bool = True

    def states(self, inputs: dict[str, Tensor]) -> Tensor:
        """joint_q and joint_qd after every step; a row of inputs["control"] holds those of all steps in a row."""
        given = {name: inputs[name] for name in PARAMETERS if name in inputs}
        state, states = State(inputs["joint_q"], inputs["joint_qd"], activation=inputs.get("activation")), []
        for control in inputs["control"].split(self.model.num_controls, dim=1):
            parameters = Parameters(**given) if self.with_parameters else None
            state = step(self.model, state, control, self.dt, self.substeps, parameters)
            states.append(torch.cat([state.joint_q, state.joint_qd], dim=1))
        return torch.stack(states, dim=1)

    def losses(self, inputs: dict[str, Tensor], reference: Tensor | float = 0.0) -> Tensor:
        """One number per row; rows beyond NUM_WORLDS are the same worlds again.

        A reference, states near those of the run, takes a constant off the loss and leaves it more digits.
        """
        states = self.states(inputs)
        copies = len(states) // NUM_WORLDS
        difference = states.unflatten(0, (copies, NUM_WORLDS)) - reference
        return (difference * torch.tensor(self.weights, dtype=states.dtype)).sum(dim=(2, 3)).flatten()

    def gradients(self, inputs: dict[str, np.ndarray], dtype: torch.dtype = torch.float64) -> dict[str, np.ndarray]:
        given = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in inputs.items()}
        gradients = torch.autograd.grad(self.losses(given).sum(), list(given.values()))
        return {name: gradient.double().numpy() for name, gradient in zip(given, gradients, strict=True)}


def tensors(inputs: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.tensor(value) for name, value in inputs.items()}


def make_run(
    robot: str | Model, num_steps: int = 1, substeps: int = SUBSTEPS, dt: float = CONTROL_DT, seed: int = 0
) -> tuple[Run, dict[str, np.ndarray]]:
    """A run from lively states, with constants that differ per world and some controls beyond their range."""
    model = robot if isinstance(robot, Model) else load_model(ROBOTS[robot], self_collision=robot == "every_pair")
    rng = np.random.default_rng(seed)
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    low, high = np.tile(model.control_lower, num_steps), np.tile(model.control_upper, num_steps)
    inputs = {
        "joint_q": joint_q,
        "joint_qd": joint_qd,
        "control": rng.uniform(low - 0.1, high + 0.1, (NUM_WORLDS, len(low))),
    }
    if model.num_acts:
        inputs["activation"] = rng.uniform(-0.5, 0.5, (NUM_WORLDS, model.num_acts))
    for name, own in own_parameters(model).items():
        inputs[name] = own * rng.uniform(0.8, 1.2, (NUM_WORLDS, len(own)))
    weights = rng.normal(size=(NUM_WORLDS, num_steps, model.num_q + model.num_dofs))
    return Run(model, substeps, dt, weights), inputs


def check_gradients(
    run: Run,
    inputs: dict[str, np.ndarray],
    steps: tuple[float, ...],
    rng: np.random.Generator | None = None,
    *,
    excluded_share: float,
) -> None:
    """Compare the gradient by every input with central differences, relative to the largest of the world and input.

    The directions are all coordinates, or with an rng two random ones. Constants change relative to their size. Of
    the steps, each difference takes the one that leaves the least doubt: kinks ask for a short one, rounding for a
    long one.
    """
    gradients = run.gradients(inputs)
    gradients["joint_q"] = to_tangent(run.model, inputs["joint_q"], gradients["joint_q"])
    reference = run.states(tensors(inputs))
    for name, x in inputs.items():
        gradient = gradients[name]
        width = gradient.shape[1]
        every = np.broadcast_to(np.eye(width)[:, None], (width, NUM_WORLDS, width))
        directions = every if rng is None else rng.normal(size=(2, NUM_WORLDS, width))
        if name in PARAMETERS:
            directions = directions * x

        def losses(moved: np.ndarray, name: str = name) -> np.ndarray:
            repeated = {key: np.tile(value, (len(moved) // NUM_WORLDS, 1)) for key, value in inputs.items()}
            return run.losses(tensors(repeated | {name: moved}), reference).numpy()

        move = partial(integrate, run.model) if name == "joint_q" else np.add
        expected, doubt = least_doubtful(
            [central_difference(losses, x, step, move=move, directions=directions) for step in steps]
        )
        assert np.isfinite(expected).all()
        allowed = TOLERANCE * abs(expected).max(axis=1, keepdims=True)
        clear = doubt <= allowed
        excluded = (~clear).mean()
        assert excluded <= excluded_share, f"{excluded:.1%} of the differences by {name} are in doubt"
        error = abs(np.einsum("dwi,wi->wd", directions, gradient) - expected)
        worst = (error / (allowed + 1e-300))[clear].max() * TOLERANCE
        assert (error <= allowed)[clear].all(), f"the gradient by {name} is wrong by {worst:.1e}"


def beyond_limits(model: Model, joint_q: np.ndarray) -> np.ndarray:
    """Which hinges and slides are beyond a limit: (..., number of these)."""
    simple = np.flatnonzero(model.joint_type >= JointType.SLIDE)
    q = joint_q[..., model.joint_q_start[simple]]
    return (q < model.joint_lower[simple]) | (q > model.joint_upper[simple])


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("substeps", [1, SUBSTEPS])
def test_one_control_step(robot: str, substeps: int) -> None:
    run, inputs = make_run(robot, substeps=substeps, dt=CONTROL_DT * substeps / SUBSTEPS)
    touches = (point_heights(run.model, inputs["joint_q"]) < 0).any(axis=1)
    assert 0 < touches.sum() < NUM_WORLDS
    assert beyond_limits(run.model, inputs["joint_q"]).any()
    check_gradients(run, inputs, (1e-6, 1e-5, 1e-4, 1e-3), excluded_share=0.02)


def with_activations(text: str, rng: np.random.Generator) -> str:
    """Half of the servos follow their control slowly, by each of the laws."""
    kinds = ("", "", "", "filter", "filterexact", "integrator")
    plain = 'biastype="affine"'

    def slowed(_: re.Match[str]) -> str:
        kind = rng.choice(kinds)
        return f'{plain} dyntype="{kind}" dynprm="{rng.uniform(0.05, 0.5):.3g}"' if kind else plain

    return re.sub(plain, slowed, text)


RANDOM_ROBOTS = given(seed=st.integers(0, 2**32 - 1), num_bodies=st.integers(1, 6), num_muscles=st.integers(0, 2))


@pytest.mark.slow
@settings(max_examples=2, derandomize=True, deadline=None, database=None)
@RANDOM_ROBOTS
def test_random_robots_with_every_law(seed: int, num_bodies: int, num_muscles: int) -> None:
    check_a_random_robot(seed, num_bodies, num_muscles)


@pytest.mark.campaign
@settings(max_examples=30, derandomize=True, deadline=None, database=None)
@RANDOM_ROBOTS
def test_many_random_robots_with_every_law(seed: int, num_bodies: int, num_muscles: int) -> None:
    check_a_random_robot(seed, num_bodies, num_muscles)


def check_a_random_robot(seed: int, num_bodies: int, num_muscles: int) -> None:
    """Touching themselves, some servos with activations; in small steps, since nobody has seen to their stiffness."""
    rng = np.random.default_rng(seed)
    text = random_robot(rng, num_bodies, num_muscles=num_muscles, laws=True).replace('contype="0"', 'contype="1"')
    model = load_model(with_activations(text, rng), self_collision=True)
    assume(model.num_controls and model.num_points)
    run, inputs = make_run(model, num_steps=2, substeps=4, dt=0.001, seed=seed)
    check_gradients(run, inputs, (1e-7, 1e-6, 1e-5, 1e-4, 1e-3), excluded_share=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("robot", [in_a_campaign(name) if name in LIKE_OTHERS else name for name in ROBOTS])
def test_a_rollout_with_contacts_made_and_broken(robot: str) -> None:
    """32 control steps of 16 substeps, in random directions."""
    run, inputs = make_run(robot, num_steps=32)
    model = run.model
    joint_q = run.states(tensors(inputs))[:, :, : model.num_q].numpy()
    heights = point_heights(model, joint_q.reshape(-1, model.num_q)).reshape(NUM_WORLDS, 32, -1)
    made = (heights[:, :-1] > 0) & (heights[:, 1:] < 0)
    broken = (heights[:, :-1] < 0) & (heights[:, 1:] > 0)
    assert made.sum() > 20 and broken.sum() > 20
    beyond = beyond_limits(model, joint_q)
    assert (~beyond[:, :-1] & beyond[:, 1:]).sum() > 20
    check_gradients(run, inputs, (1e-8, 1e-7, 1e-6, 1e-5, 1e-4), np.random.default_rng(1), excluded_share=0.1)


def test_a_kink_nearby_raises_doubt_by_more_than_its_error() -> None:
    """f(x) = 3 x + max(0, x - a) has slope 3 at zero for a > 0, else 4."""
    kinks = np.linspace(-2.3e-5, 2.3e-5, 401)[:, None]
    found = central_difference(
        lambda x: (3 * x + np.maximum(0, x - np.tile(kinks, (len(x) // len(kinks), 1))))[:, 0], np.zeros((401, 1)), 1e-5
    )
    error = abs(found.value - np.where(kinks > 0, 3, 4))
    assert (error <= found.doubt + 1e-10).all() and error.max() > 0.4


def test_muscles_pull_in_these_runs() -> None:
    run, inputs = make_run("every_joint")
    assert (inputs["control"][:, run.model.muscle_actuator] > 0.1).mean() > 0.5


# What a gradient must be at the border to PyTorch.


@pytest.mark.parametrize("shape", ["(count,)", "(1, count)"])
@pytest.mark.parametrize("robot", ["every_joint", "every_pair"])
def test_constants_shared_by_all_worlds_get_the_sum_of_their_gradients(robot: str, shape: str) -> None:
    run, inputs = make_run(robot)
    names = own_parameters(run.model)
    row = {name: inputs[name][0] if shape == "(count,)" else inputs[name][:1] for name in names}
    per_world = {name: np.tile(inputs[name][0], (NUM_WORLDS, 1)) for name in names}
    shared, separate = run.gradients(inputs | row), run.gradients(inputs | per_world)
    for name in names:
        assert shared[name].shape == row[name].shape
        np.testing.assert_allclose(shared[name].reshape(-1), separate[name].sum(axis=0), rtol=1e-9)


def test_no_constants_given_is_the_same_as_giving_the_models_own() -> None:
    run, inputs = make_run("ant")
    inputs = {name: value for name, value in inputs.items() if name not in PARAMETERS}
    given = run.gradients(inputs)
    run.with_parameters = False
    for name, gradient in run.gradients(inputs).items():
        np.testing.assert_allclose(gradient, given[name], atol=1e-9 * abs(gradient).max())


@pytest.mark.parametrize("length", [1.0, 1.3])
def test_a_quaternions_length_makes_no_difference(length: float) -> None:
    """Oracle: differences by the quaternion's own four numbers, which change its length too."""
    run, inputs = make_run("every_joint")
    reference = run.states(tensors(inputs))
    columns = np.concatenate([np.arange(where.start, where.stop) for where, _ in quaternions(run.model)])
    inputs["joint_q"][:, columns] *= length
    assert (run.states(tensors(inputs)) - reference).abs().max() < 1e-11

    gradient = run.gradients(inputs)["joint_q"][:, columns]
    radial = (gradient * inputs["joint_q"][:, columns]).reshape(NUM_WORLDS, -1, 4).sum(axis=2)
    assert abs(radial).max() < 1e-12 * abs(gradient).max()

    def losses(joint_q: np.ndarray) -> np.ndarray:
        repeated = {key: np.tile(value, (len(joint_q) // NUM_WORLDS, 1)) for key, value in inputs.items()}
        return run.losses(tensors(repeated | {"joint_q": joint_q}), reference).numpy()

    directions = np.broadcast_to(np.eye(run.model.num_q)[columns, None], (len(columns), NUM_WORLDS, run.model.num_q))
    expected, doubt = central_difference(losses, inputs["joint_q"], 1e-6, directions=directions)
    allowed = TOLERANCE * abs(expected).max(axis=1, keepdims=True)
    clear = doubt <= allowed
    assert clear.mean() > 0.98
    assert (abs(gradient - expected) <= allowed)[clear].all()


def test_a_control_beyond_its_range_gets_no_gradient() -> None:
    run, inputs = make_run("every_joint")
    held = (inputs["control"] < run.model.control_lower) | (inputs["control"] > run.model.control_upper)
    gradient = run.gradients(inputs)["control"]
    assert held.any() and (gradient[held] == 0).all()
    assert (gradient[~held] != 0).all()


@pytest.mark.parametrize("robot", ["every_joint", "every_pair", "ant"])
def test_float32_agrees_with_float64(robot: str) -> None:
    run, inputs = make_run(robot)
    inputs = {name: value.astype(np.float32).astype(np.float64) for name, value in inputs.items()}
    exact, rounded = run.gradients(inputs), run.gradients(inputs, torch.float32)
    for name, gradient in exact.items():
        error = abs(rounded[name] - gradient).max(axis=1) / abs(gradient).max(axis=1).clip(1e-300)
        assert error.max() < 1e-3, f"{name}: {error.max():.1e}"
