"""Rotations in batches of many small worlds, where the number of operations matters and their size does not."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

AXES = ("x", "y", "z")


def frame(quaternion: Tensor, up_axis: str, forward_axis: str) -> tuple[Tensor, Tensor, Tensor]:
    """What unit quaternions w x y z do to the axes of a body.

    Returns the rotation matrix (worlds, 9), row by row; the world's z of the body's up axis (worlds, 1); and the
    world's x and y of its forward axis (worlds, 2). Each entry of a rotation matrix is quadratic in the quaternion,
    so all of them are one table times the sixteen products of its numbers.
    """
    products = (quaternion.unsqueeze(2) * quaternion.unsqueeze(1)).flatten(1)
    table = _frame_table(up_axis, forward_axis, quaternion.dtype, quaternion.device)
    # Not a matrix product: for one this small, the libraries' threads cost more than the numbers.
    entries = (products.unsqueeze(2) * table).sum(dim=1)
    matrix, up, forward = torch.split_with_sizes(entries, [9, 1, 2], dim=1)
    return matrix, up, forward


def rotate(matrix: Tensor, vector: Tensor) -> Tensor:
    """Body axes to world axes: a matrix (worlds, 9) times a vector (worlds, 3)."""
    return (matrix.view(-1, 3, 3) * vector.unsqueeze(1)).sum(dim=2)


def rotate_back(matrix: Tensor, vector: Tensor) -> Tensor:
    """World axes to body axes: the inverse of rotate()."""
    return (matrix.view(-1, 3, 3) * vector.unsqueeze(2)).sum(dim=1)


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """The quaternion that turns by `right` first and by `left` then."""
    w, x, y, z = left.unbind(dim=1)
    rows = torch.stack([w, -x, -y, -z, x, w, -z, y, y, z, w, -x, z, -y, x, w], dim=1).view(-1, 4, 4)
    return (rows * right.unsqueeze(1)).sum(dim=2)


@functools.cache
def _frame_table(up_axis: str, forward_axis: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(16, 12): what each product of two numbers of a quaternion adds to each entry of frame()."""
    rotation = _matrix_table().reshape(4, 4, 9)
    up, forward = AXES.index(up_axis), AXES.index(forward_axis)
    columns = [*range(9), 6 + up, forward, 3 + forward]
    return rotation[:, :, columns].reshape(16, 12).to(dtype=dtype, device=device)


def _matrix_table() -> Tensor:
    """(4, 4, 3, 3): the rotation matrix as a sum over pairs of the quaternion's numbers, w first."""
    table = torch.zeros(4, 4, 3, 3, dtype=torch.float64)
    w = 0
    for i in range(3):
        # Diagonal: w^2 + (own axis)^2 - (the other two)^2.
        table[w, w, i, i] = 1
        for axis in range(3):
            table[1 + axis, 1 + axis, i, i] = 1 if axis == i else -1
        # Off the diagonal: 2 (i j -+ w k), with the sign of the cross product.
        j, k = (i + 1) % 3, (i + 2) % 3
        table[1 + i, 1 + j, i, j] = table[1 + i, 1 + j, j, i] = 2
        table[w, 1 + k, i, j] = -2
        table[w, 1 + k, j, i] = 2
    return table
