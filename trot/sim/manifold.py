"""Moving along the joint coordinates: where a joint turns freely they are unit quaternions, not plain numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from trot.sim.model import JointType, Model


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
