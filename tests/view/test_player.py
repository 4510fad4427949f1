"""The loop of `trot play`: what the panel, the clock and dragging pages do to a world with steps of 0.1 s."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from living_rail import rail

from trot.view.browser.page import quiet_server
from trot.view.browser.page_guard import Guard
from trot.view.play.changed_robot import Factors
from trot.view.play.play_controls import MOST_WISHES
from trot.view.play.player import Player


@pytest.fixture
def player(monkeypatch):
    """A loop that believes that somebody looks, of a world with steps of 0.1 s."""
    living = rail()
    living.env.task.__class__.episode_length = 5
    with quiet_server(0) as server:
        made = Player(server, Guard(), living, "by hand", follow=True)
        monkeypatch.setattr(server, "get_clients", lambda: {0: SimpleNamespace()})
        yield made, made.controls, living


def run(player, seconds, every=0.05):
    start = player._last_tick
    for k in range(1, round(seconds / every) + 1):
        player.tick(start + k * every)


def test_time_runs_as_fast_as_the_slider_says(player):
    made, controls, living = player
    run(made, 1.0)
    assert living.steps == 10
    controls.speed.value = 2.0
    run(made, 1.0)
    assert living.steps == 30
    controls.speed.value = 0.1
    run(made, 2.0)
    assert living.steps == 32
    controls.set_playing(False)
    run(made, 5.0)
    assert living.steps == 32 and controls.play.label == "Play"
    controls.set_playing(True)
    controls.speed.value = 1.0
    # After a stop of a minute, or on a slow machine, time is lost instead of made up for.
    made.tick(made._last_tick + 60)
    assert living.steps <= 32 + 2


def test_nobody_looks_and_time_stands_still(player, monkeypatch):
    made, _, living = player
    monkeypatch.setattr(made._server, "get_clients", dict)
    run(made, 1.0)
    assert living.steps == 0


def test_panel_steps_pushes_resets_and_changes(player):
    made, controls, living = player
    controls.set_playing(False)
    controls.agent.value = "policy"
    controls._wish(("step", ""))
    made.tick(made._last_tick + 0.05)
    assert living.steps == 1 and living.joint_qd[0] == pytest.approx(0.05)
    controls.strength.value = 2.0
    controls._wish(("push", "forward"))
    made.tick(made._last_tick + 0.05)
    assert living.steps == 1 and living.joint_qd[0] == pytest.approx(2.05)
    controls.mass.value, controls.gravity.value, controls.friction.value = 2.0, 0.5, 3.0
    made.tick(made._last_tick + 0.05)
    assert living.factors == Factors(3.0, 0.5, 2.0) and living.joint_qd[0] == pytest.approx(2.05)
    controls._wish(("reset", ""))
    made.tick(made._last_tick + 0.2)
    assert living.joint_qd[0] == 0 and "was reset" in controls.status.content
    for _ in range(1000):
        controls._wish(("step", ""))
    made.tick(made._last_tick + 0.05)
    assert living.steps == 1 + MOST_WISHES


def test_slow_motion_has_pictures_between_steps(player):
    made, controls, living = player
    controls.follow.value = False
    living.push("forward", 1.0)
    controls.speed.value = 0.5
    start, places = made._last_tick, []
    for k in range(1, 9):
        made.tick(start + 0.05 * k)
        places.append(float(made._scene.bodies[0][1].position[0]))
    # The first step is due after 0.2 s; a picture shows the step that is made, as far as its time has come.
    np.testing.assert_allclose(places, [0, 0, 0, 0, 0.025, 0.05, 0.075, 0.1], atol=2e-5)


def test_gradient_arrows_come_and_go(player):
    made, controls, _ = player
    controls.set_playing(False)
    controls.gradient.value = True
    made.tick(made._last_tick + 0.3)
    (arrow,) = made._arrows._arrows
    begin, end = arrow.points[0]
    assert arrow.visible and end[0] > begin[0] and abs(end[1] - begin[1]) < 1e-6
    assert re.search(r"longest: cart, return \+[\d.]+ per N s", controls.gradient_text.content)
    controls.gradient.value = False
    made.tick(made._last_tick + 0.3)
    assert not arrow.visible and not controls.gradient_text.visible


def test_gradient_arrows_of_a_world_that_stands_still_are_those_of_its_state(player, monkeypatch):
    made, controls, living = player
    asked = []

    def gains(env, act, inertia):
        asked.append((living.joint_qd[0], living.factors.mass, living.kind))
        return np.ones((1, 3))

    monkeypatch.setattr("trot.view.play.player.push_gains", gains)
    controls.set_playing(False)
    controls.gradient.value = True

    def look():
        made.tick(made._last_tick + 0.3)

    look(), look()
    assert len(asked) == 1
    controls._wish(("push", "forward"))
    look()
    controls.mass.value = 2.0
    look()
    controls.agent.value = "policy"
    look()
    controls._wish(("reset", ""))
    look(), look()
    assert asked == [(0, 1, "zero"), (1, 1, "zero"), (1, 2, "zero"), (1, 2, "policy"), (0, 2, "policy")]


def dragged(phase, client, start=(0, 0, 1), end=(1, 0, 1)):
    return SimpleNamespace(phase=phase, client_id=client, start_position=start, end_position=end)


def test_what_pages_hold_pulls_until_they_let_go_or_leave(player):
    import asyncio

    made, controls, living = player
    controls.set_playing(False)
    body = int(living.inertia.bodies[0])
    drag = made._holds._dragging(body)

    def says(*events):
        for event in events:
            asyncio.run(drag(event))

    says(dragged("update", 0), dragged("start", 7))
    made.tick(made._last_tick + 0.05)
    assert not made._holds, "an update without a start, and a page that is not there"
    says(dragged("start", 0, end=(0.5, 0, 1)), dragged("update", 0))
    controls._wish(("step", ""))
    made.tick(made._last_tick + 0.05)
    assert living.joint_qd[0] == pytest.approx(6.4 / 3.24, rel=1e-5)
    says(dragged("end", 0))
    controls._wish(("step", ""))
    made.tick(made._last_tick + 0.05)
    assert living.joint_qd[0] == pytest.approx(6.4 / 3.24, rel=1e-5)
    # Nonsense pulls no harder than ten weights, and nothing breaks.
    says(dragged("start", 0, start=(1e6, -1e6, 1e6), end=(1e6, 0, 0)))
    for _ in range(2):
        controls._wish(("step", ""))
        made.tick(made._last_tick + 0.05)
    assert living.joint_qd[0] == pytest.approx(6.4 / 3.24 + 2 * 9.81, rel=1e-4)
    controls._wish(("reset", ""))
    made.tick(made._last_tick + 0.05)
    assert not made._holds
