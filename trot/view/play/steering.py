"""The commands of a task in the panel of `trot play`: a slider each, and arrow keys for those that are steered."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

import viser

from trot.envs.command import Command
from trot.view.browser.page_guard import Guard
from trot.view.browser.panel_parts import add_slider, is_bool, small

NOTCH = 0.1
"""What a press of an arrow key adds or takes away, as a share of the way from the low bound to the high one."""
STOP_KEY: Literal["0"] = "0"
ARROWS: dict[str, tuple[Literal["arrowup", "arrowleft"], Literal["arrowdown", "arrowright"]]] = {
    "up-down": ("arrowup", "arrowdown"),
    "left-right": ("arrowleft", "arrowright"),
}
"""The keys that lead to the high bound and to the low one."""

Pressed = Callable[[Any], Coroutine[Any, Any, None]]


class Steering:
    """What the robot is told. Without commands there is nothing to see of it."""

    def __init__(self, gui: viser.GuiApi, guard: Guard, commands: Sequence[Command]) -> None:
        self._commands, self._guard = commands, guard
        self._sliders: list[Any] = []
        if not commands:
            return
        with gui.add_folder("Commands"):
            keys = "The arrow keys steer; " if any(command.arrows for command in commands) else ""
            gui.add_html(small(f"{keys}{STOP_KEY} stops." if keys else "What the robot is told:"))
            for command in commands:
                hint, step = f"{command.low:g} to {command.high:g} {command.unit}", (command.high - command.low) / 100
                label = f"{command.name}, {command.unit}"
                self._sliders.append(
                    add_slider(gui, guard, label, command.low, command.high, command.initial, hint, step)
                )
            # Any, because viser's types do not know that a box can be ticked.
            self._by_hand: Any = gui.add_checkbox(
                "Steer", True, hint="without it, each new episode draws its own commands"
            )
            guard.allow(self._by_hand, is_bool)
        self._add_keys(gui)

    @property
    def values(self) -> list[float] | None:
        """In the order of the task's commands; None where episodes draw their own."""
        if not self._sliders or not self._by_hand.value:
            return None
        return [float(slider.value) for slider in self._sliders]

    def _add_keys(self, gui: viser.GuiApi) -> None:
        for command, slider in zip(self._commands, self._sliders, strict=True):
            if command.arrows is not None:
                more, less = ARROWS[command.arrows]
                self._on_key(gui, f"more {command.name}", more, self._moving(slider, command, NOTCH))
                self._on_key(gui, f"less {command.name}", less, self._moving(slider, command, -NOTCH))
        if any(command.arrows for command in self._commands):
            self._on_key(gui, "stop", STOP_KEY, self._stop)

    def _on_key(self, gui: viser.GuiApi, label: str, key: Any, pressed: Pressed) -> None:
        handle = gui.add_command(label, hotkey=key)
        handle.on_trigger(pressed)
        self._guard.allow_key(handle)

    def _moving(self, slider: Any, command: Command, share: float) -> Pressed:
        async def move(_: Any) -> None:
            # Rounded, so that a slider that was moved there and back says 0 and not 3e-17.
            moved = round(float(slider.value) + share * (command.high - command.low), 6)
            slider.value = min(max(moved, command.low), command.high)
            self._by_hand.value = True

        return move

    async def _stop(self, _: Any) -> None:
        for command, slider in zip(self._commands, self._sliders, strict=True):
            slider.value = min(max(0.0, command.low), command.high)
        self._by_hand.value = True
