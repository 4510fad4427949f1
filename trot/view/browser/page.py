"""A trajectory as one page that any browser plays, without a server or a network."""

from __future__ import annotations

import contextlib
import html
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import viser

from trot.atomic import check_destination, replacing
from trot.unpromised import start_viser
from trot.view.browser.nodes import RobotScene
from trot.view.browser.page_guard import LOOPBACK, Guard
from trot.view.browser.page_numbers import numbers
from trot.view.browser.plain_drawing import PLAIN_DRAWING
from trot.view.motion.force_arrows import contact_forces
from trot.view.motion.trajectory import Trajectory

CLIENT_TITLE = "<title>Viser</title>"


@contextlib.contextmanager
def quiet_server(port: int, guard: Guard | None = None) -> Iterator[viser.ViserServer]:
    """A viser server that prints nothing; port 0 takes any that is free.

    Only this machine reaches it, at the address that the guard knows; without a guard nobody does.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"a port is a number from 0 to 65535, not {port}")
    with contextlib.redirect_stdout(io.StringIO()):
        server = start_viser(LOOPBACK, port, (guard or Guard()).guarded)
    try:
        # viser takes the next one instead of a port that is taken, and says so nowhere.
        if port not in (0, server.get_port()):
            raise ValueError(f"port {port} is taken: choose another one with --port, or --port 0 for any that is free")
        yield server
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            server.stop()


def write_page(
    trajectory: Trajectory,
    path: str | os.PathLike[str],
    *,
    follow: int | None = 0,
    forces: bool = False,
    frame_done: Callable[[int], None] = lambda _: None,
) -> int:
    """Write the page, whole or not at all, and return its size in bytes; frame_done hears how many frames are in it."""
    path = Path(path)
    check_destination(path)
    content = page(trajectory, follow=follow, forces=forces, frame_done=frame_done).encode()
    with replacing(path) as file:
        file.write(content)
    return len(content)


def page(
    trajectory: Trajectory,
    *,
    follow: int | None = 0,
    forces: bool = False,
    frame_done: Callable[[int], None] = lambda _: None,
) -> str:
    """The page's text. It plays at the trajectory's own speed and begins again at the end."""
    frames = len(trajectory.begins)
    # The serializer records what a server would send; no browser ever connects to this one.
    with quiet_server(port=0) as server:
        scene = RobotScene(server.scene, trajectory.model(), trajectory.joint_q[0])
        scene.spread(trajectory.joint_q)
        server.initial_camera.position, server.initial_camera.look_at = scene.camera()
        serializer = None
        for frame in range(frames):
            pushes = contact_forces(trajectory, frame) if forces else []
            scene.show(trajectory.joint_q[frame], trajectory.control[frame], follow, pushes)
            # It begins with what is there by now, frame 0.
            serializer = serializer or server.get_scene_serializer()
            serializer.insert_sleep(trajectory.dt)
            frame_done(frame + 1)
        assert serializer is not None
        text: str = serializer.as_html()
    text = text.replace(CLIENT_TITLE, f"<title>trot: {html.escape(trajectory.task)}</title>", 1)
    text = text.replace("<head>", f"<head><script>{PLAIN_DRAWING}</script>", 1)
    # The last one: those before it may stand inside the recording.
    before, end, after = text.rpartition("</body>")
    return before + numbers(trajectory, follow or 0) + end + after
