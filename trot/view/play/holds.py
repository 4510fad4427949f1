"""What users hold with the mouse: bodies, each by a point, in as many pages as there are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import viser

from trot.sim.model import Floats
from trot.view.browser.nodes import RobotScene
from trot.view.browser.page_guard import Guard
from trot.view.play.inertia import Inertia
from trot.view.play.pushes import Pull


@dataclass
class Hold:
    """One page's."""

    body: int
    grasped: Floats
    """Where, in the scene."""
    pulled_to: Floats
    """In the scene: where the pointer is."""
    point: Floats | None = None
    """What was grasped, in the body's frame; known when the loop has looked."""


class Holds:
    """The server's thread notes drags here, and the loop asks for the pulls that they are."""

    def __init__(self, scene: RobotScene, guard: Guard) -> None:
        self._scene, self._holds = scene, dict[int, Hold]()
        moving = scene.model.body_weldid > 0
        for body, geom in scene.geoms:
            if moving[body]:
                geom.on_drag(self._dragging(body))
                guard.allow_drag(geom.name)

    def __bool__(self) -> bool:
        return bool(self._holds)

    def release(self) -> None:
        """Let go of everything."""
        self._holds.clear()

    def keep(self, pages: Collection[int]) -> None:
        """Let go of what others than these pages hold: one that is closed does not say so."""
        for page in list(self._holds):
            if page not in pages:
                self._holds.pop(page, None)

    def pulls(self, inertia: Inertia) -> list[Pull]:
        """With the robot as it is now. The scene moves against a robot that is followed; so does what a pointer means.

        Args:
            inertia: At the robot's pose.
        """
        # A copy at once: the server's thread may add to it meanwhile.
        return [self._pull(hold, inertia) for hold in list(self._holds.values())]

    def _pull(self, hold: Hold, inertia: Inertia) -> Pull:
        shift = np.array(self._scene.root.position) + self._scene.offset[0]
        if hold.point is None:
            hold.point = inertia.to_body(hold.body, hold.grasped - shift)
            # A page may say anything; what is grasped is on the robot.
            hold.point *= min(1.0, self._scene.size / max(float(np.linalg.norm(hold.point)), 1e-9))
        x, y, z = hold.point.tolist()
        to_x, to_y, to_z = (hold.pulled_to - shift).tolist()
        return Pull(hold.body, (x, y, z), (to_x, to_y, to_z))

    def _dragging(self, body: int) -> Any:
        async def dragged(event: viser.SceneNodeDragEvent[Any]) -> None:
            here = np.array(event.end_position)
            if event.phase == "end":
                self._holds.pop(event.client_id, None)
            elif event.phase == "start":
                self._holds[event.client_id] = Hold(body, np.array(event.start_position), here)
            elif event.client_id in self._holds:
                self._holds[event.client_id].pulled_to = here

        return dragged
