"""What the tables of the kernels are made from: dofs with their chains, and lists grouped by their owner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trot.sim.model import WORLD, JointType, Model

TURN, SLIDE, WORLD_SLIDE = 0, 1, 2
"""How a dof's axis moves a body: it turns, slides along an axis that its parent carries, or along a world axis."""

UNBOUNDED = 1e30
"""Stands for an infinite limit: finite, so that no kernel ever meets infinity minus infinity."""

Integers = NDArray[np.int32] | NDArray[np.int64]


def starts(counts: Integers) -> NDArray[np.int32]:
    """Running sum with a leading zero: element i of a grouped list begins at result[i]."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def grouped(owner: Integers, num_groups: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Items sorted by owner, and where each owner's items start."""
    counts = np.bincount(owner, minlength=num_groups) if len(owner) else np.zeros(num_groups, np.int64)
    return np.argsort(owner, kind="stable").astype(np.int32), starts(counts)


def finite(limits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Limits with UNBOUNDED in place of infinity."""
    return np.clip(limits, -UNBOUNDED, UNBOUNDED)


@dataclass(frozen=True)
class Dofs:
    """What each dof needs to know about its joint and its place in the tree."""

    body: NDArray[np.int32]
    joint: NDArray[np.int32]
    kind: NDArray[np.int32]
    q: NDArray[np.int32]
    is_simple: NDArray[np.int32]
    joint_start: NDArray[np.int32]
    joint_end: NDArray[np.int32]
    body_start: NDArray[np.int32]
    body_end: NDArray[np.int32]
    chain: list[list[int]]
    subtree_end: NDArray[np.int32]


def dofs_of(model: Model) -> Dofs:
    """Work out the dofs of a model."""
    num_dofs = model.num_dofs
    ends = [*model.joint_dof_start[1:], num_dofs]
    joint = np.zeros(num_dofs, np.int32)
    kind = np.full(num_dofs, TURN, np.int32)
    q = np.full(num_dofs, -1, np.int32)
    for j, (start, end) in enumerate(zip(model.joint_dof_start, ends, strict=True)):
        joint[start:end] = j
        kind_of_joint, q_start = JointType(model.joint_type[j]), model.joint_q_start[j]
        if kind_of_joint in (JointType.HINGE, JointType.SLIDE):
            q[start] = q_start
            kind[start] = SLIDE if kind_of_joint == JointType.SLIDE else TURN
        elif kind_of_joint == JointType.FREE:
            q[start : start + 3] = q_start + np.arange(3)
            kind[start : start + 3] = WORLD_SLIDE
    body = model.joint_body[joint]
    body_start = np.searchsorted(body, np.arange(model.num_bodies)).astype(np.int32)
    body_end = np.searchsorted(body, np.arange(model.num_bodies), side="right").astype(np.int32)
    chain: list[list[int]] = []
    for dof in range(num_dofs):
        parent = model.body_parent[body[dof]]
        inner = [] if parent == WORLD else chain[body_end[parent] - 1]
        chain.append(inner + list(range(body_start[body[dof]], dof + 1)))
    subtree_end = np.arange(1, num_dofs + 1, dtype=np.int32)
    for dof in range(num_dofs):
        subtree_end[chain[dof]] = dof + 1  # depth-first order: the last dof that names it as ancestor
    simple = np.isin(model.joint_type[joint], (JointType.HINGE, JointType.SLIDE)).astype(np.int32)
    return Dofs(
        body, joint, kind, q, simple, model.joint_dof_start[joint], np.array(ends, np.int32)[joint],
        body_start, body_end, chain, subtree_end,
    )  # fmt: skip
