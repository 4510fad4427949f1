"""From a command to a page: a server, its address on the terminal, a browser that opens it, and the loop behind it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator

import viser

from trot.view.browser.page import quiet_server
from trot.view.browser.page_guard import Guard

USUAL_PORT = 8080


@contextlib.contextmanager
def page_server(title: str, port: int | None, guard: Guard) -> Iterator[viser.ViserServer]:
    """A server whose panel has this title, at this port or else at the usual one, or any where that is taken."""
    with contextlib.ExitStack() as open_:
        try:
            server = open_.enter_context(quiet_server(USUAL_PORT if port is None else port, guard))
        except ValueError:
            if port is not None:
                raise
            server = open_.enter_context(quiet_server(0, guard))
        server.gui.set_panel_label(f"trot: {title}")
        # Sharing would open a tunnel to the outside.
        server.gui.configure_theme(show_logo=False, show_share_button=False)
        yield server


def show_until_stopped(
    title: str, url: str, open_browser: bool, hint: str, tick: Callable[[float], float],
    shown: Callable[[], object] = lambda: None,
) -> None:  # fmt: skip
    """Say where the page is, open it, and call tick() as often as it asks for, until Ctrl-C."""
    print(f"{title}: {url} (Ctrl-C ends)\n{hint}", flush=True)
    if open_browser:
        if has_screen():
            webbrowser.open(url)
        else:
            port = url.split(":")[2].split("/")[0]
            print(f"There is no screen here. From another machine: ssh -L {port}:127.0.0.1:{port} HOST", flush=True)
    shown()
    try:
        while True:
            began = time.monotonic()
            wait = tick(began)
            time.sleep(max(0.0, began + wait - time.monotonic()))
    except KeyboardInterrupt:
        print()


def has_screen() -> bool:
    """Whether a browser with pictures can open: without, Python takes one for terminals, which fills this one."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
