"""Rotations of many worlds at once, as unit quaternions w x y z, one row each."""

from __future__ import annotations

import torch
from torch import Tensor


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """The quaternion that turns by `right` first and by `left` then."""
    w, x, y, z = left.unbind(dim=1)
    rows = torch.stack([w, -x, -y, -z, x, w, -z, y, y, z, w, -x, z, -y, x, w], dim=1).view(-1, 4, 4)
    return (rows * right.unsqueeze(1)).sum(dim=2)


def rotate_back(quaternion: Tensor, vector: Tensor) -> Tensor:
    """World axes to the axes of a body that is turned so."""
    w, axis = quaternion[:, :1], quaternion[:, 1:]
    twice: Tensor = 2 * torch.linalg.cross(axis, vector)
    back: Tensor = vector - w * twice + torch.linalg.cross(axis, twice)
    return back
