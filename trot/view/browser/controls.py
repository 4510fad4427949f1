"""The panel of the viewer. The server only notes here what the user wants; the viewer's loop does it.

What it calls is async: viser keeps an endless queue for other functions, which a page could fill.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import viser

from trot.view.browser.messages import Value
from trot.view.browser.page_guard import Guard
from trot.view.browser.panel_parts import is_bool, is_option_of, small
from trot.view.motion.trajectory import Trajectory

SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "4")
WORLDS = ("1", "2", "4", "8", "16")
DETERMINISTIC, SAMPLED = "deterministic", "sampled"


class Controls:
    """What the user set, and what was asked for since the loop last looked."""

    def __init__(
        self,
        server: viser.ViserServer,
        guard: Guard,
        *,
        checkpoints: list[str],
        checkpoint: str,
        worlds: int,
        stochastic: bool,
        follow: bool,
        forces: bool,
        can_record: bool,
    ) -> None:
        self.playing = True
        self.seek: int | None = None
        self.rollout_wanted = False
        self.redraw_wanted = True
        gui = server.gui
        self.status = gui.add_html("")
        self.play = gui.add_button("Pause", icon=viser.Icon.PLAYER_PAUSE)
        self.play.on_click(self._play_or_pause)
        # Any, because the types of viser's sliders do not know that they can be moved.
        self.frame: Any = gui.add_slider("Frame", min=0, max=1, step=1, initial_value=0)
        self.frame.on_update(self._scrubbed)
        self.speed = gui.add_dropdown("Speed", SPEEDS, initial_value="1")
        with gui.add_folder("View"):
            self.world: Any = gui.add_slider(
                "World", min=0, max=1, step=1, initial_value=0, hint="followed and plotted"
            )
            self.follow = gui.add_checkbox("Follow", follow)
            self.forces = gui.add_checkbox("Contact forces", forces)
        for handle in (self.world, self.follow, self.forces):
            handle.on_update(self._ask_redraw)

        with gui.add_folder("Rollout", visible=can_record):
            options = checkpoints or [checkpoint]
            self.checkpoint = gui.add_dropdown(
                "Checkpoint", options, initial_value=checkpoint, visible=bool(checkpoints)
            )
            self.actions = gui.add_dropdown(
                "Actions", (DETERMINISTIC, SAMPLED), initial_value=SAMPLED if stochastic else DETERMINISTIC,
                visible=bool(checkpoints),
            )  # fmt: skip
            counts = sorted({*WORLDS, str(worlds)}, key=int)
            self.worlds = gui.add_dropdown("Worlds", counts, initial_value=str(worlds))
            self.again = gui.add_button("New rollout", icon=viser.Icon.REFRESH)
        for choice in (self.checkpoint, self.actions, self.worlds):
            choice.on_update(self._ask_rollout)
        self.again.on_click(self._ask_rollout)
        self.charts = gui.add_folder("Rewards")
        self._admit_values(guard, can_record)

    def tell(self, text: str) -> None:
        """Show text above the panel, as it is: a name in it may come from a file that somebody else made."""
        self.status.content = small(text)

    def fit(self, trajectory: Trajectory) -> None:
        """Set the ranges of the sliders to those of a trajectory."""
        frames, worlds = trajectory.begins.shape
        self.frame.max, self.frame.value = max(frames - 1, 1), 0
        self.world.max, self.world.visible = max(worlds - 1, 1), worlds > 1
        self.world.value = min(self.world.value, worlds - 1)
        self.charts.visible = bool(trajectory.reward_terms)

    def set_playing(self, playing: bool) -> None:
        self.playing = playing
        self.play.label = "Pause" if playing else "Play"
        self.play.icon = viser.Icon.PLAYER_PAUSE if playing else viser.Icon.PLAYER_PLAY

    def take_seek(self) -> int | None:
        frame, self.seek = self.seek, None
        return frame

    def take_rollout_wanted(self) -> bool:
        wanted, self.rollout_wanted = self.rollout_wanted, False
        return wanted

    def take_redraw_wanted(self) -> bool:
        wanted, self.redraw_wanted = self.redraw_wanted, False
        return wanted

    def _admit_values(self, guard: Guard, can_record: bool) -> None:
        """Say what pages may set, and to what."""
        for slider in (self.frame, self.world):
            guard.allow(slider, partial(_is_on, slider))
        for switch in (self.play, self.follow, self.forces):
            guard.allow(switch, is_bool)
        guard.allow(self.speed, partial(is_option_of, self.speed))
        if can_record:
            guard.allow(self.again, is_bool)
            for choice in (self.checkpoint, self.actions, self.worlds):
                guard.allow(choice, partial(is_option_of, choice))

    async def _play_or_pause(self, _: viser.GuiEvent[Any]) -> None:
        self.set_playing(not self.playing)

    async def _scrubbed(self, event: viser.GuiEvent[Any]) -> None:
        # Without a client it was the loop itself that moved the slider.
        if event.client is not None:
            self.seek = int(self.frame.value)
            self.set_playing(False)

    async def _ask_rollout(self, event: viser.GuiEvent[Any]) -> None:
        if event.client is not None:
            self.rollout_wanted = True

    async def _ask_redraw(self, _: viser.GuiEvent[Any]) -> None:
        self.redraw_wanted = True


def _is_on(slider: Any, value: Value) -> bool:
    """Of a slider that is as long as the motion."""
    return type(value) is int and 0 <= value <= slider.max
