"""Moving along the joint coordinates: where a joint turns freely they are unit quaternions, not plain numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from trot.sim.capturing import capturing
from trot.sim.model import JointType, Model

UNIT_SQUARE = 1e-5
"""A quaternion whose square is this near to 1 is a unit quaternion, rounded to single precision."""
SQUARES = (1e-12, 1e12)
"""One whose square lies outside of this is no rotation."""


def retract(model: Model, joint_q: Tensor, tangent: Tensor) -> Tensor:
    """joint_q moved by a tangent of one number per dof: q <- q exp(r / 2) for a rotation r in the body's own axes."""
    moved = list(joint_q.unbind(dim=-1))
    for kind, q, dof in zip(model.joint_type, model.joint_q_start, model.joint_dof_start, strict=True):
        plain = JointType(kind).num_plain
        for k in range(plain):
            moved[q + k] = moved[q + k] + tangent[..., dof + k]
        if JointType(kind).has_quaternion:
            first = q + plain
            turned = _turn(torch.stack(moved[first : first + 4], dim=-1), tangent[..., dof + plain : dof + plain + 3])
            moved[first : first + 4] = turned.unbind(dim=-1)
    return torch.stack(moved, dim=-1)


def _turn(quat: Tensor, rotation: Tensor) -> Tensor:
    """The unit quaternion quat exp(rotation / 2)."""
    half = rotation / 2
    angle = half.norm(dim=-1, keepdim=True)
    w, v = torch.cos(angle), half * torch.sinc(angle / torch.pi)
    quat_w, quat_v = quat[..., :1], quat[..., 1:]
    turned_w = quat_w * w - (quat_v * v).sum(dim=-1, keepdim=True)
    turned_v = quat_w * v + w * quat_v + torch.linalg.cross(quat_v, v)
    return torch.cat([turned_w, turned_v], dim=-1)


def tangent_gradient(model: Model, joint_q: Tensor, gradient: Tensor) -> Tensor:
    """The gradient by a tangent (as retract() applies it) from the gradient by joint_q's own numbers."""
    tangent = torch.zeros(*joint_q.shape[:-1], model.num_dofs, dtype=joint_q.dtype, device=joint_q.device)
    with torch.enable_grad():
        tangent.requires_grad_()
        moved = retract(model, joint_q.detach(), tangent)
        (result,) = torch.autograd.grad(moved, tangent, gradient)
    return result


def quaternion_columns(model: Model) -> list[slice]:
    """Where in joint_q the quaternions are."""
    firsts = [
        int(first) + JointType(kind).num_plain
        for kind, first in zip(model.joint_type, model.joint_q_start, strict=True)
        if JointType(kind).has_quaternion
    ]
    return [slice(first, first + 4) for first in firsts]


def with_unit_quaternions(model: Model, joint_q: Tensor) -> Tensor:
    """joint_q, (rows, num_q), with every quaternion scaled to length 1; those that are so already stay to the bit.

    Raises ValueError for a quaternion of zeros. NaN stays, for whoever looks out for worlds that blow up.
    """
    columns = quaternion_columns(model)
    if not columns:
        return joint_q
    square = torch.stack([joint_q[:, column].square().sum(dim=1) for column in columns], dim=1)
    off = (square - 1).abs() > UNIT_SQUARE
    # While a graph is captured nobody can look: there a quaternion of zeros becomes NaN, which blows up and is told.
    if not capturing(joint_q.device):
        if not bool(off.any()):
            return joint_q
        _refuse_no_rotation(joint_q, square, columns)
    parts = list(joint_q.unbind(dim=1))
    for k, column in enumerate(columns):
        scale = torch.where(off[:, k], square[:, k].rsqrt(), torch.ones_like(square[:, k]))
        parts[column] = [part * scale for part in parts[column]]
    return torch.stack(parts, dim=1)


def _refuse_no_rotation(joint_q: Tensor, square: Tensor, columns: list[slice]) -> None:
    smallest, largest = SQUARES
    bad = (square < smallest) | (square > largest)
    if bool(bad.any()):
        row, k = (int(i) for i in bad.nonzero()[0])
        found = joint_q[row, columns[k]].tolist()
        raise ValueError(
            f"joint_q[{row}, {columns[k].start}:{columns[k].stop}] is {found}, which is no rotation; give a unit "
            "quaternion w x y z"
        )
