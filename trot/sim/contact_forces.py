"""The contact forces on a robot, point by point and pair by pair: for whoever wants to see them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trot.sim.build import Variant
from trot.sim.launch import launcher
from trot.sim.model import Model
from trot.sim.programs import REPORT_CONTACTS
from trot.sim.state import State


class ContactForces(NamedTuple):
    """Of every contact point of the model, then of every pair of shapes, in every world; world axes."""

    point: Tensor
    """(num_worlds, num_points + num_pairs, 3) where it touches, or would, m; the middle where a pair touches twice."""
    force: Tensor
    """(likewise) of the ground on the point, or on the pair's first body, N; zero where it does not touch."""
    touching: Tensor
    """(num_worlds, num_points + num_pairs) whether it is pushed."""


@torch.no_grad()
def contact_forces(model: Model, state: State) -> ContactForces:
    """The forces that a step from this state begins with, by the law of kernels/contact.h.

    They come in the state's precision and without gradients. The kernel is compiled when this is first called.
    """
    joint_q, joint_qd = state.joint_q.contiguous(), state.joint_qd.contiguous()
    worlds, contacts = state.num_worlds, model.num_points + model.num_pairs
    point, force = joint_q.new_zeros(2, worlds, contacts, 3)
    if contacts:
        run = launcher(model, Variant(joint_q.dtype), joint_q.device, (REPORT_CONTACTS,))
        tensors = {"joint_q": joint_q, "joint_qd": joint_qd, "point": point, "force": force}
        sizes: dict[str, float] = {"num_worlds": worlds, "num_contacts": contacts, "axes": 3}
        run.launch(REPORT_CONTACTS, sizes, tensors, run.num_blocks(worlds), substeps=1)
    return ContactForces(point, force, (force != 0).any(dim=-1))
