"""The environments' rotations against MuJoCo's own."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from closed_forms import times, turn
from numpy.testing import assert_allclose

from trot.envs.rotation import multiply, rotate_back

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


def test_rotate_back_goes_to_body_axes(quaternions, rng):
    vectors = rng.normal(size=(len(quaternions), 3))
    found = rotate_back(torch.tensor(quaternions), torch.tensor(vectors))
    pairs = zip(vectors, quaternions, strict=True)
    assert_allclose(found, [turned(vector, conjugate(quaternion)) for vector, quaternion in pairs], atol=1e-14)


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
    vector = single[:, :3]
    assert multiply(single, single).dtype == rotate_back(single, vector).dtype == torch.float32
    expected = rotate_back(torch.tensor(quaternions), torch.tensor(quaternions)[:, :3])
    assert_allclose(rotate_back(single, vector), expected, atol=1e-6)
