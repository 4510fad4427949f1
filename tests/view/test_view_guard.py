"""Who may talk to `trot view`, and that nothing said to it ends it: a real server, and clients that are no browser."""

import contextlib
import math
import random
import socket
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from campaign import chances, sized
from hypothesis import given
from hypothesis import strategies as st
from made_run import make_run
from odd_messages import odd_message, odd_path
from viewer_page import CAMERA, PROTOCOL, answer, open_page, running_viewer
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

HOSTILE_NAME = "<img src=x onerror=alert(1)>"
SECOND_NAME = "<iframe srcdoc=x>**[a](&#106;avascript)**"


@pytest.fixture(scope="module")
def viewer(tmp_path_factory):
    run, _ = make_run(tmp_path_factory.mktemp("run"))
    for name in (HOSTILE_NAME, SECOND_NAME):
        (run.path / "checkpoints" / f"{name}.pt").write_bytes(b"torn")
    outside = run.path / "elsewhere.pt"
    outside.write_bytes((run.path / "checkpoints" / "last.pt").read_bytes())
    with running_viewer(str(run.path), "--steps", "20") as (process, address):
        yield process, address
        assert process.poll() is None, process.told
        assert not process.told, "a client made the server complain on the user's terminal"


def assert_alive(process, address):
    """A page that comes now sees the panel, and its button works."""
    assert process.poll() is None, process.told
    with open_page(address) as page:
        page.wait_for(lambda: page.controls.keys() & {"Play", "Pause"})
        was = "Pause" if "Pause" in page.controls else "Play"
        page.set(was, True)
        page.wait_for(lambda: ({"Play", "Pause"} - {was}) <= page.controls.keys())


def test_only_pages_of_its_own_get_in(viewer):
    _, address = viewer
    parts = urlsplit(address)
    token, port = parts.path, parts.port
    own, wrong = parts.netloc, "/" + "0" * 32 + "/"
    # path, Host, Origin, whether a page and a websocket are let in
    cases = [
        (token, own, f"http://{own}", True, True),
        (token.rstrip("/"), own, f"http://{own}", True, True),
        (token, f"localhost:{port}", f"http://localhost:{port}", True, True),
        (token, "localhost:9000", "http://localhost:9000", True, True),  # through a tunnel
        (token, own, None, True, False),
        ("/", own, f"http://{own}", False, False),
        (wrong, own, f"http://{own}", False, False),
        (token[:-3] + "/", own, f"http://{own}", False, False),
        (f"/?token={token}", own, f"http://{own}", False, False),
        (f"/%C3%A9{token}", own, f"http://{own}", False, False),
        (token, own, "http://evil.example", False, False),
        (token, own, "http://127.0.0.1:1", False, False),  # another page of this machine
        (token, own, f"https://{own}", False, False),
        (token, own, "null", False, False),
        (token, f"evil.example:{port}", f"http://evil.example:{port}", False, False),  # a name that leads here
        (token, f"127.0.0.1.evil.example:{port}", f"http://127.0.0.1.evil.example:{port}", False, False),
        (token, "", "http://", False, False),
        (token, [own, "evil.example"], f"http://{own}", False, False),
    ]
    for path, host, origin, page, websocket in cases:
        assert answer(address, path, host, origin)[0] == (200 if page else 403), (path, host, origin)
        opened = answer(address, path, host, origin, PROTOCOL)[0]
        assert opened == (101 if websocket else 403), (path, host, origin)
    assert answer(address, token, own, f"http://{own}", "viser-v[/red]")[0] == 403
    for path in ("../../../../../etc/passwd", "%2e%2e/%2e%2e/_viser.py", "nothing.js", "a" * 3000):
        assert answer(address, token + path)[0] == 404
    headers = answer(address, token)[1]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer" and headers["Cache-Control"] == "no-store"


def test_no_message_ends_the_server_or_changes_what_it_should_not(viewer):
    process, address = viewer
    with open_page(address) as page:
        kept = {label: page.controls[label]["value"] for label in ("Speed", "Worlds", "World", "Checkpoint", "Follow")}
        values = {
            "Speed": ["abc", "nan", "-1", "1e9", 2, None, ["1"], {"a": 1}],
            "Worlds": ["1000000000", "0", "-1", "x", 4, True],
            "World": [1000, -1, math.nan, math.inf, "0", None, 2**64 - 1, [0], 0.5],
            "Frame": [10**9, -(10**9), math.nan, "x", None, {}, 0.5],
            "Checkpoint": ["../elsewhere", "/etc/passwd", "", "x" * 10_000, 3],
            "Actions": ["drunk"],
            "Follow": ["yes", 2, None],
            "Pause": ["again", 7, None],
        }
        for label, hostile in values.items():
            for value in hostile:
                page.set(label, value)
        uuid = page.controls["Speed"]["uuid"]
        for updates in ({"update_cb": []}, {"props": 3}, {"value": "2", "sync_cb": None}, {"no": 1}, {}, [], "x", None):
            page.say({"type": "GuiUpdateMessage", "uuid": uuid, "updates": updates})
        page.say({"type": "GuiUpdateMessage", "uuid": "unknown", "updates": {"value": 1}})
        for change in (
            {"position": [math.nan] * 3}, {"position": [1, 2]}, {"position": "x"}, {"position": [1e300] * 3},
            {"look_at": None}, {"wxyz": [1] * 1000}, {"image_width": -1}, {"fov": "wide"}, {"more": 1},
        ):  # fmt: skip
            page.say(CAMERA | change)
        part = {"type": "FileTransferPart", "source_component_uuid": uuid, "transfer_uuid": "t", "part_index": 0}
        others = [
            {"type": "ShareUrlRequest"}, {"type": "ShareUrlDisconnect"}, {"type": "NoSuchMessage"}, {"type": 3}, {}, [],
            {"type": "GuiRemoveMessage", "uuid": uuid}, {"type": "RunJavascriptMessage", "source": "1"},
            {"type": "FileTransferStartUpload", "source_component_uuid": uuid, "transfer_uuid": "t", "filename": "f",
             "mime_type": "m", "part_count": 10**9, "size_bytes": 10**12},
            part | {"content": b"x" * 10_000}, {"type": "CommandTriggerMessage", "uuid": uuid},
        ]  # fmt: skip
        for message in (*others, "text", "", b"", b"\xc1", b"\x91" * 10_000, b"\xdf\xff\xff\xff\xff"):
            page.say(message)
    assert_alive(process, address)
    with open_page(address) as page:
        assert {label: page.controls[label]["value"] for label in kept} == kept
        assert not any("share" in kind.lower() for kind in page.seen)


def test_noise_and_floods_do_not_end_the_server(viewer):
    process, address = viewer
    chance = random.Random(0)
    packed = msgspec.msgpack.encode(CAMERA)
    with open_page(address) as page:
        for _ in range(500):
            noisy = bytearray(packed)
            for _ in range(chance.randint(1, 8)):
                noisy[chance.randrange(len(noisy))] = chance.randrange(256)
            page.say(bytes(noisy[: chance.randint(1, len(noisy))] if chance.random() < 0.3 else noisy))
        for frame in range(2000):
            page.set("Frame", frame % 21)
    with open_page(address) as page:
        # In its midst the server may hang up.
        with contextlib.suppress(ConnectionClosed, OSError):
            page.say(bytes(10_000_000))
        page.wait_for(lambda: page.socket.close_code == CloseCode.MESSAGE_TOO_BIG)
    parts = urlsplit(address)
    for noise in (b"\x16\x03\x01 no HTTP\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000, bytes(range(256))):
        with socket.create_connection((parts.hostname, parts.port)) as raw:
            raw.sendall(noise)
    with socket.create_connection((parts.hostname, parts.port)) as raw:
        raw.sendall(f"GET /\xff HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode("latin-1"))
        assert raw.recv(12) == b"HTTP/1.1 403"
    assert_alive(process, address)


MOST_GROWTH = 64 << 20
"""Bytes that the server may have grown by, whatever was said: a motion of 16 worlds, and what Python keeps free."""


@pytest.mark.parametrize("cases", sized(300, 10_000))
def test_random_messages_end_nothing_fill_nothing_and_open_nothing(viewer, cases):
    process, address = viewer
    allowed = {"Speed", "Worlds", "Checkpoint", "Actions"}
    settled = memory(process)
    with contextlib.ExitStack() as pages:
        page = pages.enter_context(open_page(address))
        for chance, case in chances("viewer", cases):
            try:
                page.say(odd_message(chance, page.controls))
            except ConnectionClosed:
                # A message that is too long closes the page that said it, and no other.
                assert process.poll() is None, f"{case}: {process.told}"
                pages.close()
                page = pages.enter_context(open_page(address))
            if chance.random() < 0.1:
                path = odd_path(chance, urlsplit(address).path)
                status, headers = answer(address, path)
                assert status in (200, 400, 403, 404, 414, 431), f"{case}: {path}"
                assert status != 200 or headers["Content-Type"].startswith("text/html"), f"{case}: {path}"
    assert_alive(process, address)
    with open_page(address) as page:
        panel = page.controls
        assert all(panel[label]["value"] in panel[label]["options"] for label in allowed)
        assert all(0 <= panel[label]["value"] <= panel[label]["max"] for label in ("Frame", "World"))
    print(f"{cases} messages; the server grew by {(memory(process) - settled) / 2**20:.0f} MiB")
    assert memory(process) - settled < MOST_GROWTH


def memory(process):
    """Bytes that a process has in memory; 0 where the system does not tell."""
    told = Path(f"/proc/{process.pid}/statm")
    return int(told.read_text().split()[1]) * 4096 if told.exists() else 0


def test_a_crowd_of_pages_is_refused_and_leaves_no_trace(viewer):
    process, address = viewer
    parts = urlsplit(address)
    sockets, statuses = [], []
    opening = (
        f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nOrigin: http://{parts.netloc}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Sec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
    )
    for _ in range(20):
        sockets.append(socket.create_connection((parts.hostname, parts.port), timeout=60))
        sockets[-1].sendall(opening.encode())
        statuses.append(sockets[-1].recv(12))
    for each in sockets:
        each.close()
    assert statuses[0] == b"HTTP/1.1 101" and statuses[-1] == b"HTTP/1.1 503"
    assert_alive(process, address)


def test_a_name_in_a_file_is_text_and_no_markup(viewer):
    process, address = viewer
    with open_page(address) as page:
        for name in (HOSTILE_NAME, SECOND_NAME):
            page.set("Checkpoint", name)
            page.wait_for(lambda: any("cannot be read" in text for text in page.texts()))
            told = "".join(page.texts())
            assert "<img" not in told and "<iframe" not in told and "&lt;i" in told, told
            page.set("Checkpoint", "last")
            page.wait_for(lambda: any("1 world" in text for text in page.texts()))
    assert_alive(process, address)


@given(st.one_of(st.binary(max_size=300), st.text(max_size=50)))
def test_any_bytes_are_read_or_dropped(content):
    from trot.view.browser.page_guard import Guard

    assert Guard().allowed(content) is None


numbers = st.one_of(st.floats(), st.integers(-(2**63), 2**64 - 1), st.none(), st.text(max_size=3))


@given(st.sampled_from(sorted(CAMERA.keys() - {"type"})), numbers, st.lists(numbers, max_size=5))
def test_a_camera_is_finite_and_within_reach(field, number, vector):
    from trot.view.browser.page_guard import Guard

    given_value = number if isinstance(CAMERA[field], int | float) else vector
    handed_on = Guard().allowed(msgspec.msgpack.encode(CAMERA | {field: given_value}))
    if handed_on is not None:
        read = msgspec.msgpack.decode(handed_on)
        flat = [value for part in read.values() for value in (part if isinstance(part, list) else [part])]
        assert all(math.isfinite(value) and abs(value) <= 1e6 for value in flat if not isinstance(value, str))
        assert all(len(read[name]) == len(CAMERA[name]) for name in CAMERA if isinstance(CAMERA[name], list))
