"""Folding of welded bodies: a body without joints becomes part of its nearest moving ancestor, or of the world."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from trot.sim.model import WORLD, Floats, Ints
from trot.sim.unsupported import disabled


def compose(pos1: Floats, quat1: Floats, pos2: Floats, quat2: Floats) -> tuple[Floats, Floats]:
    """Pose 2, given in frame 1, seen from the frame in which pose 1 is given."""
    pos, quat = np.zeros(3), np.zeros(4)
    mujoco.mju_mulPose(pos, quat, pos1, quat1, pos2, quat2)
    return pos, quat


def rotation(quat: Floats) -> Floats:
    """(3, 3) matrix of a unit quaternion w x y z."""
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, quat)
    return matrix.reshape(3, 3)


@dataclass(frozen=True)
class Welds:
    """Where each of MuJoCo's bodies went."""

    moving: Ints
    """(num_bodies,) MuJoCo's index of each Model body."""
    owner: Ints
    """(nbody,) the Model body that each of MuJoCo's bodies is part of, or WORLD."""
    pos: Floats
    """(nbody, 3) origin of each of MuJoCo's bodies in its owner's frame."""
    quat: Floats
    """(nbody, 4) orientation, likewise."""

    def place(self, body: int, pos: Floats, quat: Floats) -> tuple[Floats, Floats]:
        """A pose given in the frame of MuJoCo's body, seen from the body's owner."""
        return compose(self.pos[body], self.quat[body], pos, quat)

    def place_point(self, body: int, point: Floats) -> Floats:
        """A point given in the frame of MuJoCo's body, seen from the body's owner."""
        placed: Floats = self.pos[body] + rotation(self.quat[body]) @ point
        return placed


def fold_welds(compiled: mujoco.MjModel) -> Welds:
    """Assign every body to the moving body, or the world, that it is rigidly part of."""
    moving: list[int] = []
    owner = np.full(compiled.nbody, WORLD, np.int32)
    pos, quat = np.zeros((compiled.nbody, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (compiled.nbody, 1))
    for body in range(1, compiled.nbody):
        if compiled.body_jntnum[body] > 0:
            owner[body] = len(moving)
            moving.append(body)
            continue
        # MuJoCo numbers a parent before its children, so the parent's own entries are final here.
        parent = compiled.body_parentid[body]
        owner[body] = owner[parent]
        pos[body], quat[body] = compose(pos[parent], quat[parent], compiled.body_pos[body], compiled.body_quat[body])
    return Welds(np.array(moving, np.int32), owner, pos, quat)


def lifted_masses(compiled: mujoco.MjModel, welds: Welds) -> tuple[Floats, Floats]:
    """Mass (n,) whose weight gravcomp bears, and its centre (n, 3) in the frame of every Model body."""
    count = len(welds.moving)
    mass, moment = np.zeros(count), np.zeros((count, 3))
    if disabled(compiled, mujoco.mjtDisableBit.mjDSBL_SPRING) and disabled(
        compiled, mujoco.mjtDisableBit.mjDSBL_DAMPER
    ):
        # Without either, MuJoCo has no passive forces at all.
        return mass, moment
    if not compiled.ngravcomp:
        # MuJoCo counts the shares above 0, and where there is none, passes over those below.
        return mass, moment
    for body in np.flatnonzero((compiled.body_gravcomp != 0) & (welds.owner != WORLD)):
        lifted = compiled.body_gravcomp[body] * compiled.body_mass[body]
        mass[welds.owner[body]] += lifted
        moment[welds.owner[body]] += lifted * welds.place_point(int(body), compiled.body_ipos[body])
    # Shares of either sign may add up to nothing, and then have no centre.
    some = abs(mass) > 1e-9 * np.maximum(compiled.body_mass.sum(), 1e-300)
    return mass * some, np.where(some[:, None], moment / np.where(some, mass, 1.0)[:, None], 0.0)


def mass_properties(compiled: mujoco.MjModel, welds: Welds) -> tuple[Floats, Floats, Floats]:
    """Mass (n,), centre of mass (n, 3) and inertia about it (n, 3, 3) of every Model body, in its own frame."""
    count = len(welds.moving)
    mass, com, inertia = np.zeros(count), np.zeros((count, 3)), np.zeros((count, 3, 3))
    parts = [body for body in range(1, compiled.nbody) if welds.owner[body] != WORLD]
    poses = {body: welds.place(body, compiled.body_ipos[body], compiled.body_iquat[body]) for body in parts}

    for body, (centre, _) in poses.items():
        mass[welds.owner[body]] += compiled.body_mass[body]
        com[welds.owner[body]] += compiled.body_mass[body] * centre
    com /= np.maximum(mass, np.finfo(float).tiny)[:, None]

    for body, (centre, quat) in poses.items():
        axes, offset = rotation(quat), centre - com[welds.owner[body]]
        about_own_centre = axes * compiled.body_inertia[body] @ axes.T
        shift = compiled.body_mass[body] * (offset @ offset * np.eye(3) - np.outer(offset, offset))
        inertia[welds.owner[body]] += about_own_centre + shift
    return mass, com, inertia
