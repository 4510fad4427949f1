"""Accelerations against MuJoCo: the same for robots with every law, and a wrong mass is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trot.sim.accelerations import compare_accelerations
from trot.sim.load import load_model

ROBOTS = Path(__file__).parents[1] / "robots"


@pytest.mark.parametrize("robot", ["every_joint.xml", "every_law.xml", "every_pair.xml", "every_bond.xml"])
def test_robots_with_every_law_move_as_in_mujoco(robot: str) -> None:
    assert compare_accelerations(load_model(ROBOTS / robot)).relative < 1e-11


def test_muscles_move_as_in_mujoco() -> None:
    """With curves and activation, and as constant tensions."""
    robot = next((ROBOTS / "muscles").glob("*.xml"))
    for muscles in ("hill", "tension"):
        try:
            model = load_model(robot, muscles=muscles)
        except ValueError:
            # Tensions run straight.
            assert muscles == "tension"
            continue
        assert compare_accelerations(model).relative < 1e-11


def test_a_wrong_motor_is_found_and_its_dof_named() -> None:
    text = """
    <mujoco>
      <worldbody>
        <body><joint name="left" axis="0 1 0"/><geom pos="0.3 0 0" size="0.1"/></body>
        <body><joint name="right" axis="0 1 0"/><geom pos="0.3 0 0" size="0.1"/></body>
      </worldbody>
      <actuator><motor joint="left" gear="50"/><motor joint="right" gear="50"/></actuator>
    </mujoco>"""
    model = load_model(text)
    worst = compare_accelerations(replace(model, motor_gear=model.motor_gear * np.array([1, 1.01])))
    assert worst.dof == "right"
    assert 1e-4 < worst.relative < 2e-2
    assert abs(worst.ours / worst.theirs - 1) > 1e-4
