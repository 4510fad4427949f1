"""The loop of `trot play`: it lets a world live in real time, and shows it to every page that looks."""

from __future__ import annotations

import time
from collections.abc import Callable

import mujoco
import numpy as np
import viser

from trot.learn.torch_threads import one_torch_thread
from trot.sim.model import Floats
from trot.view.browser.framing import survey
from trot.view.browser.nodes import RobotScene
from trot.view.browser.page_guard import Guard
from trot.view.browser.page_layout import arrange
from trot.view.browser.plain_drawing import PLAIN_DRAWING
from trot.view.browser.serving import page_server, show_until_stopped
from trot.view.play.arrow_keys import ARROW_KEYS
from trot.view.play.gain_arrows import GainArrows
from trot.view.play.holds import Holds
from trot.view.play.live_charts import LiveCharts
from trot.view.play.living import Living
from trot.view.play.play_controls import PlayControls
from trot.view.play.push_gains import push_gains
from trot.view.play.run_watch import LearningCurve, RunWatch

FRAME_SECONDS = 1 / 60
WATCHED_FRAME_SECONDS = 1 / 15
"""Beside a training, which has better use for the processor."""
IDLE_SECONDS = 0.05
PANEL_SECONDS = 0.1
"""Between updates of numbers and charts, which cost more than the picture."""
GRADIENT_SECONDS = 0.25
MOST_BEHIND = 0.1
"""Seconds that the world makes up for after a delay; a machine that is too slow shows slow motion."""
SURVEY_SECONDS, SURVEY_STARTS, SURVEY_STRIDE = 4.0, 16, 4
"""Of the motions that the camera is to hold; of their steps, every so many are looked at."""
MOST_STARTS = 0.9
"""Share of the starts whose motion the picture holds to each side: one that strays would make all others small."""

HINT = "Drag the robot with the mouse; the panel pushes it, changes its world, and draws the gradient."
KEYS = "The arrow keys steer it."


def serve_play(
    living: Living, *, title: str, about: str, follow: bool, port: int | None, open_browser: bool,
    watch: RunWatch | None = None, shown: Callable[[], object] = lambda: None,
) -> None:  # fmt: skip
    """Let the world live in the browser, until Ctrl-C.

    Args:
        living: The world.
        title: Above the panel.
        about: Who acts in it.
        follow: Keep the robot in the middle.
        port: 0 for any that is free; None for the usual one, or any where that is taken. Else one that is taken
            raises ValueError.
        open_browser: Show the page at once.
        watch: A run that learns: its newest policy acts, at fewer pictures per second.
        shown: Called when the page can be opened.
    """
    steered = any(command.arrows for command in living.env.task.commands)
    guard = Guard(PLAIN_DRAWING + (ARROW_KEYS if steered else ""))
    with page_server(title, port, guard) as server, one_torch_thread():
        player = Player(server, guard, living, about, follow, watch)
        hint = f"{HINT} {KEYS}" if steered else HINT
        show_until_stopped(title, guard.address(server.get_port()), open_browser, hint, player.tick, shown)


class Player:
    """Everything in the world and in the scene happens in the thread that calls tick()."""

    def __init__(
        self, server: viser.ViserServer, guard: Guard, living: Living, about: str, follow: bool,
        watch: RunWatch | None = None,
    ) -> None:  # fmt: skip
        self._server, self._living, self._about, self._watch = server, living, about, watch
        model = living.robot.source
        self._scene = RobotScene(server.scene, model, living.joint_q[None])
        self._arrows = GainArrows(server.scene, self._scene, living.inertia)
        self._holds = Holds(self._scene, guard)
        self.controls = PlayControls(
            server, guard, agents=list(living.acts), agent=living.kind, directions=living.directions,
            pushed=living.pushed_name, follow=follow, commands=living.env.task.commands,
            learning=watch is not None,
        )  # fmt: skip
        self._charts = LiveCharts(self.controls.charts, server.gui)
        self._curve = None if watch is None else LearningCurve(self.controls.learning, server.gui)
        camera = self._scene.camera(usual_box(self._scene, living.foreseen(SURVEY_SECONDS, SURVEY_STARTS)))
        arrange(server, lambda: camera)
        self._owed, self._last_tick = 0.0, time.monotonic()
        self._panel_due, self._gradient_due = 0.0, 0.0
        self._gradient_at: object = None
        self._rate = _Rate()
        self._picture: object = None
        self._draw(1.0)
        self._draw_panel()

    def tick(self, now: float) -> float:
        """Do what is due, and return how many seconds there are until the next thing is."""
        elapsed, self._last_tick = now - self._last_tick, now
        pages = self._server.get_clients()
        self._holds.keep(pages)
        if not pages:
            self._rate = _Rate()
            return IDLE_SECONDS
        controls, living = self.controls, self._living
        self._look_at_the_run(now)
        living.kind = str(controls.agent.value)
        living.change(controls.factors)
        living.steer(controls.steering.values)
        for what, direction in controls.take_wishes():
            if what == "push":
                living.push(direction, float(controls.strength.value))
            elif what == "reset":
                self._holds.release()
                living.reset()
            else:
                self._step()
        if controls.playing:
            self._rate.note(now, self._live(elapsed) * living.dt)
        else:
            self._rate = _Rate()
        self._draw(self._owed / living.dt if controls.playing else 1.0)
        self._update_gradient(now)
        if now >= self._panel_due:
            self._panel_due = now + PANEL_SECONDS
            self._draw_panel()
        if not controls.playing:
            return IDLE_SECONDS
        return FRAME_SECONDS if self._watch is None else WATCHED_FRAME_SECONDS

    def _look_at_the_run(self, now: float) -> None:
        """Let its newest policy act, and draw its returns."""
        news = None if self._watch is None else self._watch.look(now)
        if news is None or self._curve is None:
            return
        self._about = news.about
        self._curve.show(news)
        if news.agent is not None:
            self._living.take_policy(news.agent)

    def _live(self, elapsed: float) -> int:
        """Make the steps that are due; returns how many."""
        speed, dt = float(self.controls.speed.value), self._living.dt
        self._owed = min(self._owed + elapsed * speed, MOST_BEHIND * speed + dt)
        # A millionth of a step is rounding.
        steps = int(self._owed / dt + 1e-6)
        for _ in range(steps):
            self._step()
        self._owed = max(0.0, self._owed - steps * dt)
        return steps

    def _step(self) -> None:
        living = self._living
        living.step(self._holds.pulls(living.inertia.at(living.joint_q)) if self._holds else ())

    def _draw(self, share: float) -> None:
        """The robot at this share of the way through its last step: in slow motion there are pictures between steps."""
        living, follow = self._living, 0 if self.controls.follow.value else None
        picture = (living.steps, living.episodes, share, follow)
        if picture == self._picture:
            return
        self._picture = picture
        shown = between(living.robot.source, living.before, living.joint_q, share)
        with self._server.atomic():
            self._scene.show(shown[None], living.control[None], follow)

    def _draw_panel(self) -> None:
        living, episode = self._living, self._living.episode
        rows = [("time", f"{living.seconds:.1f} s"), ("return", f"{episode.total:.1f}")]
        rows += [(f"  {name}", f"{value:.3f}") for name, value in episode.terms.items()]
        if living.ended is not None:
            ended = living.ended
            rows.append((f"episode {living.episodes - 1} {ended.how}", f"{ended.total:.1f}, {ended.seconds:.1f} s"))
        rows.append(("pictures per second", self._rate.text() if self.controls.playing else "paused"))
        self.controls.tell(self._about if living.kind == "policy" else f"{living.kind} actions", rows)
        self._charts.show(living.history)

    def _update_gradient(self, now: float) -> None:
        controls, living = self.controls, self._living
        if not controls.gradient.value:
            if self._gradient_at is not None:
                self._arrows.hide()
                controls.tell_gradient("")
                self._gradient_at = None
            return
        # All that it depends on: a world that stands still is pushed, changed and reset all the same.
        at = (living.steps, living.episodes, living.joint_qd.tobytes(), living.act, living.factors, living.commands)
        if at == self._gradient_at or now < self._gradient_due:
            return
        self._gradient_at, self._gradient_due = at, now + GRADIENT_SECONDS
        gains = push_gains(living.env, living.act, living.inertia)
        with self._server.atomic():
            controls.tell_gradient(self._arrows.show(gains, living.inertia))


class _Rate:
    """Pictures per second, and how fast time runs, over the last second or so."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._pictures, self._seconds, self._text = 0, 0.0, ""

    def note(self, now: float, seconds: float) -> None:
        if self._began is None:
            self._began = now
            return
        self._pictures += 1
        self._seconds += seconds
        if now - self._began >= 1.0:
            passed = now - self._began
            self._text = f"{self._pictures / passed:.0f}, time x {self._seconds / passed:.2f}"
            self._began, self._pictures, self._seconds = now, 0, 0.0

    def text(self) -> str:
        return self._text


def between(model: mujoco.MjModel, first: Floats, second: Floats, share: float) -> Floats:
    """A pose on the way from one to another; rotations turn the short way."""
    velocity, pose = np.zeros(model.nv), first.copy()
    mujoco.mj_differentiatePos(model, velocity, 1.0, first, second)
    mujoco.mj_integratePos(model, pose, velocity, share)
    return pose


def usual_box(scene: RobotScene, joint_q: Floats) -> tuple[Floats, Floats]:
    """The corners of a box around what the robot does after most of its starts, (frames, starts, num_q)."""
    boxes = [
        survey(scene.kinematics, joint_q[::SURVEY_STRIDE, start : start + 1], scene.leader)
        for start in range(joint_q.shape[1])
    ]
    low = np.quantile([box.low for box in boxes], 1 - MOST_STARTS, axis=0)
    return low, np.quantile([box.high for box in boxes], MOST_STARTS, axis=0)
