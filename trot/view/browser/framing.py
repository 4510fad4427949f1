"""What a picture of a motion has to hold: the lanes of its worlds, and a box around all that its robots do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trot.view.browser.geoms import Floats
from trot.view.browser.poses import Kinematics, Numbers

MOST_POSES = 4000
"""That are looked at: a second or less of work."""


@dataclass(frozen=True)
class Framing:
    """Of a motion of several worlds."""

    low: Floats
    high: Floats
    """(3,) corners of a box around what any robot does, seen from the place where a followed one is kept."""
    lanes: Floats
    """(worlds, 2) how far each world's robots reach to the right and to the left, in y."""


def survey(kinematics: Kinematics, joint_q: Numbers, leader: int | None) -> Framing:
    """Look at a motion, (frames, worlds, num_q), whose picture goes along with the body `leader`, if there is one."""
    frames, worlds, _ = joint_q.shape
    # The first and the last are among them.
    some = np.unique(np.linspace(0, frames - 1, max(2, MOST_POSES // worlds)).round().astype(int))
    low, high = np.full((worlds, 3), np.inf), np.full((worlds, 3), -np.inf)
    lanes = np.stack([np.full(worlds, np.inf), np.full(worlds, -np.inf)], axis=1)
    for frame in some:
        for world in range(worlds):
            least, most = kinematics.extent(joint_q[frame, world])
            lanes[world] = min(lanes[world, 0], least[1]), max(lanes[world, 1], most[1])
            if leader is not None:
                # Height stays, as it does in the picture.
                place = kinematics.position(leader) * [1, 1, 0]
                least, most = least - place, most - place
            low[world], high[world] = np.minimum(low[world], least), np.maximum(high[world], most)
    return Framing(low.min(axis=0), high.max(axis=0), lanes)


def lane_offsets(lanes: Floats, gap: float) -> Floats:
    """(worlds,) how far to move each world in y, so that they lie side by side without touching, around the middle."""
    widths = lanes[:, 1] - lanes[:, 0] + gap
    begins = np.concatenate([[0.0], np.cumsum(widths)[:-1]])
    # The row's middle is where a single world's start would be.
    offsets = begins - lanes[:, 0]
    centred: Floats = offsets - (offsets[0] + offsets[-1]) / 2
    return centred
