"""`trot play` in a real browser, on a screen and on a phone: the robot moves, is pushed, dragged, changed and reset."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from browser import CHROMIUM, MISSING, PLAIN, browser_page
from campaign import chances
from made_run import make_run
from odd_messages import odd_message, odd_value
from viewer_page import CAMERA, PROTOCOL, answer, open_page, running_viewer
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

ROOT = Path(__file__).parents[2]
TORSO = "/trot/world_0/torso"
HIGHEST_START = 0.86
"""An Ant begins 0.75 m above the ground, give or take 0.1."""
LIFT_SECONDS = 15
SIZES = {"screen": (800, 600, 470, 600), "phone": (390, 844, 390, 330)}
"""Width and height, and how much of them the panel leaves free."""


@pytest.fixture
def screenshots(request):
    """A folder that outlives the test: pictures are there to be looked at."""
    folder = ROOT / "build" / "screenshots" / re.sub(r"\W", "_", request.node.name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def robot_pixels(image):
    """Which have the orange of the Ant's lower legs."""
    red, green, blue = image[..., 0], image[..., 1], image[..., 2]
    return (red > 150) & (red - blue > 70) & (green - blue > 20) & (red - green > 20)


def picture_of_the_robot(tab, path):
    """With its legs in it."""
    for _ in range(40):
        image = tab.screenshot(path)
        if robot_pixels(image).sum() > 100:
            return image
    raise AssertionError(f"no robot: {path}")


def place_on_the_torso(image):
    """Its x and y: in the midst of the largest blue square."""
    red, blue = image[..., 0], image[..., 2]
    for side in range(71, 9, -10):
        squares = np.lib.stride_tricks.sliding_window_view((red < 150) & (blue > 80) & (blue - red > 40), (side, side))
        rows, columns = np.nonzero(squares.all(axis=(2, 3)))
        if len(rows):
            return int(columns.mean()) + side // 2, int(rows.mean()) + side // 2
    raise AssertionError("no torso")


def button(tab, label):
    found = f"[...document.querySelectorAll('button')].find(button => button.innerText == '{label}')"
    tab.wait_for(f"{found} != null")
    return found


def press(tab, label):
    tab.evaluate(f"{button(tab, label)}.click()")
    # Of clicks within a twentieth of a second, viser's page sends the last.
    time.sleep(0.2)


def table(tab):
    """The numbers above the panel, by name."""
    rows = "[...document.querySelectorAll('table tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    return {row[0]: row[1] for row in tab.evaluate(rows) or [] if len(row) == 2}


def move_slider(tab, label, key):
    """To an end of it."""
    slider = f"""(() => {{
        const name = [...document.querySelectorAll('label, div')].find(
            node => node.children.length == 0 && node.innerText == '{label}');
        let around = name;
        while (!around.querySelector('[role=slider]')) around = around.parentElement;
        around.querySelector('[role=slider]').focus();
        return true; }})()"""
    tab.wait_for(slider)
    tab.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
    tab.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)


def drag(tab, begin, end):
    """Press at a place of the page, move to another, and stay there with the button down."""
    (x, y), (to_x, to_y) = begin, end
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    time.sleep(0.3)
    tab.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", buttons=1, clickCount=1)
    for k in range(1, 11):
        at = {"x": x + (to_x - x) * k / 10, "y": y + (to_y - y) * k / 10}
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", button="left", buttons=1, **at)
        time.sleep(0.05)


def let_go(tab, at):
    tab.call("Input.dispatchMouseEvent", type="mouseReleased", x=at[0], y=at[1], button="left", clickCount=1)


def lift_by_the_mouse(tab, other, free, folder):
    """Drag the torso up while time stands still, and let time go on. Returns its height before and the pointer's place.

    A page that draws slowly may not know yet what is below the pointer when the button goes down: then once more.
    """
    for _ in range(5):
        press(tab, "Pause")
        press(tab, "Reset")
        other.wait_for(lambda: other.places[TORSO][2] < HIGHEST_START)
        x, y = place_on_the_torso(picture_of_the_robot(tab, folder / "before_drag.png")[: free[1], : free[0]])
        start, end = other.places[TORSO][2], (x, max(y - 200, 5))
        drag(tab, (x, y), end)
        press(tab, "Play")
        if other.comes_true(lambda start=start: other.places[TORSO][2] > start + 0.25, LIFT_SECONDS):
            return start, end
        let_go(tab, end)
    raise AssertionError(f"no drag lifts the torso; see {folder}")


@pytest.mark.parametrize("size", ["screen", pytest.param("phone", marks=pytest.mark.campaign)])
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_a_robot_to_play_with(size, screenshots):
    width, height, free_x, free_y = SIZES[size]
    mobile = size == "phone"
    with (
        running_viewer("ant", "--agent", "zero", command="play") as (process, address),
        browser_page() as tab,
        open_page(address) as other,
    ):
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        tab.open(address, offline=False)
        tab.wait_for("document.querySelectorAll('.uplot').length == 2")
        # It says that pages are drawn without a GPU here, and has an orange edge.
        tab.evaluate("document.querySelectorAll('.mantine-Notification-closeButton').forEach(one => one.click())")
        text = tab.evaluate("document.body.innerText")
        words = ("Pause", "Step", "Reset", "Gravity", "Friction", "Mass", "Time", "Gradient", "return", "forward")
        assert not [word for word in words if word not in text], text

        # It moves: random actions, seen twice.
        other.set("Actions", "random")
        first = picture_of_the_robot(tab, screenshots / "moves_1.png")
        time.sleep(1)
        second = picture_of_the_robot(tab, screenshots / "moves_2.png")
        assert tab.plainness() == PLAIN
        assert (robot_pixels(first) ^ robot_pixels(second)).sum() > 100

        # On the page a button pauses, and another resets.
        press(tab, "Pause")
        button(tab, "Play")
        press(tab, "Reset")
        tab.wait_for("document.body.innerText.includes('was reset')")
        assert table(tab)["time"] == "0.0 s"
        other.set("Actions", "zero")
        press(tab, "Step")
        tab.wait_for("document.body.innerText.includes('forward')")
        assert other.controls["Play"]

        # Without gravity, a push upwards lifts it for good.
        move_slider(tab, "Gravity", "Home")
        other.wait_for(lambda: other.controls["Gravity"]["value"] == 0)
        low = other.places[TORSO][2]
        press(tab, "up")
        press(tab, "Play")
        other.wait_for(lambda: other.places[TORSO][2] > low + 0.5)

        press(tab, "As in the file")
        other.wait_for(lambda: other.controls["Gravity"]["value"] == 1)

        # The mouse holds the torso, and when time goes on lifts it, where it could not get to by itself.
        start, end = lift_by_the_mouse(tab, other, (free_x, free_y), screenshots)
        tab.screenshot(screenshots / "dragged.png")
        let_go(tab, end)
        other.wait_for(lambda: other.places[TORSO][2] < start)

        # Arrows.
        other.set("Gradient", True)
        tab.wait_for("document.body.innerText.includes('per N s')")
        time.sleep(0.5)
        tab.screenshot(screenshots / "gradient.png")
        # viser's page complains of its own way to listen.
        assert not [error for error in tab.errors if "passive event listener" not in error] and not process.told
        asked = {url.split("/")[2] for url in tab.requests if url.startswith(("http", "ws"))}
        assert asked == {address.split("/")[2]}


def test_ctrl_c_ends_it_cleanly():
    command = [sys.executable, "-m", "trot", "play", "cartpole", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "cartpole: starting the viewer ...\n"
            address = re.search(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", process.stdout.readline())[0]
            with open_page(address) as page:
                page.wait_for(lambda: page.moves > 20)
                process.send_signal(signal.SIGINT)
                _, told = process.communicate(timeout=20)
            assert (process.returncode, told) == (0, "")
        finally:
            process.kill()


@pytest.fixture(scope="module")
def ant_at_play():
    """For tests that leave it alive: its process, and its address."""
    with running_viewer("ant", "--agent", "random", command="play") as viewer:
        yield viewer


def test_all_pages_see_the_same_world_and_a_slow_one_holds_up_nobody(ant_at_play):
    process, address = ant_at_play
    with open_page(address) as page:
        with open_page(address) as other, SlowPage(address):
            begun = {one: one.moves for one in (page, other)}
            for one in (page, other):
                one.wait_for(lambda one=one: one.moves > begun[one] + 2000)
            other.set("Pause", True)
            page.wait_for(lambda: "Play" in page.controls)
            time.sleep(0.5)
            assert page.places[TORSO] == other.places[TORSO]
            assert len(page.places) > 10 and page.places == other.places
        page.set("Play", True)
        begun = page.moves
        page.wait_for(lambda: page.moves > begun + 200)
        assert process.poll() is None and not process.told


class SlowPage:
    """A page that never reads what it is sent, and has little room for it."""

    def __init__(self, address):
        self.address = address

    def __enter__(self):
        parts = urlsplit(self.address)
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect((parts.hostname, parts.port))
        self.connection = connect(
            f"ws://{parts.netloc}{parts.path.rstrip('/')}", sock=raw, origin=f"http://{parts.netloc}",
            subprotocols=[PROTOCOL], max_size=None, compression=None, max_queue=1,
        )  # fmt: skip
        self.connection.send(msgspec.msgpack.encode(CAMERA))
        return self

    def __exit__(self, *_):
        self.connection.socket.close()


def test_only_its_own_pages_get_in(ant_at_play):
    _, address = ant_at_play
    path, host = "/" + address.split("/", 3)[3], address.split("/")[2]
    assert answer(address, path, host, f"http://{host}", PROTOCOL)[0] == 101
    assert answer(address, path, host, "http://evil.example", PROTOCOL)[0] == 403
    assert answer(address, path, host, None, PROTOCOL)[0] == 403
    assert answer(address, "/", host, f"http://{host}")[0] == 403


def test_names_in_files_are_shown_as_text(tmp_path):
    run, _ = make_run(tmp_path)
    hostile = "<img src=x onerror=alert(1)>"
    folder = run.path.rename(run.path.with_name(hostile))
    with running_viewer(str(folder), command="play") as (_, address), open_page(address) as page:
        page.wait_for(lambda: any("onerror" in text for text in page.texts()))
        assert not any("<img" in text for text in page.texts())


def odd_drag(chance, nodes):
    """A drag of what may be dragged; now and then with anything in one of its fields."""
    places = [[chance.uniform(-3, 3) for _ in range(3)] for _ in range(2)]
    message = {
        "type": "SceneNodeDragMessage", "phase": chance.choice(["start", "update", "end"]),
        "name": chance.choice(nodes), "instance_index": None, "start_position": places[0],
        "start_screen_pos": [0.5, 0.5], "end_position": places[1], "end_screen_pos": [0.6, 0.5], "button": "left",
        "modifier": None, "owner": "",
    }  # fmt: skip
    if chance.random() < 0.5:
        message[chance.choice(sorted(message.keys() - {"type"}))] = odd_value(chance)
    return message


def test_random_messages_end_nothing(ant_at_play):
    """The last one here: it leaves a world that nobody knows."""
    process, address = ant_at_play
    with contextlib.ExitStack() as open_:
        page = open_.enter_context(open_page(address))
        for chance, case in chances("player", 400):
            try:
                odd = chance.random() < 0.5
                page.say(odd_message(chance, page.controls) if odd else odd_drag(chance, sorted(page.draggable)))
            except ConnectionClosed:
                # A message that is too long closes the page that said it, and no other.
                assert process.poll() is None, f"{case}: {process.told}"
                open_.close()
                page = open_.enter_context(open_page(address))
        open_.close()
        # Whoever comes now finds a world that lives, and nobody who holds it.
        page = open_.enter_context(open_page(address))
        page.wait_for(lambda: page.controls.keys() & {"Play", "Pause"})
        if "Play" in page.controls:
            page.set("Play", True)
        begun = page.moves
        page.wait_for(lambda: page.moves > begun + 500)
        for label in ("Gravity", "Friction", "Mass", "Time", "Strength"):
            control = page.controls[label]
            assert control["min"] <= control["value"] <= control["max"]
        assert np.isfinite([*page.places.values()]).all()
        assert process.poll() is None and not process.told
