"""`trot view` or `trot play` in a process of its own, and a page of it that can say anything: no browser."""

from __future__ import annotations

import contextlib
import http.client
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import viser
import zstandard
from websockets.sync.client import connect

ROOT = Path(__file__).parents[2]
PROTOCOL = f"viser-v{viser.__version__}"
PATIENCE_SECONDS = 180
"""A viewer beside a training is served last, and other tests run beside it."""
CAMERA = {
    "type": "ViewerCameraMessage", "wxyz": [1.0, 0.0, 0.0, 0.0], "position": [3.0, 0.0, 1.0], "fov": 1.0, "near": 0.01,
    "far": 1000.0, "image_height": 600, "image_width": 800, "look_at": [0.0, 0.0, 0.0], "up_direction": [0, 0, 1],
}  # fmt: skip


@contextlib.contextmanager
def running_viewer(*arguments, command="view"):
    """The process, and the address that it printed; `told` gets its stderr, line by line."""
    command = [sys.executable, "-m", "trot", command, *arguments, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.told = []
        threading.Thread(target=lambda: process.told.extend(process.stderr), daemon=True).start()
        try:
            process.stdout.readline()
            found = re.search(r"http://[^ ]+", process.stdout.readline())
            assert found, process.told
            yield process, found[0]
        finally:
            process.kill()


def answer(address, path, host=None, origin=None, protocol=None):
    """The status and headers of a request; with a protocol, of a websocket's opening."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_SECONDS)
    connection.putrequest("GET", path, skip_host=True)
    for each in [host] if isinstance(host, str) else host or [parts.netloc]:
        connection.putheader("Host", each)
    if origin is not None:
        connection.putheader("Origin", origin)
    if protocol is not None:
        opening = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": protocol}  # fmt: skip
        for name, value in opening.items():
            connection.putheader(name, value)
    connection.endheaders()
    with contextlib.closing(connection):
        response = connection.getresponse()
        return response.status, response.headers


class Page:
    """Knows the panel: `controls` by label, each with its uuid and newest properties.

    And the scene: `places` of its nodes by name, how often one of them has moved, and which may be dragged.
    """

    def __init__(self, socket):
        self.socket, self.by_uuid = socket, {}
        self.moves, self.places, self.draggable = 0, {}, set()
        threading.Thread(target=self._listen, daemon=True).start()
        self.say(CAMERA)
        self.wait_for(lambda: "ReplayDoneMessage" in self.seen)

    seen: frozenset[str] = frozenset()

    @property
    def controls(self):
        return {control.get("label"): control for control in self.by_uuid.values()}

    def say(self, message):
        self.socket.send(message if isinstance(message, bytes | str) else msgspec.msgpack.encode(message))

    def set(self, label, value):
        self.say({"type": "GuiUpdateMessage", "uuid": self.controls[label]["uuid"], "updates": {"value": value}})

    def wait_for(self, condition):
        assert self.comes_true(condition, PATIENCE_SECONDS), (
            f"after {PATIENCE_SECONDS} s still not; the panel: {self.controls}"
        )

    def comes_true(self, condition, seconds):
        """Whether it does within this time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def texts(self):
        """What stands in the panel as HTML or markdown."""
        return [control[key] for control in self.by_uuid.values() for key in ("content", "_markdown") if key in control]

    def _listen(self):
        with contextlib.suppress(Exception):
            for content in self.socket:
                packed = zstandard.ZstdDecompressor().decompress(
                    content[16 : 16 + int.from_bytes(content[8:16], "little")], int.from_bytes(content[:8], "little")
                )
                for message in msgspec.msgpack.decode(packed)["messages"]:
                    self._note(message)

    def _note(self, message):
        kind, uuid = message["type"], message.get("uuid")
        if kind == "GuiUpdateMessage":
            self.by_uuid.setdefault(uuid, {}).update(message["updates"])
        elif kind.startswith("Gui") and uuid is not None:
            properties = message.get("props") or {}
            self.by_uuid[uuid] = {"uuid": uuid, "value": message.get("value"), **properties}
        elif kind == "SetPositionMessage":
            self.places[message["name"]] = message["position"]
            self.moves += 1
        elif kind == "SetSceneNodeDragBindingsMessage":
            self.draggable.add(message["name"])
        self.seen |= {kind}


@contextlib.contextmanager
def open_page(address):
    """As viser's page does it: the websocket is where the page is."""
    path = address.removeprefix("http://").removesuffix("/")
    with connect(
        f"ws://{path}", origin=f"http://{urlsplit(address).netloc}", subprotocols=[PROTOCOL], max_size=None,
        compression=None,
    ) as socket:  # fmt: skip
        yield Page(socket)
