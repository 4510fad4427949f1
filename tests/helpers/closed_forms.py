"""What closed forms of mechanics are written in: rotations as quaternions, and elliptic integrals."""

from __future__ import annotations

import mujoco
import numpy as np

UPRIGHT = (1, 0, 0, 0)


def rotation(quat: np.ndarray) -> np.ndarray:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quat, float))
    return matrix.reshape(3, 3)


def turn(axis: str, angle: float) -> np.ndarray:
    """Quaternion of a rotation about a coordinate axis."""
    quat = np.zeros(4)
    quat[0], quat[1 + "xyz".index(axis)] = np.cos(angle / 2), np.sin(angle / 2)
    return quat


def times(*quats: np.ndarray) -> np.ndarray:
    result = np.array([1.0, 0, 0, 0])
    for quat in quats:
        product = np.zeros(4)
        mujoco.mju_mulQuat(product, result, quat)
        result = product
    return result


def agm(a: float, b: float) -> float:
    """Arithmetic-geometric mean. That of 1 and sqrt(1 - k^2) is pi / 2 over the complete elliptic integral K(k)."""
    while abs(a - b) > 1e-15 * a:
        a, b = (a + b) / 2, np.sqrt(a * b)
    return a
