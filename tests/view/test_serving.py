"""The way from a command to a page: a port that is free, an address, and a browser where there is a screen."""

import socket
import sys

import pytest

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from made_run import make_run

from trot import demo
from trot.view.browser import serving
from trot.view.browser.page_guard import Guard
from trot.view.browser.serving import has_screen, page_server, show_until_stopped

SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@pytest.fixture
def opened(monkeypatch):
    """What a browser was asked to open, on a Linux without a screen."""
    addresses = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("webbrowser.open", addresses.append)
    for name in SCREENS:
        monkeypatch.delenv(name, raising=False)
    return addresses


def ended(_):
    raise KeyboardInterrupt


def test_where_there_is_a_screen(opened, monkeypatch):
    assert not has_screen()
    for name in SCREENS:
        with monkeypatch.context() as there:
            there.setenv(name, ":0")
            assert has_screen()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert has_screen()


def test_without_a_screen_the_way_from_another_machine_is_told(opened, monkeypatch, capsys):
    show_until_stopped("ant", "http://127.0.0.1:8123/token/", True, "Drag it.", ended)
    assert capsys.readouterr().out.splitlines() == [
        "ant: http://127.0.0.1:8123/token/ (Ctrl-C ends)",
        "Drag it.",
        "There is no screen here. From another machine: ssh -L 8123:127.0.0.1:8123 HOST",
        "",
    ]
    assert not opened
    monkeypatch.setenv("DISPLAY", ":0")
    show_until_stopped("ant", "http://127.0.0.1:8123/token/", False, "Drag it.", ended)
    assert not opened and "ssh" not in capsys.readouterr().out
    show_until_stopped("ant", "http://127.0.0.1:8123/token/", True, "Drag it.", ended)
    assert opened == ["http://127.0.0.1:8123/token/"]


def test_the_usual_port_gives_way_and_one_that_was_asked_for_does_not(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        monkeypatch.setattr(serving, "USUAL_PORT", port)
        with page_server("ant", None, Guard()) as server:
            assert server.get_port() not in (0, port)
        with pytest.raises(ValueError, match=f"port {port} is taken"), page_server("ant", port, Guard()):
            pass


def test_the_demo_opens_its_page_for_a_person_alone(opened, monkeypatch, tmp_path, capsys):
    run, _ = make_run(tmp_path)
    monkeypatch.setenv("DISPLAY", ":0")
    demo._write_page(run)
    assert not opened and "Watch it: open" in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    demo._write_page(run)
    assert opened == [(run.path / "motion.html").resolve().as_uri()]
