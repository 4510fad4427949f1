"""Where the bodies and the tendons of a robot are, by MuJoCo."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from trot.view.browser.geoms import Floats, Indices, shown_geoms

Numbers = NDArray[np.floating]

SITE, PULLEY = -1, -2
"""In MuJoCo's list of what a tendon passes; other numbers are geoms."""


@dataclass(frozen=True)
class Poses:
    """Where everything in one world is."""

    position: Floats
    """(bodies, 3)"""
    wxyz: Floats
    """(bodies, 4)"""
    segments: Floats
    """(segments, 2, 3) of the tendons from site to site, in the frame of the body that each begins on."""
    segment_body: Indices
    """(segments,)"""
    segment_tendon: Indices
    """(segments,)"""


class Kinematics:
    """Poses from coordinates."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.model, self._data = model, mujoco.MjData(model)
        sites = model.wrap_objid[model.wrap_type == int(mujoco.mjtWrap.mjWRAP_SITE)]
        self._site_body = model.site_bodyid[sites]

    def poses(self, joint_q: Numbers) -> Poses:
        model, data = self.model, self._data
        data.qpos[:] = joint_q
        mujoco.mj_kinematics(model, data)
        if model.ntendon:
            mujoco.mj_comPos(model, data)
            mujoco.mj_tendon(model, data)
        # Points along the paths, tendon after tendon; a pulley interrupts one.
        owner: Indices = np.repeat(np.arange(model.ntendon), data.ten_wrapnum)
        passed = data.wrap_obj.reshape(-1)[: len(owner)]
        # Around a geom there are two more, but not always: it is drawn from site to site.
        kept = np.flatnonzero((passed == SITE) | (passed == PULLEY))
        points = data.wrap_xpos.reshape(-1, 3)[kept]
        owner, passed = owner[kept], passed[kept]
        body: Indices = np.zeros(len(owner), np.int64)
        body[passed == SITE] = self._site_body
        apart = passed == PULLEY
        begin = np.flatnonzero((owner[1:] == owner[:-1]) & ~apart[1:] & ~apart[:-1])
        body, ends = body[begin], np.stack([points[begin], points[begin + 1]], axis=1)
        axes = data.xmat[body].reshape(-1, 3, 3)
        segments = np.einsum("sji,spj->spi", axes, ends - data.xpos[body][:, None])
        return Poses(data.xpos.copy(), data.xquat.copy(), segments, body, owner[begin])

    def position(self, body: int) -> Floats:
        """Of a body, at the coordinates that were last asked about."""
        return np.array(self._data.xpos[body])

    def to_body(self, body: int, points: Floats) -> Floats:
        """Points of the world, (points, 3), in the frame of a body at the coordinates that were last asked about."""
        return np.asarray((points - self._data.xpos[body]) @ self._data.xmat[body].reshape(3, 3), np.float64)

    def touched_bodies(self, points: Floats) -> Indices:
        """(points,) for each point on the robot's surface the body that it is on, by the boxes around its shapes."""
        geoms = self._moving_geoms()
        if not len(geoms):
            return np.zeros(len(points), np.int64)
        axes = self._data.geom_xmat[geoms].reshape(-1, 3, 3)
        inside = np.einsum("gji,pgj->pgi", axes, points[:, None] - self._data.geom_xpos[geoms])
        box = self.model.geom_aabb[geoms].reshape(-1, 2, 3)
        beyond = np.maximum(np.abs(inside - box[:, 0]) - box[:, 1], 0)
        bodies: Indices = self.model.geom_bodyid[geoms[np.linalg.norm(beyond, axis=2).argmin(axis=1)]].astype(np.int64)
        return bodies

    def _moving_geoms(self) -> Indices:
        """Those that can touch something; what is only there to collide is hidden, but among them."""
        return np.flatnonzero(self.model.body_weldid[self.model.geom_bodyid] > 0)

    def extent(self, joint_q: Numbers) -> tuple[Floats, Floats]:
        """The corners of a box around what moves, or around everything where nothing does."""
        self.poses(joint_q)
        model = self.model
        seen = np.array(shown_geoms(model), np.int64)
        moving = seen[model.body_weldid[model.geom_bodyid[seen]] > 0]
        shown = moving if len(moving) else seen
        if not len(shown):
            return np.full(3, -0.5), np.full(3, 0.5)
        center, radius = self._data.geom_xpos[shown], model.geom_rbound[shown, None]
        return (center - radius).min(axis=0), (center + radius).max(axis=0)
