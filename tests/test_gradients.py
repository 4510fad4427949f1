"""Gradients through trot.sim.step.step in float64 against central differences on the manifold.

The loss is a random linear function of every state on the way. A contact, a limit or friction that switches makes a
kink, where no derivative exists: central_difference() says by how much a kink nearby may disturb each difference, and
those that it disturbs are left out and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from manifold import (
    central_difference,
    integrate,
    lively_states,
    point_heights,
    quaternions,
    to_tangent,
)
from torch import Tensor

from trot.sim.load import load_model
from trot.sim.model import JointType, Model
from trot.sim.parameters import Parameters
from trot.sim.state import State
from trot.sim.step import step

TESTS = Path(__file__).parent
ASSETS = TESTS.parent / "trot" / "envs" / "assets"
ROBOTS = {
    "every_joint": TESTS / "robots" / "every_joint.xml",
    "ant": ASSETS / "ant.xml",
    "hopper": ASSETS / "hopper.xml",
    "humanoid": TESTS / "robots" / "humanoid.xml",
}
PARAMETERS = ("body_mass", "contact_stiffness", "contact_damping", "friction_stiffness", "friction")
NUM_WORLDS = 20  # one whole block of 16 and an incomplete one
CONTROL_DT, SUBSTEPS = 1 / 60, 16
TOLERANCE = 1e-6


@dataclass
class Run:
    """A robot over some control steps, and the weights of its states in the loss."""

    model: Model
    num_steps: int
    substeps: int
    weights: tuple[np.ndarray, np.ndarray]
    dt: float = CONTROL_DT
    with_parameters: bool = True

    def states(self, inputs: dict[str, Tensor]) -> list[State]:
        """The states after every step. A row of control holds those of all steps, one after the other."""
        chosen = {name: inputs[name] for name in PARAMETERS if name in inputs}
        parameters = Parameters(**chosen) if self.with_parameters else None
        states = [State(inputs["joint_q"], inputs["joint_qd"])]
        for control in inputs["control"].split(self.model.num_controls, dim=1):
            states.append(step(self.model, states[-1], control.contiguous(), self.dt, self.substeps, parameters))
        return states[1:]

    def losses(self, inputs: dict[str, Tensor]) -> Tensor:
        """One number per row. Rows beyond NUM_WORLDS are the same worlds again."""
        total = torch.zeros(1)
        for now, (ref, w) in enumerate()

    def gradients(self, inputs: dict[str, np.ndarray], dtype: torch.dtype = torch.float64) -> dict[str, np.ndarray]:
        tensors = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in inputs.items()}
        gradients = torch.autograd.grad(self.losses(tensors).sum(), list(tensors.values()))
        return {name: gradient.double().numpy() for name, gradient in zip(tensors, gradients, strict=True)}


def make_run(
    robot: str, num_steps: int = 1, substeps: int = SUBSTEPS, dt: float = CONTROL_DT, seed: int = 0
) -> tuple[Run, dict[str, np.ndarray]]:
    """A run from lively states, with parameters that differ per world and some controls beyond their range."""
    model = load_model(ROBOTS[robot])
    rng = np.random.default_rng(seed)
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    low, high = np.tile(model.control_lower, num_steps), np.tile(model.control_upper, num_steps)
    own = (
        model.body_mass,
        model.shape_stiffness,
        model.shape_damping,
        model.shape_friction_stiffness,
        model.shape_friction,
    )
    inputs = {
        "joint_q": joint_q,
        "joint_qd": joint_qd,
        "control": rng.uniform(low - 0.1, high + 0.1, (NUM_WORLDS, len(low))),
    }
    for name, value in zip(PARAMETERS, own, strict=True):
        inputs[name] = value * rng.uniform(0.8, 1.2, (NUM_WORLDS, len(value)))
    weights = [rng.normal(size=(NUM_WORLDS, num_steps * width)) for width in (model.num_q, model.num_dofs)]
    return Run(model, num_steps, substeps, tuple(weights), dt), inputs


def compare(
    run: Run, inputs: dict[str, np.ndarray], step: float, rng: np.random.Generator | None = None, num_directions: int = 3
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Error and doubt per world and direction for each input, relative to the largest derivative of the world.

    The directions are all coordinates, or with an rng random ones. Constants change relative to their size.
    """
    gradients = run.gradients(inputs)
    gradients["joint_q"] = to_tangent(run.model, inputs["joint_q"], gradients["joint_q"])
    result = {}
    for name, x in inputs.items():
        gradient = gradients[name]
        shape = (gradient.shape[1] if rng is None else num_directions, *gradient.shape)
        unit = abs(x).mean(axis=0) if name in PARAMETERS else np.ones(gradient.shape[1])
        basis = np.broadcast_to(np.eye(shape[2])[:, None], shape) if rng is None else rng.normal(size=shape)
        directions = basis * unit

        def losses(moved: np.ndarray, name: str = name) -> np.ndarray:
            copies = len(moved) // NUM_WORLDS
            tiled = {other: np.tile(value, (copies, 1)) for other, value in inputs.items()} | {name: moved}
            return run.losses({key: torch.tensor(value) for key, value in tiled.items()}).numpy()

        move = partial(integrate, run.model) if name == "joint_q" else np.add
        expected, doubt = central_difference(losses, x, step, move=move, directions=directions)
        found = np.einsum("dwi,wi->wd", directions, gradient)
        scale = abs(expected).max(axis=1, keepdims=True) + 1e-300
        result[name] = abs(found - expected) / scale, doubt / scale
    return result
