"""Who may talk to the viewer: only pages that it served itself, at an address that nobody can guess.

Any page in the user's browser can send requests to this machine, by its number or under a name of its own that leads
here. So the server's name has to be this machine's, the page's origin the server's, and the path begins with a token.
"""

from __future__ import annotations

import gzip
import hmac
import logging
import re
import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec
import viser
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from trot.unpromised import control_uuid
from trot.view.browser.messages import LONGEST_BYTES, ControlUsed, KeyPressed, NodeDragged, Value, read_message

LOOPBACK = "127.0.0.1"
# Any port: behind `ssh -L` the browser knows another one than the server.
HERE = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")
MOST_PAGES = 16
REFUSED = "Only the address that trot printed opens the viewer, on the machine that it runs on.\n"


class Guard:
    """Checks each request and each message to one server."""

    def __init__(self, script: str = "") -> None:
        """The script runs in every page, before viser's own."""
        self._token = secrets.token_hex(16)
        self._script = script
        self._keys: set[str] = set()
        self._rules: dict[str, Callable[[Value], bool]] = {}
        self._draggable: set[str] = set()

    def address(self, port: int) -> str:
        """Of the page. viser's page opens its websocket at the same path, so with the token."""
        return f"http://{LOOPBACK}:{port}/{self._token}/"

    def allow(self, control: Any, rule: Callable[[Value], bool]) -> None:
        """Let pages give this control of viser the values for which the rule holds."""
        self._rules[control_uuid(control)] = rule

    def allow_key(self, command: Any) -> None:
        """Let pages give this command of viser's, by its key."""
        self._keys.add(control_uuid(command))

    def allow_drag(self, node: str) -> None:
        """Let pages drag this node of the scene."""
        self._draggable.add(node)

    def guarded(self, settings: dict[str, Any]) -> dict[str, Any]:
        """What viser starts its websockets server with, and the checks."""
        guard, answer = self, settings.get("process_request")

        class Connection(ServerConnection):
            """Hands on what may be said, written anew, so that viser reads what was checked."""

            async def recv(self, decode: bool | None = None) -> Any:
                while True:
                    allowed = guard.allowed(await super().recv(decode))
                    if allowed is not None:
                        return allowed

        def process_request(connection: ServerConnection, request: Request) -> Response | None:
            path = guard.admitted_path(request)
            if path is None:
                return connection.respond(HTTPStatus.FORBIDDEN, REFUSED)
            if _opens_websocket(request):
                crowded = len(connection.server.connections) >= MOST_PAGES
                return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "Too many pages.\n") if crowded else None
            try:
                response: Response | None = answer(connection, Request(path, request.headers)) if answer else None
            except (OSError, ValueError):
                # A path that no file can have: too long, or with a zero in it.
                response = None
            if response is None:
                return connection.respond(HTTPStatus.NOT_FOUND, "No such page.\n")
            response.headers.update(_page_headers(request.headers["Host"]))
            return _with_script(response, guard._script) if guard._script and path == "/" else response

        checks = {"process_request": process_request, "create_connection": Connection, "max_size": LONGEST_BYTES}
        return {**settings, **checks, "logger": _server_logger()}

    def admitted_path(self, request: Request) -> str | None:
        """The path behind the token; None for a request that no page of this server makes."""
        headers = request.headers
        hosts, origins = headers.get_all("Host"), headers.get_all("Origin")
        if len(hosts) != 1 or HERE.fullmatch(hosts[0]) is None:
            return None
        # A browser names the origin of every websocket; a page that the user opens has none.
        if origins != [f"http://{hosts[0]}"] and (origins or _opens_websocket(request)):
            return None
        # The only version that viser talks to; it would print any other one, as the client wrote it.
        if _opens_websocket(request) and headers.get_all("Sec-WebSocket-Protocol") != [f"viser-v{viser.__version__}"]:
            return None
        token, _, path = request.path.partition("?")[0].removeprefix("/").partition("/")
        # Bytes that are no ASCII come as surrogates.
        same = hmac.compare_digest(token.encode(errors="surrogatepass"), self._token.encode())
        return f"/{path}" if same else None

    def allowed(self, content: str | bytes) -> bytes | None:
        """The message as it may be handed on, or None."""
        message = read_message(content)
        if isinstance(message, ControlUsed):
            rule = self._rules.get(message.uuid)
            if rule is None or not rule(message.updates.value):
                return None
        if isinstance(message, KeyPressed) and message.uuid not in self._keys:
            return None
        if isinstance(message, NodeDragged) and message.name not in self._draggable:
            return None
        return None if message is None else msgspec.msgpack.encode(message)


def _opens_websocket(request: Request) -> bool:
    # In any spelling: what viser does not take for a websocket, it answers with a page.
    return any("websocket" in value.lower() for value in request.headers.get_all("Upgrade"))


def _with_script(response: Response, script: str) -> Response:
    """The page, with the script first in its head."""
    packed = response.headers.get("Content-Encoding") == "gzip"
    page = gzip.decompress(response.body) if packed else response.body
    page = page.replace(b"<head>", b"<head><script>" + script.encode() + b"</script>", 1)
    headers = Headers(response.headers)
    del headers["Content-Encoding"], headers["Content-Length"]
    # As it is: the page's own code in it is packed, and nothing is gained by packing that again.
    headers["Content-Length"] = str(len(page))
    return Response(response.status_code, response.reason_phrase, headers, page)


def _page_headers(host: str) -> dict[str, str]:
    """The page is viser's and makes scripts of text; it may load nothing from elsewhere and tell nobody its address."""
    policy = (
        "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:",
        f"connect-src 'self' ws://{host} data: blob:",
        "script-src-attr 'none'", "frame-src 'none'", "object-src 'none'", "base-uri 'none'", "form-action 'none'",
        "frame-ancestors 'none'",
    )  # fmt: skip
    return {
        "Content-Security-Policy": "; ".join(policy),
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }


def _server_logger() -> logging.Logger:
    """Without a traceback on the user's terminal for every client that speaks something else than HTTP."""
    logger = logging.getLogger("trot.view.server")
    logger.addFilter(_tells_of_the_server)
    return logger


def _tells_of_the_server(record: logging.LogRecord) -> bool:
    return record.getMessage() != "opening handshake failed"
