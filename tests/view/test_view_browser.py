"""`trot view` in a real browser: the page without a network, the live viewer from start to Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from browser import CHROMIUM, MISSING, PLAIN, browser_page
from made_run import make_run
from viewer_page import open_page, running_viewer

from trot.view.browser.page import write_page
from trot.view.motion.record import record

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]

ROOT = Path(__file__).parents[2]
COMMAND = [
    sys.executable,
    "-c",
    "import sys; from trot.view.browser.view_command import view_command as v; sys.exit(v(sys.argv[1:]))",
]


@pytest.fixture
def screenshots(request):
    """A folder that outlives the test: pictures are there to be looked at."""
    folder = ROOT / "build" / "screenshots" / request.node.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def robot_pixels(image):
    """How many have the orange of the Ant's lower legs."""
    red, green, blue = image[..., 0], image[..., 1], image[..., 2]
    return int(((red > 150) & (red - blue > 70) & (green - blue > 20) & (red - green > 20)).sum())


def picture_when(tab, path, good):
    """A screenshot for which good(it, the one before it) holds.

    Only of the middle: a notice about software rendering is to its left, the panel to its right, a timeline below it.
    """
    previous = None
    for _ in range(30):
        image = tab.screenshot(path)[:500, 330:660]
        if robot_pixels(image) > 100 and good(image, previous):
            return image
        previous = image
    raise AssertionError(f"no robot, or it never comes to rest: {path}")


def at_rest(image, previous):
    return previous is not None and np.abs(image - previous).max() < 10


def assert_moves(tab, folder, pause, play):
    """Between two pauses the robot is somewhere else; more than once, because the motion may have just looped."""
    # Whoever pauses before the robot is there has no picture.
    picture_when(tab, folder / "loaded.png", lambda *_: True)
    pause()
    first = picture_when(tab, folder / "first.png", at_rest)
    for attempt in range(4):
        play()
        time.sleep(0.4)
        pause()
        second = picture_when(tab, folder / f"later_{attempt}.png", at_rest)
        if (np.abs(second - first) > 40).any(axis=2).sum() > 200:
            return
    raise AssertionError(f"nothing moves; see {folder}")


def press(tab, label):
    button = f"[...document.querySelectorAll('button')].find(button => button.innerText == '{label}')"
    tab.wait_for(f"{button} != null")
    tab.evaluate(f"{button}.click()")


def test_page_plays_in_a_browser_without_network(tmp_path, screenshots):
    write_page(record("ant", agent="random", worlds=2, steps=40), tmp_path / "ant.html")
    with browser_page() as tab:
        tab.open((tmp_path / "ant.html").as_uri(), offline=True)
        tab.wait_for("[...document.querySelectorAll('canvas')].some(canvas => canvas.width > 100)")

        def toggle():
            tab.call("Input.dispatchKeyEvent", type="keyDown", key=" ", code="Space", text=" ")
            tab.call("Input.dispatchKeyEvent", type="keyUp", key=" ", code="Space")

        assert_moves(tab, screenshots, toggle, toggle)
        assert tab.plainness() == PLAIN
        # The numbers are those of the moment, and not of the end.
        shown = "document.querySelector('#trot').innerText"
        assert tab.evaluate(shown).startswith("ant\nreturn ")
        before = tab.evaluate(shown)
        toggle()
        tab.wait_for(f"{shown} != {json.dumps(before)}")
        # On a phone they stand below the picture, and beside nothing.
        tab.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
        box = "document.querySelector('{}').getBoundingClientRect().{}"
        picture, numbers = box.format("canvas", "bottom"), box.format("#trot", "top")
        tab.wait_for(f"{picture} <= {numbers} + 1 && {box.format('canvas', 'width')} >= 389")
        assert robot_pixels(tab.screenshot(screenshots / "phone.png")[:390]) > 50
        assert not tab.errors
        assert not [url for url in tab.requests if url.startswith(("http", "ws"))]


TAKEN = "parent.document.title='taken'"
SCRIPTS = (
    f'<img src=x onerror="{TAKEN}">',
    f"<iframe srcdoc='&lt;script&gt;{TAKEN.replace(chr(39), '&quot;')}&lt;&#47;script&gt;'>",
)


@pytest.mark.campaign
def test_names_in_files_run_no_script_in_the_page(tmp_path):
    """Names of checkpoints, reward terms and the folder come from whoever made the run."""
    run, _ = make_run(tmp_path)
    for name in SCRIPTS:
        (run.path / "checkpoints" / f"{name}.pt").write_bytes(b"torn")
    folder = run.path.rename(run.path.with_name(SCRIPTS[0]))
    with running_viewer(str(folder), "--steps", "20") as (_, address), browser_page() as tab:
        tab.open(address, offline=False)
        tab.wait_for("document.querySelectorAll('.uplot').length == 2")
        with open_page(address) as other:
            for name in SCRIPTS:
                other.set("Checkpoint", name)
                tab.wait_for("document.body.innerText.includes('cannot be read')")
                time.sleep(1)
                assert tab.evaluate("document.title") != "taken"
                assert not tab.evaluate("document.querySelectorAll('iframe, img[src=x]').length")
                assert tab.evaluate(f"document.body.innerText.includes({json.dumps(name + '.pt')})")
                other.set("Checkpoint", "last")
                tab.wait_for("document.body.innerText.includes('1 world')")

    # A motion from elsewhere names the terms of its reward.
    motion = record("cartpole", agent="random", steps=20)
    motion = replace(motion, reward_terms={name: motion.begins.astype(np.float32) for name in SCRIPTS})
    motion.save(tmp_path / "motion.npz")
    with running_viewer(str(tmp_path / "motion.npz")) as (_, address), browser_page() as tab:
        tab.open(address, offline=False)
        tab.wait_for("document.querySelectorAll('.uplot').length == 2")
        time.sleep(1)
        assert tab.evaluate("document.title") != "taken"
        assert not tab.evaluate("document.querySelectorAll('iframe, img[src=x]').length")


def scrub_until_paused(tab):
    """To scrub is to move the first slider, and pauses; a rollout that arrives meanwhile plays on, so try again."""
    for _ in range(40):
        tab.evaluate("document.querySelector('[role=slider]').focus()")
        tab.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
        time.sleep(1)
        if tab.evaluate("document.body.innerText.includes('Play')"):
            return
    pytest.fail("moving the slider does not pause")


def test_live_viewer_plays_in_a_browser_and_ends_with_ctrl_c(tmp_path, screenshots):
    run, _ = make_run(tmp_path, "ant")
    command = [*COMMAND, str(run.path), "--port", "0", "--no-browser", "--forces", "--steps", "100"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ant: recording ...\n"
            url = re.search(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", process.stdout.readline())[0]
            with browser_page() as tab:
                tab.open(url, offline=False)
                tab.wait_for("document.querySelectorAll('.uplot').length == 2")
                text = tab.evaluate("document.body.innerText")
                words = ("Pause", "Checkpoint", "Contact forces", "New rollout", "Return of the episode")
                assert not [word for word in words if word not in text], text
                assert_moves(tab, screenshots, lambda: press(tab, "Pause"), lambda: press(tab, "Play"))
                press(tab, "New rollout")
                tab.wait_for("document.body.innerText.includes('Pause')")
                scrub_until_paused(tab)
                assert tab.plainness() == PLAIN and not tab.errors
                asked = {address.split("/")[2] for address in tab.requests if address.startswith(("http", "ws"))}
                assert asked == {url.split("/")[2]}
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=20)
            assert (process.returncode, told) == (0, "")
        finally:
            process.kill()
