"""Where things are on a page: the robot in the middle of what the panel leaves free, on a screen and on a phone."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import viser

from trot.view.browser.geoms import Floats

ABOVE_THE_PANEL = 0.28
"""How far above the middle the robot is shown on a phone, in heights of the screen: the panel covers the lower 60 %."""


def arrange(server: viser.ViserServer, camera: Callable[[], tuple[Floats, Floats]]) -> None:
    """Put the panel beside the robot, and the camera of pages that open where camera() says: position and target."""
    server.gui.main_panel.dock_right()
    server.initial_camera.position, server.initial_camera.look_at = camera()

    @server.on_client_connect
    async def on_connect(client: viser.ClientHandle) -> None:
        # Others are where the initial camera is, and one that comes back where its user turned it.
        if _is_tall(client):
            point(client, *camera())


def point(client: viser.ClientHandle, position: Floats, target: Floats) -> None:
    """Move the camera of a page there; of a phone, so that the robot is above the panel."""
    camera = client.camera
    if _is_tall(client):
        tallness = camera.image_height / max(camera.image_width, 1)
        position, target = phone_camera(position, target, tallness, camera.fov)
    # A camera that is where it should look, or told that nothing is up, cannot be turned: it stays.
    with contextlib.suppress(ValueError):
        camera.position, camera.look_at = position, target


def _is_tall(client: viser.ClientHandle) -> bool:
    return client.camera.image_width < client.camera.image_height


def phone_camera(position: Floats, target: Floats, tallness: float, fov: float) -> tuple[Floats, Floats]:
    """Position and target for a screen that is so many times taller than wide; fov is the angle of its height, rad."""
    away = (position - target) * min(tallness, 3.0)
    distance = math.sqrt(float(away @ away))
    below: Floats = target.copy()
    below[2] -= distance * math.tan(min(ABOVE_THE_PANEL * fov, 1.0))
    return target + away, below
