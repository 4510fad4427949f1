"""Ten and thirty control steps of three robots against an independent program of the same equations.

The reference computed in float64, from tables of masses and inertias rounded to four or five digits: 1e-4 after 10
steps. Contact amplifies that to 1e-2 after 30, float32 reaches three digits after 10. One world, nominal start, action
i at control step t is 0.5 sin(0.1 (t + 1) (i + 1)).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from trot.envs.registry import make_env
from trot.sim.load import load_model
from trot.sim.state import State
from trot.sim.step import step

ASSETS = Path(__file__).parents[2] / "trot" / "envs" / "assets"


@dataclass
class Reference:
    """joint_q and joint_qd of a robot at the start, and one after the other after 10 and 30 control steps."""

    file: str
    substeps: int
    start: list[float]
    after: dict[int, list[float]]


CARTPOLE = Reference(
    file="cartpole.xml",
    substeps=4,
    start=[0, -np.pi],
    after={
        10: [0.051456, -3.070769, 0.820709, 1.091383],
        30: [0.802742, -2.373065, 3.181098, 1.717736],
    },
)
HOPPER = Reference(
    file="hopper.xml",
    substeps=16,
    start=[0, 0, 0, 0, 0, 0],
    after={
        10: [
            *(0.033043, 0.003122, 0.131405, 0.070623, 0.075220, 0.307372),
            *(0.524530, 1.084444, 1.194474, 0.787494, 0.064043, 0.994946),
        ],
        30: [
            *(0.127069, 0.006870, -0.105127, 0.028237, -0.775483, 0.362455),
            *(0.276123, -0.768419, -1.745445, -1.160032, -3.989781, 5.686689),
        ],
    },
)
ANT = Reference(
    file="ant.xml",
    substeps=16,
    start=[0, 0, 0.75, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1],
    after={
        10: [
            *(0.018155, 0.011892, 0.608788, 0.991150, 0.016952, -0.062255, -0.116014),
            *(0.521037, 1.496101, 0.546842, -0.498829, 0.388137, -0.678179, 0.273698, 1.164209),
            *(0.205736, 0.077132, -1.582731, 0.078798, -0.550835, -0.419994),
            *(3.673055, 4.991784, 1.954464, 1.684789, -0.447322, -1.291805, -0.668173, 1.432992),
        ],
        30: [
            *(-0.002806, 0.153692, 0.508941, 0.975486, 0.037154, -0.107923, -0.188148),
            *(0.730080, 1.763337, 0.871031, -0.478028, 0.624321, -0.493032, 0.399636, 0.937449),
            *(-0.275267, 0.306849, -0.226858, 0.487772, 1.124369, -1.563254),
            *(-3.072501, 0.303738, 1.990804, -1.735140, 3.388128, -0.090162, 2.903147, -2.949744),
        ],
    },
)


@pytest.mark.parametrize(
    ("dtype", "steps", "tolerance"),
    [(torch.float64, 10, 1e-4), (torch.float64, 30, 1e-2), (torch.float32, 10, 1e-3)],
    ids=["float64-10", "float64-30", "float32-10"],
)
@pytest.mark.parametrize("reference", [CARTPOLE, HOPPER, ANT], ids=lambda reference: reference.file)
def test_reference_states(reference, dtype, steps, tolerance):
    model = load_model(ASSETS / reference.file)
    state = State(torch.tensor([reference.start], dtype=dtype), torch.zeros(1, model.num_dofs, dtype=dtype))
    for t in range(steps):
        action = 0.5 * torch.sin(0.1 * (t + 1) * torch.arange(1, model.num_controls + 1, dtype=dtype))
        state = step(model, state, action.unsqueeze(0), 1 / 60, reference.substeps)
    found = torch.cat([state.joint_q[0], state.joint_qd[0]]).double()
    expected = torch.tensor(reference.after[steps], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("reference", [CARTPOLE, HOPPER, ANT], ids=lambda reference: reference.file)
def test_reference_states_through_the_environment(reference):
    """float32, three digits after ten actions."""
    env = make_env(reference.file.removesuffix(".xml"), num_worlds=1, stochastic_start=False)
    env.reset()
    for t in range(10):
        env.step(0.5 * torch.sin(0.1 * (t + 1) * torch.arange(1.0, env.num_actions + 1)).unsqueeze(0))
    found = torch.cat([env.state.joint_q[0], env.state.joint_qd[0]])
    torch.testing.assert_close(found, torch.tensor(reference.after[10]), rtol=0, atol=1e-3)
