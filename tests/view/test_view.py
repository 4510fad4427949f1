"""`trot view`: the page, the live viewer and the command, its errors."""

import os
import re
import socket
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from made_run import make_run

from trot.view.browser import page as page_module
from trot.view.browser.charts import episode_returns
from trot.view.browser.controls import Controls
from trot.view.browser.live import Rollout, Viewer
from trot.view.browser.page import quiet_server, write_page
from trot.view.browser.page_guard import Guard
from trot.view.browser.view_command import view_command
from trot.view.motion.record import record
from trot.view.motion.trajectory import Trajectory


@pytest.fixture
def server():
    with quiet_server(0) as running:
        yield running


@pytest.fixture(scope="module")
def ants() -> Trajectory:
    return record("ant", agent="random", worlds=2, steps=40)


def test_returns_begin_again_with_an_episode(ants):
    begins = np.zeros((6, 1), bool)
    begins[[0, 3]] = True
    reward = {"a": np.array([[0, 1, 2, 4, 8, 16]], np.float32).T, "b": np.ones((6, 1), np.float32)}
    reward["b"][0] = 0
    trajectory = Trajectory("t", ants.robot, 0.1, *(np.zeros((6, 1, 0), np.float32),) * 4, reward, begins)
    np.testing.assert_allclose(episode_returns(trajectory)[:, 0], [0, 2, 5, 5, 14, 31])


def test_page_is_whole_and_needs_nothing_else(ants, tmp_path):
    path = tmp_path / "ant.html"
    size = write_page(ants, path, forces=True)
    text = path.read_text()
    assert size == path.stat().st_size < 3e6
    assert "<title>trot: ant</title>" in text and "__VISER_EMBED_DATA__" in text
    outside = re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//[^"'\s>]+""", text)
    assert not outside
    assert [file.name for file in tmp_path.iterdir()] == ["ant.html"]


def test_page_that_fails_leaves_the_old_one(ants, tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(page_module, "page", lambda *_, **__: "new")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_page(ants, path)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def viewer(server, ants, monkeypatch):
    """A viewer that believes that somebody looks."""
    asked = []

    def make(rollout):
        asked.append(rollout)
        if rollout.worlds > 2:
            raise ValueError("too many")
        return ants if rollout.worlds == 2 else record("ant", agent="zero", steps=5)

    controls = Controls(
        server, Guard(), checkpoints=["best", "last"], checkpoint="best", worlds=2, stochastic=False, follow=True,
        forces=True, can_record=True,
    )  # fmt: skip
    made = Viewer(server, controls, ants, Rollout(worlds=2), make, lambda: ["best", "last", "newer"])
    monkeypatch.setattr(server, "get_clients", lambda: {})
    monkeypatch.setattr(Viewer, "_somebody_looks", lambda _: True)
    return made, controls, asked


def test_viewer_plays_loops_pauses_and_scrubs(viewer, ants):
    made, controls, _ = viewer
    start = made._last_tick
    made.tick(start + 10.5 * ants.dt)
    assert made.frame == 10 and controls.frame.value == 10
    controls.speed.value = "2"
    made.tick(start + 20.5 * ants.dt)
    assert made.frame == 30
    made.tick(start + 30.5 * ants.dt)
    assert made.frame == 50 - len(ants.begins)
    controls.set_playing(False)
    made.tick(start + 100 * ants.dt)
    assert made.frame == 50 - len(ants.begins) and controls.play.label == "Play"
    controls.seek = 33
    made.tick(start + 101 * ants.dt)
    assert made.frame == 33
    np.testing.assert_allclose(made._scene.bodies[1][1].position, ants.joint_q[33, 1, :3], atol=1e-4)


def test_viewer_records_anew_with_what_was_chosen(viewer, ants):
    made, controls, asked = viewer
    controls.checkpoint.value, controls.actions.value, controls.worlds.value = "last", "sampled", "1"
    controls.world.value = 1
    controls.rollout_wanted = True
    made.tick(made._last_tick)
    assert asked[-1] == Rollout(checkpoint="last", worlds=1, stochastic=True, seed=1)
    assert made.trajectory.begins.shape == (6, 1) and made._scene.num_worlds == 1 and controls.world.value == 0
    assert "newer" in controls.checkpoint.options

    kept = made.trajectory
    controls.worlds.value = "16"
    controls.rollout_wanted = True
    made.tick(made._last_tick)
    assert made.trajectory is kept and "too many" in controls.status.content


def test_viewer_outlives_what_no_longer_fits(viewer, ants, monkeypatch):
    made, controls, _ = viewer
    now = made._last_tick
    for sought, frame in ((10**9, len(ants.begins) - 1), (-(10**9), 0)):
        controls.seek = sought
        made.tick(now)
        assert made.frame == frame
    controls.world.value = 7
    controls.redraw_wanted = True
    made.tick(now)
    assert made._charted_world == 1

    def fail(_):
        raise RuntimeError("size mismatch for <b>")

    monkeypatch.setattr(made, "_record", fail)
    controls.rollout_wanted = True
    made.tick(now)
    assert "RuntimeError: size mismatch for &lt;b&gt;" in controls.status.content
    # A checkpoint that is gone, or never was one, is not asked for.
    controls.checkpoint.value = "../../elsewhere"
    controls.rollout_wanted = True
    made.tick(now)
    assert "no checkpoint" in controls.status.content and made.trajectory is ants


def test_a_camera_that_cannot_be_turned_stays(viewer, monkeypatch):
    made, _, _ = viewer
    turned = []

    class Camera:
        image_width, image_height = 800, 600

        """As viser's: it refuses to look at where it stands."""

        look_at = None

        @property
        def position(self):
            raise AssertionError("only set")

        @position.setter
        def position(self, _):
            turned.append(self)
            raise ValueError("Camera look_at cannot equal position (zero look distance).")

    clients = {0: SimpleNamespace(camera=Camera()), 1: SimpleNamespace(camera=Camera())}
    monkeypatch.setattr(made._server, "get_clients", lambda: clients)
    made._new_scene()
    assert len(turned) == 2


def test_what_the_user_can_mend_is_one_line(tmp_path, capsys, monkeypatch):
    run, _ = make_run(tmp_path)
    (run.path / "checkpoints" / "last.pt").write_bytes(b"torn")
    empty = tmp_path / "empty"
    empty.mkdir()
    busy = socket.create_server(("127.0.0.1", 0))
    port = str(busy.getsockname()[1])
    cases = {
        (str(tmp_path / "nothing.xml"),): "nothing.xml",
        ("antt",): "antt",
        (str(empty),): "empty",
        (str(run.path), "--checkpoint", "last"): "cannot be read",
        (str(run.path), "--checkpoint", "none"): "no checkpoint 'none'",
        ("cartpole", "--port", port): f"port {port} is taken",
        ("cartpole", "--port", "70000"): "65535",
        ("cartpole", "--worlds", "0"): "worlds",
        ("cartpole", "--worlds", "1000000000"): "worlds must be from 1 to 1024",
        ("cartpole", "--steps", "2", "--html", str(tmp_path / "no" / "page.html")): "no folder",
        ("cartpole", "--steps", "2", "--html", str(tmp_path)): "is a folder",
    }
    with busy:
        for arguments, part in cases.items():
            assert view_command([*arguments, "--no-browser"]) == 2, arguments
            told = capsys.readouterr().err
            assert told.startswith("trot view: ") and told.count("\n") == 1 and part in told, told

    monkeypatch.setitem(sys.modules, "viser", None)
    assert view_command(["ant"]) == 2
    assert 'pip install "trot[view]"' in capsys.readouterr().err


def test_command_writes_a_page_of_a_run(tmp_path, capsys):
    run, _ = make_run(tmp_path)
    path = tmp_path / "page.html"
    assert view_command([str(run.path), "--steps", "10", "--html", str(path)]) == 0
    told = capsys.readouterr()
    assert re.search(r"page\.html: \d+\.\d MB, 11 frames", told.out)
    assert "11/11" in told.err, "progress up to the last frame"
