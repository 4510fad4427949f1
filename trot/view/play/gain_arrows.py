"""An arrow on every body, along which a push would raise the return most."""

from __future__ import annotations

import numpy as np
import viser

from trot.sim.model import Floats
from trot.view.browser.nodes import RobotScene
from trot.view.play.inertia import Inertia

GAIN_RGB = (150, 40, 190)


class GainArrows:
    """The longest is not quite as long as the robot is large; they hang on the bodies and move with them."""

    def __init__(self, scene: viser.SceneApi, robot: RobotScene, inertia: Inertia) -> None:
        self._length = 0.7 * robot.size
        self._names = [inertia.model.body(body).name or f"body_{body}" for body in inertia.bodies.tolist()]
        self._arrows = [
            scene.add_arrows(
                f"{robot.bodies[0][body].name}/gain", np.zeros((1, 2, 3)), GAIN_RGB, visible=False,
                shaft_radius=0.012 * robot.size, head_radius=0.03 * robot.size, head_length=0.06 * robot.size,
            )
            for body in inertia.bodies.tolist()
        ]  # fmt: skip

    def show(self, gains: Floats, inertia: Inertia) -> str:
        """Draw them for a robot at the pose of `inertia`; returns which is the longest, in words."""
        size = np.linalg.norm(gains, axis=1)
        largest = float(size.max())
        if not np.isfinite(largest) or largest == 0:
            self.hide()
            return "the return does not depend on the velocities"
        for body, arrow, gain in zip(inertia.bodies.tolist(), self._arrows, gains, strict=True):
            begin = inertia.centre(body)
            end = begin + self._length * gain / largest
            points = np.stack([inertia.to_body(body, begin), inertia.to_body(body, end)])
            arrow.points, arrow.visible = points[None].astype(np.float32), True
        return f"longest: {self._names[int(size.argmax())]}, return +{largest:.3g} per N s"

    def hide(self) -> None:
        for arrow in self._arrows:
            arrow.visible = False
