"""A real browser without a screen: Chromium, steered through its DevTools protocol."""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import io
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "no Chromium here, so NOTHING checks that pages draw; Debian: apt-get install chromium"
PATIENCE_SECONDS = 180
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--enable-unsafe-swiftshader",
    "--no-first-run", "--disable-extensions", "--hide-scrollbars",
    "--remote-debugging-port=0", "--window-size=1000,700",
)  # fmt: skip


PLAIN = {"smooth": False, "shadows": False, "image": None, "lights": [2.5]}
"""A picture of viser's as trot has it drawn without a GPU."""


class Page:
    """One tab. `errors` holds what its console complained about, `requests` what it fetched."""

    def __init__(self, socket):
        self._socket, self._last_id = socket, 0
        self.errors, self.requests = [], []

    def call(self, method, **params):
        self._last_id += 1
        self._socket.send(json.dumps({"id": self._last_id, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE_SECONDS))
            if message.get("id") == self._last_id:
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def open(self, url, *, offline):
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        if offline:
            self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0,
                      uploadThroughput=0)  # fmt: skip
        self.call("Page.navigate", url=url)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def wait_for(self, expression):
        end = time.monotonic() + PATIENCE_SECONDS
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"after {PATIENCE_SECONDS} s still not: {expression}"
            time.sleep(0.05)
        return value

    def plainness(self):
        """Of viser's picture, by what is left out without a GPU: smooth edges, shadows and light from an image."""
        return self.evaluate("""(() => {
            const { scene } = __viserMutable, { gl } = scene.__r3f.root.getState(), lights = [];
            scene.traverse(node => { if (node.isAmbientLight) lights.push(node.intensity); });
            return { smooth: gl.getContext().getContextAttributes().antialias, shadows: gl.shadowMap.enabled,
                     image: scene.environment, lights }; })()""")

    def screenshot(self, path: Path):
        """Also written to a file, to look at."""
        content = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(content)
        return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(" ".join(str(part.get("value", part.get("description"))) for part in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method in ("Network.requestWillBeSent", "Network.webSocketCreated"):
            self.requests.append(params.get("url") or params["request"]["url"])


@contextlib.contextmanager
def browser_page():
    """An empty tab that shares nothing with the tabs before it."""
    chromium = _chromium()
    with connect(chromium.address, max_size=None) as socket:
        steering = Page(socket)
        profile = steering.call("Target.createBrowserContext")["browserContextId"]
        tab = steering.call("Target.createTarget", url="about:blank", browserContextId=profile)["targetId"]
        try:
            with connect(f"{chromium.address.partition('/devtools/')[0]}/devtools/page/{tab}", max_size=None) as socket:
                yield Page(socket)
        finally:
            steering.call("Target.disposeBrowserContext", browserContextId=profile)


class _Chromium:
    """A browser for all tests of this process: each would start one in seconds, and build its shaders anew."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self.end)
        self.address = self._address()

    def end(self):
        self.process.terminate()
        self.process.wait()
        self._folder.cleanup()

    def _address(self):
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError):
                port, path = (Path(self._folder.name) / "DevToolsActivePort").read_text().splitlines()
                return f"ws://127.0.0.1:{port}{path}"
            time.sleep(0.05)
        raise AssertionError(f"Chromium did not start within {PATIENCE_SECONDS} s")


@functools.cache
def _chromium():
    return _Chromium()
