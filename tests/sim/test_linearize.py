"""Jacobians of a control step against central differences, autograd, the chain rule and a closed form, in float64."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from trot.sim.linearize import linearize
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.parameters import Parameters
from trot.sim.state import State
from trot.sim.step import step

ROOT = Path(__file__).parents[2]
DT, SUBSTEPS = 1 / 60, 8

ROUNDING = 1e-10
"""Relative to the largest entry: float64 rounding, 1e-16, through a thousand stiff operations."""


@pytest.fixture(scope="module")
def every_joint() -> Model:
    return load_model(ROOT / "tests" / "robots" / "every_joint.xml")


@pytest.fixture(scope="module")
def hopper() -> Model:
    return load_model(ROOT / "trot" / "envs" / "assets" / "hopper.xml")


def lively(model: Model, num_worlds: int) -> tuple[State, Tensor]:
    """States of a random motion that has reached the ground, and controls inside their ranges."""
    generator = torch.Generator().manual_seed(num_worlds)

    def random_control():
        lower, upper = (torch.tensor(bound).clamp(-1, 1) for bound in (model.control_lower, model.control_upper))
        share = torch.rand(num_worlds, model.num_controls, generator=generator, dtype=torch.float64)
        return lower + (0.1 + 0.8 * share) * (upper - lower)

    state = model.default_state(num_worlds, dtype=torch.float64)
    joint_qd = torch.randn(num_worlds, model.num_dofs, generator=generator, dtype=torch.float64)
    state = State(state.joint_q, joint_qd)
    for _ in range(30):
        state = step(model, state, random_control(), DT, 16)
    return state, random_control()


def assert_close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    """Relative to the largest entry of each world's matrix."""
    scale = expected.abs().amax(dim=(1, 2), keepdim=True)
    assert found.shape == expected.shape
    assert ((found - expected).abs() <= tolerance * scale).all(), ((found - expected).abs() / scale).max()


def moved(model: Model, joint_q: Tensor, tangent: np.ndarray) -> Tensor:
    """joint_q of every world moved along the manifold, by MuJoCo."""
    result = joint_q.numpy().copy()
    for row in result:
        mujoco.mj_integratePos(model.source, row, tangent, 1.0)
    return torch.from_numpy(result)


def difference(model: Model, start: Tensor, end: Tensor) -> Tensor:
    """The tangent that leads from one joint_q to the other, by MuJoCo."""
    result = np.zeros((len(start), model.num_dofs))
    for row, a, b in zip(result, start.numpy(), end.numpy(), strict=True):
        mujoco.mj_differentiatePos(model.source, row, 1.0, a, b)
    return torch.from_numpy(result)


def central_differences(model: Model, state: State, control: Tensor, h: float) -> tuple[Tensor, Tensor]:
    """A and B, one column per input."""
    centre = step(model, state, control, DT, SUBSTEPS)

    def tangent_of(joint_q: Tensor, joint_qd: Tensor, control: Tensor) -> Tensor:
        end = step(model, State(joint_q, joint_qd), control, DT, SUBSTEPS)
        return torch.cat([difference(model, centre.joint_q, end.joint_q), end.joint_qd], dim=1)

    def column(offset: np.ndarray) -> Tensor:
        q, qd, u = np.split(offset, [model.num_dofs, 2 * model.num_dofs])
        above, below = (
            tangent_of(
                moved(model, state.joint_q, sign * q),
                state.joint_qd + sign * torch.from_numpy(qd),
                control + sign * torch.from_numpy(u),
            )
            for sign in (1.0, -1.0)
        )
        return (above - below) / (2 * h)

    offsets = h * np.eye(2 * model.num_dofs + model.num_controls)
    columns = torch.stack([column(offset) for offset in offsets], dim=2)
    return columns[:, :, : 2 * model.num_dofs], columns[:, :, 2 * model.num_dofs :]


@pytest.mark.parametrize("num_worlds", [3, 17])
def test_against_central_differences(every_joint, num_worlds):
    """1e-6 of the largest entry: differences at h = 1e-6 carry h^2 of truncation and 1e-16 / h of rounding.

    Where a contact or a limit begins within h, the function has a kink; there half the h gives another result, and the
    entry does not count.
    """
    state, control = lively(every_joint, num_worlds)
    found = linearize(every_joint, state, control, DT, SUBSTEPS)
    coarse, fine = (central_differences(every_joint, state, control, h) for h in (1e-6, 5e-7))
    for jacobian, expected, check in zip(found, fine, coarse, strict=True):
        scale = expected.abs().amax(dim=(1, 2), keepdim=True)
        smooth = (expected - check).abs() <= 1e-6 * scale
        assert smooth.float().mean() > 0.98
        assert_close(torch.where(smooth, jacobian, expected), expected, 1e-6)


@pytest.mark.parametrize("num_worlds", [3, 17])
def test_against_autograd(hopper, num_worlds):
    """All coordinates of the hopper are plain numbers, so tangents are coordinates and rows are gradients."""
    state, control = lively(hopper, num_worlds)
    leaves = [tensor.clone().requires_grad_() for tensor in (state.joint_q, state.joint_qd, control)]
    following = step(hopper, State(*leaves[:2]), leaves[2], DT, SUBSTEPS)
    outputs = torch.cat([following.joint_q, following.joint_qd], dim=1)
    rows = [
        torch.cat(torch.autograd.grad(outputs[:, k].sum(), leaves, retain_graph=True), dim=1)
        for k in range(outputs.shape[1])
    ]
    expected = torch.stack(rows, dim=1)
    found = linearize(hopper, state, control, DT, SUBSTEPS)
    assert_close(found.state, expected[:, :, : 2 * hopper.num_dofs], ROUNDING)
    assert_close(found.control, expected[:, :, 2 * hopper.num_dofs :], ROUNDING)


def test_chain_rule(every_joint):
    """Two steps in a row: A = A2 A1, B = A2 B1 + B2; and the same as one step of twice the length."""
    state, control = lively(every_joint, 3)
    first = linearize(every_joint, state, control, DT, SUBSTEPS)
    middle = step(every_joint, state, control, DT, SUBSTEPS)
    second = linearize(every_joint, middle, control, DT, SUBSTEPS)
    both = linearize(every_joint, state, control, 2 * DT, 2 * SUBSTEPS)
    assert_close(both.state, second.state @ first.state, ROUNDING)
    assert_close(both.control, second.state @ first.control + second.control, ROUNDING)


def test_oscillator():
    """One substep of m x'' = u - k x - c x':  v+ = v + dt (u - k x - c v) / m,  x+ = x + dt v+."""
    mass, k, c, dt = 2.0, 50.0, 3.0, 0.01
    model = load_model(f"""
    <mujoco>
      <option gravity="0 0 0"/>
      <worldbody>
        <body>
          <joint name="x" type="slide" stiffness="{k}" damping="{c}"/>
          <inertial pos="0 0 0" mass="{mass}" diaginertia="1 1 1"/>
        </body>
      </worldbody>
      <actuator><motor joint="x" ctrlrange="-1 1"/></actuator>
    </mujoco>""")
    speed = np.array([[-dt * k / mass, 1 - dt * c / mass, dt / mass]])
    rows = torch.tensor(np.concatenate([[[1.0, 0, 0]] + dt * speed, speed]))
    state = State(torch.tensor([[0.3], [0.1]]).double(), torch.tensor([[-1.0], [2.0]]).double())
    found = linearize(model, state, torch.tensor([[0.5], [1.5]]).double(), dt)
    assert_close(found.state, rows[:, :2].expand(2, 2, 2), ROUNDING)
    assert_close(found.control[:1], rows[None, :, 2:], ROUNDING)
    assert not found.control[1].any()  # beyond its range a control does nothing


def test_fields_and_parameters(hopper):
    """Unpacks as A, B; parameters count; float32 gives float32 and no gradient is recorded."""
    state, control = lively(hopper, 3)
    a, b = found = linearize(hopper, state, control, DT, SUBSTEPS)
    assert (a.shape, b.shape) == ((3, 12, 12), (3, 12, 3))
    assert (found.state is a) and (found.control is b)
    mass = torch.tensor(hopper.body_mass)
    same = linearize(hopper, state, control, DT, SUBSTEPS, Parameters(body_mass=mass))
    heavier = linearize(hopper, state, control, DT, SUBSTEPS, Parameters(body_mass=2 * mass))
    assert_close(same.state, a, ROUNDING)
    # Twice the mass against the same armature: a motor moves the robot less.
    assert (heavier.control.abs().sum(dim=(1, 2)) < b.abs().sum(dim=(1, 2))).all()
    single = State(state.joint_q.float().requires_grad_(), state.joint_qd.float())
    assert linearize(hopper, single, control.float(), DT, SUBSTEPS).state.dtype == torch.float32
    assert not linearize(hopper, single, control.float(), DT, SUBSTEPS).state.requires_grad
