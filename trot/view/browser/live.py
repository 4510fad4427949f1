"""The viewer in the browser: a server on this machine alone, and the loop that plays a recorded motion."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import viser

from trot.view.browser.charts import Charts
from trot.view.browser.controls import SAMPLED, Controls
from trot.view.browser.nodes import ROOT, RobotScene
from trot.view.browser.page_guard import Guard
from trot.view.browser.page_layout import arrange, point
from trot.view.browser.plain_drawing import PLAIN_DRAWING
from trot.view.browser.serving import page_server, show_until_stopped
from trot.view.motion.force_arrows import contact_forces
from trot.view.motion.trajectory import Trajectory

FRAME_SECONDS = 1 / 60
IDLE_SECONDS = 0.05
PANEL_SECONDS = 0.1
"""Between updates of slider and charts, which cost more than the picture."""

HINT = "Scrub with the slider; the panel slows it down, draws contact forces, and records anew."


@dataclass(frozen=True)
class Rollout:
    """What the user can choose about a recording."""

    checkpoint: str = "best"
    worlds: int = 1
    stochastic: bool = False
    seed: int = 0


def serve(
    record: Callable[[Rollout], Trajectory],
    rollout: Rollout,
    *,
    title: str,
    checkpoints: Callable[[], list[str]] = list,
    can_record: bool = True,
    follow: bool = True,
    forces: bool = False,
    port: int | None = None,
    open_browser: bool = True,
) -> None:
    """Show what record() returns, until Ctrl-C.

    Args:
        record: Makes a motion; called again when the user asks for another one.
        rollout: The first one.
        title: Above the panel.
        checkpoints: Names to choose from, asked for anew with every recording, since a training may go on meanwhile.
        can_record: Whether another rollout can be asked for.
        follow: Keep the robot in the middle.
        forces: Show contact forces.
        port: 0 for any that is free; None for the usual one, or any where that is taken. Else one that is taken
            raises ValueError.
        open_browser: Show the page at once.
    """
    guard = Guard(PLAIN_DRAWING)
    with page_server(title, port, guard) as server:
        # Before anything is built on it: here a failure ends the command, later only a message tells of one.
        print(f"{title}: recording ...", flush=True)
        trajectory = record(rollout)
        controls = Controls(
            server,
            guard,
            checkpoints=checkpoints(),
            checkpoint=rollout.checkpoint,
            worlds=rollout.worlds,
            stochastic=rollout.stochastic,
            follow=follow,
            forces=forces,
            can_record=can_record,
        )
        viewer = Viewer(server, controls, trajectory, rollout, record, checkpoints)
        show_until_stopped(title, guard.address(server.get_port()), open_browser, HINT, viewer.tick)


class Viewer:
    """Plays one trajectory after another. Everything in the scene happens in the thread that calls tick()."""

    def __init__(
        self,
        server: viser.ViserServer,
        controls: Controls,
        trajectory: Trajectory,
        rollout: Rollout,
        record: Callable[[Rollout], Trajectory],
        checkpoints: Callable[[], list[str]],
    ) -> None:
        self._server, self._controls, self._record, self._checkpoints = server, controls, record, checkpoints
        self.trajectory, self.rollout = trajectory, rollout
        self._scene = self._new_scene()
        arrange(server, lambda: self._scene.camera())
        self._charts, self._charted_world = Charts(controls.charts, server.gui, trajectory), 0
        self._begin()
        self._last_tick, self._panel_due = time.monotonic(), 0.0

    def tick(self, now: float) -> float:
        """Do what is due, and return how many seconds there are until the next thing is."""
        elapsed, self._last_tick = now - self._last_tick, now
        controls = self._controls
        if controls.take_rollout_wanted():
            self._record_anew()
            self._last_tick = time.monotonic()
            return 0.0
        if not self._somebody_looks():
            return IDLE_SECONDS
        sought = controls.take_seek()
        if sought is not None:
            self._seconds = sought * self.trajectory.dt
        elif controls.playing:
            length = len(self.trajectory.begins) * self.trajectory.dt
            self._seconds = (self._seconds + elapsed * float(controls.speed.value)) % length
        # What was sought may belong to the motion before this one.
        frame = min(max(int(self._seconds / self.trajectory.dt + 1e-6), 0), len(self.trajectory.begins) - 1)
        redraw = controls.take_redraw_wanted()
        if redraw:
            self._panel_due = 0.0
        if redraw or frame != self.frame:
            self._draw(frame)
        if self._panel_frame != self.frame and now >= self._panel_due:
            self._draw_panel()
            self._panel_due = now + PANEL_SECONDS
        return FRAME_SECONDS if controls.playing else IDLE_SECONDS

    def _somebody_looks(self) -> bool:
        return bool(self._server.get_clients())

    def _draw(self, frame: int) -> None:
        self.frame = frame
        controls, trajectory = self._controls, self.trajectory
        world = self._chosen_world()
        if world != self._charted_world:
            self._load_charts(world)
        with self._server.atomic():
            joint_q, control = trajectory.joint_q[frame], trajectory.control[frame]
            forces = contact_forces(trajectory, frame) if controls.forces.value else []
            self._scene.show(joint_q, control, world if controls.follow.value else None, forces)

    def _draw_panel(self) -> None:
        self._panel_frame = self.frame
        if self._controls.playing:
            self._controls.frame.value = self.frame
        self._charts.show(self.frame)

    def _begin(self) -> None:
        """Play from the beginning."""
        self._controls.fit(self.trajectory)
        self._seconds, self._panel_frame = 0.0, -1
        self._draw(0)
        self._controls.tell(_summary(self.trajectory))

    def _new_scene(self) -> RobotScene:
        server = self._server
        server.scene.remove_by_name(ROOT)
        scene = RobotScene(server.scene, self.trajectory.model(), self.trajectory.joint_q[0])
        scene.spread(self.trajectory.joint_q)
        server.initial_camera.position, server.initial_camera.look_at = scene.camera()
        for client in server.get_clients().values():
            point(client, *scene.camera())
        return scene

    def _chosen_world(self) -> int:
        """Of this motion: the slider's value may be from one with more worlds."""
        worlds: int = self.trajectory.begins.shape[1]
        return min(int(self._controls.world.value), worlds - 1)

    def _load_charts(self, world: int) -> None:
        self._charts.load(self.trajectory, world)
        self._charted_world, self._panel_frame = world, -1

    def _record_anew(self) -> None:
        controls = self._controls
        controls.tell("recording ...")
        self.rollout = replace(
            self.rollout,
            checkpoint=str(controls.checkpoint.value),
            worlds=int(controls.worlds.value),
            stochastic=controls.actions.value == SAMPLED,
            seed=self.rollout.seed + 1,
        )
        try:
            names = self._checkpoints()
            if names and self.rollout.checkpoint not in names:
                raise FileNotFoundError(f"there is no checkpoint '{self.rollout.checkpoint}' any more")
            trajectory = self._record(self.rollout)
        except Exception as error:
            # A run may be removed, replaced or damaged while it is looked at; what was recorded can still be seen.
            kind = "" if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: "
            controls.tell(f"{kind}{error}")
            return
        if names:
            controls.checkpoint.options = names
        self.trajectory = trajectory
        if trajectory.begins.shape[1] != self._scene.num_worlds:
            self._scene = self._new_scene()
        else:
            self._scene.spread(trajectory.joint_q)
        self._begin()
        self._load_charts(self._chosen_world())
        controls.set_playing(True)


def _summary(trajectory: Trajectory) -> str:
    frames, worlds = trajectory.begins.shape
    starts = int(trajectory.begins.sum())
    seconds = (frames - 1) * trajectory.dt
    many = "1 world" if worlds == 1 else f"{worlds} worlds"
    return f"{seconds:.1f} s, {many}" + (f", {starts} episodes" if starts > worlds else "")
