"""The environments' rotations against MuJoCo's own."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from closed_forms import rotation, times, turn
from numpy.testing import assert_allclose
from torch.autograd import gradcheck

from trot.envs.rotation import AXES, frame, multiply, rotate, rotate_back

COUNT = 200


@pytest.fixture
def quaternions(rng) -> np.ndarray:
    """All over the sphere, and the half turns where entries of the matrix change sign."""
    drawn = rng.normal(size=(COUNT, 4))
    return np.concatenate([drawn / np.linalg.norm(drawn, axis=1, keepdims=True), np.eye(4), -np.eye(4)])


def turned(vector: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
    result = np.zeros(3)
    mujoco.mju_rotVecQuat(result, vector, quaternion)
    return result


def conjugate(quaternion: np.ndarray) -> np.ndarray:
    result = np.zeros(4)
    mujoco.mju_negQuat(result, quaternion)
    return result


def test_frame_is_the_matrix_of_mujoco(quaternions):
    matrix, _, _ = frame(torch.tensor(quaternions), "z", "x")
    assert_allclose(matrix, [rotation(quaternion).ravel() for quaternion in quaternions], atol=1e-14)


@pytest.mark.parametrize("up_axis", AXES)
@pytest.mark.parametrize("forward_axis", AXES)
def test_frame_gives_the_height_of_up_and_the_ground_track_of_forward(quaternions, up_axis, forward_axis):
    _, up, forward = frame(torch.tensor(quaternions), up_axis, forward_axis)
    body_up, body_forward = np.eye(3)[AXES.index(up_axis)], np.eye(3)[AXES.index(forward_axis)]
    assert_allclose(up, [turned(body_up, quaternion)[2:] for quaternion in quaternions], atol=1e-14)
    assert_allclose(forward, [turned(body_forward, quaternion)[:2] for quaternion in quaternions], atol=1e-14)


def test_frame_of_a_known_turn():
    """30 degrees about z, then 20 about the body's own x: x stays level, z leans towards the body's -y."""
    quaternion = times(turn("z", np.radians(30)), turn("x", np.radians(20)))
    _, up, forward = frame(torch.tensor(quaternion).unsqueeze(0), "z", "x")
    assert_allclose(up, [[np.cos(np.radians(20))]], atol=1e-15)
    assert_allclose(forward, [[np.sqrt(3) / 2, 0.5]], atol=1e-15)


def test_rotate_goes_to_world_axes_and_rotate_back_to_body_axes(quaternions, rng):
    vectors = rng.normal(size=(len(quaternions), 3))
    matrix, _, _ = frame(torch.tensor(quaternions), "z", "x")
    pairs = list(zip(vectors, quaternions, strict=True))
    to_world = rotate(matrix, torch.tensor(vectors))
    to_body = rotate_back(matrix, torch.tensor(vectors))
    assert_allclose(to_world, [turned(vector, quaternion) for vector, quaternion in pairs], atol=1e-14)
    assert_allclose(to_body, [turned(vector, conjugate(quaternion)) for vector, quaternion in pairs], atol=1e-14)
    assert_allclose(rotate_back(matrix, to_world), vectors, atol=1e-14)


def test_multiply_is_the_product_of_mujoco(rng):
    """Of any quaternions, unit or not."""
    left, right = rng.normal(size=(2, COUNT, 4))
    expected = [times(a, b) for a, b in zip(left, right, strict=True)]
    assert_allclose(multiply(torch.tensor(left), torch.tensor(right)), expected, atol=1e-13)


def test_multiply_turns_by_the_right_one_first():
    """A quarter about x brings y to z, where a quarter about z leaves it."""
    about_z, about_x = (torch.tensor(turn(axis, np.pi / 2)).unsqueeze(0) for axis in "zx")
    product = multiply(about_z, about_x)
    assert_allclose(turned(np.array([0.0, 1, 0]), product[0].numpy()), [0, 0, 1], atol=1e-15)


def test_float32_stays_float32(quaternions):
    single = torch.tensor(quaternions, dtype=torch.float32)
    matrix, up, forward = frame(single, "y", "z")
    expected, _, _ = frame(torch.tensor(quaternions), "y", "z")
    assert {part.dtype for part in (matrix, up, forward, multiply(single, single))} == {torch.float32}
    assert_allclose(matrix, expected, atol=1e-6)


def test_derivatives(rng):
    left, right = (torch.tensor(rng.normal(size=(3, 4)), requires_grad=True) for _ in range(2))
    vector = torch.tensor(rng.normal(size=(3, 3)), requires_grad=True)

    def everything(left, right, vector):
        matrix, up, forward = frame(multiply(left, right), "y", "z")
        return torch.cat([matrix, up, forward, rotate(matrix, vector), rotate_back(matrix, vector)], dim=1)

    assert gradcheck(everything, (left, right, vector), atol=1e-7, rtol=1e-6)
