"""Commands in `trot play`: sliders and arrow keys reach the task's memory, in every episode, and nothing else does."""

import time
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from browser import CHROMIUM, MISSING, browser_page
from slider_task import Rail
from viewer_page import open_page, running_viewer

from trot.envs.command import Command
from trot.view.browser.page import quiet_server
from trot.view.browser.page_guard import Guard
from trot.view.play import player
from trot.view.play.living import Living
from trot.view.play.steering import Steering

ROOT = Path(__file__).parents[2]


class ToldRail(Rail):
    """The cart is told a place and a speed, and sees both."""

    episode_length = 3
    commands = (Command("place", "m", -1.0, 3.0, 0.5, "up-down"), Command("speed", "m/s", 0.0, 2.0, 1.0))

    def draw_memory(self, count, generator, like):
        return {"told": like.new_full((count, 2), 7.0), "other": like.new_full((count, 1), 9.0)}

    def commanded(self, values):
        return {"told": values}

    def observation(self, measured, previous_action):
        return {**super().observation(measured, previous_action), "told": measured.memory["told"]}


def told(living):
    return living.env.worlds.observation[0, -2:].tolist()


def test_what_is_told_holds_in_every_episode_until_it_is_left_to_chance():
    living = Living(ToldRail(), None, "zero")
    assert told(living) == [0.5, 1.0]
    living.push("forward", 1.0)
    living.step()
    moved = living.joint_q.copy()
    living.steer([2.0, 0.25])
    # At once, and what moves goes on: 0.1 m after 0.1 s.
    assert told(living) == [2.0, 0.25]
    np.testing.assert_allclose(living.joint_q, moved)
    assert living.env.state.memory["other"].item() == 9.0
    for _ in range(4):
        living.step()
        assert told(living) == [2.0, 0.25]
    assert living.episodes == 2
    living.steer(None)
    assert told(living) == [2.0, 0.25]
    living.reset()
    assert told(living) == [7.0, 7.0]


def test_a_task_without_commands_is_told_nothing():
    living = Living(Rail(), None, "zero")
    living.steer(None)
    living.step()
    assert living.commands is None


def test_the_quadruped_is_told_for_all_of_the_episode():
    living = Living("quadruped", None, "zero")
    living.steer([0.8, -0.3, 0.6])
    task, memory = living.env.task, living.env.state.memory
    for elapsed in (0.0, 7.0, 19.0):
        later = {**memory, "elapsed": torch.full((1, 1), elapsed)}
        command = task.measure(replace(living.env.state, memory=later)).command
        np.testing.assert_allclose(command[0], [0.8, -0.3, 0.6])


def test_commands_that_no_slider_could_show_are_refused():
    for low, high, initial in ((1.0, 1.0, 1.0), (2.0, 1.0, 1.5), (0.0, float("inf"), 1.0), (0.0, 1.0, 2.0)):
        with pytest.raises(ValueError, match="command 'speed'"):
            Command("speed", "m/s", low, high, initial)

    class Forgot(ToldRail):
        commanded = Rail.commanded

    with pytest.raises(ValueError, match=r"Forgot has commands, but no commanded\(\)"):
        Living(Forgot(), None, "zero")


def key_message(handle):
    return msgspec.msgpack.encode({"type": "CommandTriggerMessage", "uuid": handle._impl.uuid})


def test_keys_move_the_sliders_by_a_tenth_of_the_way_and_stop_at_the_ends():
    guard = Guard()
    with quiet_server(0, guard) as server:
        steering = Steering(server.gui, guard, ToldRail.commands)
        more, less, stop = server.gui._command_handle_from_uuid.values()
        assert [command.hotkey for command in (more, less, stop)] == ["arrowup", "arrowdown", "0"]
        stranger = server.gui.add_command("stranger")
        assert guard.allowed(key_message(more)) and guard.allowed(key_message(stranger)) is None

        def press(command):
            (answer,) = command._impl.trigger_cb
            with pytest.raises(StopIteration):
                answer(None).send(None)

        press(more)
        assert steering.values == pytest.approx([0.9, 1.0])
        for _ in range(20):
            press(more)
        assert steering.values == [3.0, 1.0]
        for _ in range(20):
            press(less)
        assert steering.values == [-1.0, 1.0]
        press(stop)
        assert steering.values == [0.0, 0.0]
        assert Steering(server.gui, guard, ()).values is None


@pytest.mark.parametrize("arrows", ["up-down", None])
def test_arrow_keys_stay_the_cameras_where_they_steer_nothing(monkeypatch, arrows):
    class Told(ToldRail):
        commands = (Command("place", "m", -1.0, 3.0, 0.5, arrows), ToldRail.commands[1])

    scripts = []

    def guarded(script):
        scripts.append(script)
        return Guard(script)

    hints = []
    monkeypatch.setattr(player, "Guard", guarded)
    monkeypatch.setattr(player, "show_until_stopped", lambda *given: hints.append(given[3]))
    player.serve_play(
        Living(Told(), None, "zero"), title="told", about="", follow=True, port=0, open_browser=False
    )  # fmt: skip
    assert scripts == [player.PLAIN_DRAWING + (player.ARROW_KEYS if arrows else "")]
    assert (player.KEYS in hints[0]) is bool(arrows)


@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
@pytest.mark.parametrize("size", ["screen", "phone"])
def test_arrow_keys_in_a_browser_steer_the_robot_and_not_the_camera(size):
    width, height = {"screen": (1000, 700), "phone": (390, 844)}[size]
    folder = ROOT / "build" / "screenshots" / f"steering_{size}"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        running_viewer("quadruped", "--agent", "zero", command="play") as (process, address),
        browser_page() as tab,
        open_page(address) as other,
    ):
        tab.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=size == "phone",
        )  # fmt: skip
        tab.open(address, offline=False)
        tab.wait_for("document.body.innerText.includes('forward, m/s')")
        tab.wait_for("document.querySelectorAll('.uplot').length == 2")
        tab.evaluate("window.places = []; document.addEventListener('keydown', (key) => window.places.push(key.code))")
        forward, turning = "forward, m/s", "turning left, rad/s"
        assert (other.controls[forward]["value"], other.controls[turning]["value"]) == (0.5, 0)
        for key, count in (("ArrowUp", 1), ("ArrowLeft", 2), ("ArrowRight", 1)):
            for _ in range(count):
                for kind in ("keyDown", "keyUp"):
                    tab.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)
                time.sleep(0.2)
        other.wait_for(lambda: other.controls[forward]["value"] == 0.7)
        other.wait_for(lambda: other.controls[turning]["value"] == 0.2)
        tab.screenshot(folder / "steered.png")
        for kind in ("keyDown", "keyUp"):
            tab.call("Input.dispatchKeyEvent", type=kind, key="0", code="Digit0", text="0" if kind == "keyDown" else "")
        other.wait_for(lambda: other.controls[forward]["value"] == 0)
        # The camera turns by the place of a key on the keyboard, and got none.
        assert tab.evaluate("window.places") == ["", "", "", "", "Digit0"]
        assert process.poll() is None and not process.told
        assert not [error for error in tab.errors if "passive event listener" not in error]
