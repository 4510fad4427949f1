"""Where things are on a page: the robot in the middle of what the panel leaves free, on a screen and on a phone."""

from __future__ import annotations

import contextlib
import math

import viser

from trot.sim.model import Floats

ABOVE_THE_PANEL = 0.28
"""How far above the middle the robot is shown on a phone, in heights of the screen: the panel covers the lower 60 %."""


def arrange(server: viser.ViserServer, position: Floats, target: Floats) -> None:
    """Put the panel beside the robot, and the camera where it sees the robot from, in every page that opens."""
    server.gui.main_panel.dock_right()
    server.initial_camera.position, server.initial_camera.look_at = position, target

    @server.on_client_connect
    async def on_connect(client: viser.ClientHandle) -> None:
        camera = client.camera
        if camera.image_width < camera.image_height:
            # A camera that is where it should look cannot be turned: it stays.
            with contextlib.suppress(ValueError):
                camera.position, camera.look_at = phone_camera(
                    position, target, camera.image_height / max(camera.image_width, 1), camera.fov
                )


def phone_camera(position: Floats, target: Floats, tallness: float, fov: float) -> tuple[Floats, Floats]:
    """Position and target for a screen that is so many times taller than wide; fov is the angle of its height, rad."""
    away = (position - target) * min(tallness, 3.0)
    distance = math.sqrt(float(away @ away))
    below: Floats = target.copy()
    below[2] -= distance * math.tan(min(ABOVE_THE_PANEL * fov, 1.0))
    return target + away, below
