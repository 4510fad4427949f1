"""The panel of `trot play`. The server only notes here what the users want; the loop does it.

What it calls is async: viser keeps an endless queue for other functions, which a page could fill.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import viser

from trot.envs.command import Command
from trot.view.browser.page_guard import Guard
from trot.view.browser.panel_parts import add_slider, is_bool, is_option_of, small
from trot.view.play.changed_robot import Factors
from trot.view.play.steering import Steering

STEP, RESET = "Step", "Reset"
MOST_WISHES = 16
"""Kept until the loop looks; a page that asks for more in a sixtieth of a second is not a person."""

Wish = tuple[Literal["step", "reset", "push"], str]
"""What to do once, and for a push its direction."""


class PlayControls:
    """What users set, and what they asked for since the loop last looked."""

    def __init__(
        self, server: viser.ViserServer, guard: Guard, *, agents: Sequence[str], agent: str, directions: Sequence[str],
        pushed: str, follow: bool, commands: Sequence[Command] = (),
        learning: bool = False,
    ) -> None:  # fmt: skip
        self.playing, self._wishes = True, list[Wish]()
        gui = server.gui
        self.status = gui.add_html("")
        self.play = gui.add_button("Pause", icon=viser.Icon.PLAYER_PAUSE)
        self.play.on_click(self._play_or_pause)
        self.once = gui.add_button_group("Episode", (STEP, RESET))
        self.once.on_click(self._step_or_reset)
        self.agent = gui.add_dropdown("Actions", tuple(agents), initial_value=agent)
        self.learning = gui.add_folder("Learning", visible=learning)
        self.steering = Steering(gui, guard, commands)
        with gui.add_folder("Push", visible=bool(directions)):
            gui.add_html(small(f"Drag a body with the mouse, or push '{pushed}':"))
            self.direction = gui.add_button_group("Towards", tuple(directions) or ("nowhere",))
            self.direction.on_click(self._push)
            self.strength = add_slider(
                gui, guard, "Strength", 0.1, 5.0, 1.0, "m/s that the push gives a robot in one piece"
            )
        with gui.add_folder("World"):
            self.speed = add_slider(gui, guard, "Time", 0.05, 2.0, 1.0, "seconds there per second here")
            self.gravity = add_slider(gui, guard, "Gravity", 0.0, 3.0, 1.0, "times the robot file's")
            self.friction = add_slider(gui, guard, "Friction", 0.0, 3.0, 1.0, "times the robot file's")
            self.mass = add_slider(gui, guard, "Mass", 0.25, 4.0, 1.0, "times the robot file's")
            self.ordinary = gui.add_button("As in the file", icon=viser.Icon.ROTATE)
            self.ordinary.on_click(self._make_ordinary)
        with gui.add_folder("View"):
            self.follow = gui.add_checkbox("Follow", follow)
            self.gradient = gui.add_checkbox(
                "Gradient", False, hint="arrows along which a push would raise the return of the next 32 steps"
            )
            self.gradient_text = gui.add_html("", visible=False)
        self.charts = gui.add_folder("Rewards")
        for switch in (self.play, self.ordinary, self.follow, self.gradient):
            guard.allow(switch, is_bool)
        for choice in (self.once, self.agent, *([self.direction] if directions else [])):
            guard.allow(choice, partial(is_option_of, choice))

    @property
    def factors(self) -> Factors:
        return Factors(float(self.friction.value), float(self.gravity.value), float(self.mass.value))

    def tell(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Show a table above the panel; every text as it is, for a name in it may be somebody else's."""
        cells = "".join(
            f"<tr><td>{html.escape(name)}</td>"
            f'<td style="text-align: right; padding-left: 1em; font-variant-numeric: tabular-nums">'
            f"{html.escape(value)}</td></tr>"
            for name, value in rows
        )
        self.status.content = small(html.escape(title) + f'<table style="width: 100%">{cells}</table>', escaped=True)

    def tell_gradient(self, text: str) -> None:
        """Say something below the switch of the gradient; nothing for an empty text."""
        self.gradient_text.content, self.gradient_text.visible = small(text), bool(text)

    def set_playing(self, playing: bool) -> None:
        self.playing = playing
        self.play.label = "Pause" if playing else "Play"
        self.play.icon = viser.Icon.PLAYER_PAUSE if playing else viser.Icon.PLAYER_PLAY

    def take_wishes(self) -> list[Wish]:
        wishes, self._wishes = self._wishes, []
        return wishes

    def _wish(self, wish: Wish) -> None:
        if len(self._wishes) < MOST_WISHES:
            self._wishes.append(wish)

    async def _play_or_pause(self, _: viser.GuiEvent[Any]) -> None:
        self.set_playing(not self.playing)

    async def _step_or_reset(self, _: viser.GuiEvent[Any]) -> None:
        if self.once.value == STEP:
            self.set_playing(False)
            self._wish(("step", ""))
        else:
            self._wish(("reset", ""))

    async def _push(self, _: viser.GuiEvent[Any]) -> None:
        self._wish(("push", str(self.direction.value)))

    async def _make_ordinary(self, _: viser.GuiEvent[Any]) -> None:
        for slider in (self.speed, self.gravity, self.friction, self.mass):
            slider.value = 1.0
