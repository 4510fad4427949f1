"""The forces that contact_forces() reports, against MuJoCo's kinematics and the contact law by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from contact_law import forces_by_hand
from manifold import lively_states
from numpy.testing import assert_allclose

from trot.sim.contact_forces import contact_forces
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.state import State

ASSETS = Path(__file__).parents[2] / "trot" / "envs" / "assets"
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
NUM_WORLDS = 40


def reported(model: Model, joint_q: np.ndarray, joint_qd: np.ndarray, dtype=torch.float64, device="cpu"):
    state = State(*(torch.tensor(part, dtype=dtype, device=device) for part in (joint_q, joint_qd)))
    return contact_forces(model, state)


@pytest.mark.parametrize("device", DEVICES)
def test_every_point_of_every_world(every_joint: Model, rng: np.random.Generator, device: str) -> None:
    joint_q, joint_qd = lively_states(every_joint, NUM_WORLDS, rng)
    found = reported(every_joint, joint_q, joint_qd, device=device)
    by_hand = [forces_by_hand(every_joint, q, qd) for q, qd in zip(joint_q, joint_qd, strict=True)]
    points, forces = (np.array(part) for part in zip(*by_hand, strict=True))
    assert_allclose(found.point.cpu(), points, rtol=0, atol=1e-9)
    assert_allclose(found.force.cpu(), forces, rtol=1e-9, atol=1e-9 * abs(forces).max())
    assert np.array_equal(found.touching.cpu(), forces[..., 2] > 0)
    assert 0.02 < found.touching.double().mean() < 0.98, "points in the air and on the ground were to be compared"


@pytest.mark.parametrize("robot", ["hopper", "ant", "humanoid"])
def test_robots_with_welded_bodies_and_planar_roots(robot: str, rng: np.random.Generator) -> None:
    model = load_model(ASSETS / f"{robot}.xml")
    joint_q, joint_qd = lively_states(model, NUM_WORLDS, rng)
    found = reported(model, joint_q, joint_qd)
    for world in range(NUM_WORLDS):
        points, forces = forces_by_hand(model, joint_q[world], joint_qd[world])
        assert_allclose(found.point[world], points, rtol=0, atol=1e-9)
        assert_allclose(found.force[world], forces, rtol=1e-9, atol=1e-9 * max(1, abs(forces).max()))


def test_in_the_precision_of_the_state(every_joint: Model, rng: np.random.Generator) -> None:
    joint_q, joint_qd = lively_states(every_joint, NUM_WORLDS, rng)
    exact, found = (reported(every_joint, joint_q, joint_qd, dtype) for dtype in (torch.float64, torch.float32))
    assert found.point.dtype == found.force.dtype == torch.float32
    assert_allclose(found.point, exact.point, atol=1e-5)
    assert_allclose(found.force, exact.force, atol=1e-3 * float(exact.force.abs().max()))


def test_nothing_pushes_without_ground_or_points(every_joint: Model, rng: np.random.Generator) -> None:
    joint_q, joint_qd = lively_states(every_joint, 3, rng)
    floating = reported(replace(every_joint, ground_height=None), joint_q, joint_qd)
    assert not floating.touching.any() and not floating.force.any()
    cartpole = load_model(ASSETS / "cartpole.xml")
    assert reported(cartpole, np.zeros((3, 2)), np.zeros((3, 2))).point.shape == (3, 0, 3)


def test_a_state_of_another_robot_is_refused(every_joint: Model) -> None:
    with pytest.raises(ValueError, match=r"joint_q is \(3, 2\) torch.float64 on cpu; the kernel reads \(3, "):
        reported(every_joint, np.zeros((3, 2)), np.zeros((3, 2)))


@pytest.mark.parametrize("device", DEVICES)
def test_pairs_of_shapes_come_after_the_points(rng: np.random.Generator, device: str) -> None:
    """Of a ball between a wall and the ground, by hand; of boxes on each other, the middle of four corners."""
    ball = load_model("""
    <mujoco>
      <worldbody>
        <geom type="plane" size="0 0 1"/>
        <geom type="plane" size="0 0 1" pos="1 0 0" euler="0 -90 0"/>
        <body><freejoint/><geom size="0.2" mass="1" user="1e4 0 0"/></body>
      </worldbody>
    </mujoco>""")
    pose = np.array([[0.83, 0.3, 0.19, 1, 0, 0, 0], [0.7, 0.3, 0.3, 1, 0, 0, 0]])
    found = reported(ball, pose, np.zeros((2, 6)), device=device)
    assert_allclose(found.point[0].cpu(), [[0.83, 0.3, -0.01], [1.03, 0.3, 0.19]], atol=1e-9)
    assert_allclose(found.force[0].cpu(), [[0, 0, 100], [-300, 0, 0]], atol=1e-9)
    assert found.touching.tolist() == [[True, True], [False, False]]

    cube = load_model("""
    <mujoco>
      <worldbody>
        <geom type="box" size="1 1 1"/>
        <body><freejoint/><geom type="box" size="0.1 0.2 0.1" mass="1" user="1e4 0 0"/></body>
      </worldbody>
    </mujoco>""")
    found = reported(cube, np.array([[0.4, 0.3, 1.095, 1, 0, 0, 0]]), np.zeros((1, 6)), device=device)
    pushed = found.touching[0].cpu()
    assert pushed.sum() == 1
    assert_allclose(found.point[0].cpu()[pushed], [[0.4, 0.3, 0.9975]], atol=1e-9)
    assert_allclose(abs(found.force[0].cpu()[pushed]), [[0, 0, 4 * 50]], atol=1e-9)
