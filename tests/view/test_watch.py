"""`trot train --view` and `trot play --watch`: the newest policy, the curve, and no process left over."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("viser", reason='needs viser: pip install "trot[view]"')

from browser import CHROMIUM, MISSING, browser_page
from made_run import make_agent, make_run
from viewer_page import open_page

from trot.cli import main
from trot.learn import watched as watched_module
from trot.learn.bad_window import CHECKPOINT as BAD_WINDOW
from trot.learn.watched import watched
from trot.view.browser import view_command
from trot.view.play.run_watch import LOOK_SECONDS, MOST_POINTS, RunWatch, curve

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 180


def row(iteration, mean, episodes=1):
    return {"iteration": iteration, "episodes": episodes, "episode_return": mean}


def test_the_curve_begins_with_the_first_episode_and_ends_with_the_newest():
    iterations, returns = curve([row(1, 0.0, 0), row(2, 5.0), row(3, float("nan")), row(4, 7.0)])
    assert (iterations.tolist(), returns.tolist()) == ([2, 4], [5, 7])
    assert [len(part) for part in curve([])] == [0, 0]
    iterations, returns = curve([row(k, 2.0 * k) for k in range(1, 1002)])
    assert len(iterations) <= MOST_POINTS and iterations[-1] == 1001 and returns[-1] == 2002
    assert len(set(np.diff(iterations))) == 1
    assert curve([row(k, 0.0) for k in range(MOST_POINTS)])[0].tolist() == list(range(MOST_POINTS))


def test_a_look_finds_the_newest_policy_once_and_what_cannot_be_read_is_left_for_later(tmp_path):
    run, best = make_run(tmp_path)
    for name, seconds in (("best", 200), ("last", 100)):
        os.utime(run.path / "checkpoints" / f"{name}.pt", (seconds, seconds))
    watch = RunWatch(run)
    news = watch.look(10.0)
    assert "before its first iteration" in news.about and "'best'" in news.about
    assert all(value.equal(best.state_dict()[name]) for name, value in news.agent.state_dict().items())
    assert watch.look(10.0 + LOOK_SECONDS / 2) is None
    assert watch.look(20.0).agent is None

    newer = make_agent(best.num_observations, best.num_actions, seed=5)
    run.save_checkpoint("last", {"agent": newer.saved(), "iteration": 8})
    run.append_metrics([row(1, -3.0), row(2, 12.25)])
    news = watch.look(30.0)
    assert all(value.equal(newer.state_dict()[name]) for name, value in news.agent.state_dict().items())
    assert "iteration 2 of" in news.about and "return 12.2" in news.about and news.returns.tolist() == [-3, 12.25]

    (run.path / "checkpoints" / "last.pt").write_bytes(b"half a file")
    assert watch.look(40.0) is None
    run.save_checkpoint("last", {"agent": newer.saved(), "iteration": 9})
    assert watch.look(50.0).agent is not None


def test_a_run_that_a_bad_gradient_stopped_shows_its_newest_policy(tmp_path):
    """The window that it was stopped in is the last file it writes, and holds no policy."""
    run, _ = make_run(tmp_path)
    run.append_metrics([row(1, -3.0)])
    run.save_checkpoint(BAD_WINDOW, {"bad_window": 2})
    later = time.time() + 100
    os.utime(run.path / "checkpoints" / f"{BAD_WINDOW}.pt", (later, later))
    assert BAD_WINDOW in run.checkpoint_names()
    news = RunWatch(run).look(10.0)
    assert news is not None and news.agent is not None and news.returns.tolist() == [-3]
    assert view_command._checkpoints(str(run.path)) == ["best", "last"]


def test_what_cannot_be_watched_is_one_line(tmp_path, capsys):
    cases = {
        ("play", "cartpole", "--watch", "--no-browser"): "--watch is for the folder of a run",
        ("train", "cartpole", "--view", "--seeds", "0", "1"): "--view shows one run",
    }
    for arguments, part in cases.items():
        assert main([*arguments]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert part in line


def alive(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "Z" not in (Path("/proc") / str(pid) / "stat").read_text().split(")")[-1].split()[0]
    return False


def wait_until(condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + "/pid", "w").write(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize("stubborn", [False, True])
def test_the_viewer_ends_with_the_training_however_that_ends(stubborn, tmp_path, monkeypatch):
    run, _ = make_run(tmp_path)
    body = STUBBORN if stubborn else STUBBORN.replace("time.sleep(600)", "sys.stdin.read()")
    (tmp_path / "some_viewer.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(watched_module, "VIEWER", "some_viewer")
    monkeypatch.setattr(watched_module, "PATIENCE_SECONDS", 0.5 if stubborn else 30.0)
    for error in (None, KeyboardInterrupt, SystemExit):
        note = run.path / "pid"
        note.unlink(missing_ok=True)
        with contextlib.suppress(KeyboardInterrupt, SystemExit), watched(run, view=True):
            wait_until(lambda note=note: note.exists() and note.read_text())
            pid = int(note.read_text())
            assert alive(pid)
            if error is not None:
                raise error
        assert not alive(pid)


@contextlib.contextmanager
def training_in_view(folder, *more):
    """`trot train cartpole --view`, the address of its page, and the process that shows it."""
    command = [sys.executable, "-m", "trot", "train", "cartpole", "--view", "--device", "cpu", "--runs", str(folder)]
    settings = {**os.environ, "BROWSER": "true"}
    with subprocess.Popen(
        [*command, *more], cwd=ROOT, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        try:
            address = next(found[0] for line in process.stdout if (found := re.search(r"http://[^ ]+", line)))
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            (viewer,) = (
                int(child) for child in children if b"beside_training" in Path(f"/proc/{child}/cmdline").read_bytes()
            )
            yield process, address, viewer
        finally:
            process.kill()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in Linux's /proc")
@pytest.mark.parametrize("end", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.campaign)])
def test_a_training_is_watched_and_one_signal_ends_both(end, tmp_path):
    with training_in_view(tmp_path) as (process, address, viewer), open_page(address) as page:
        # A session of its own has to be nice as a whole, where sessions are what shares the cores.
        group = Path(f"/proc/{viewer}/autogroup")
        wait_until(lambda: not group.exists() or group.read_text().endswith(" nice 15\n"))
        threads = [int(thread.name) for thread in Path(f"/proc/{viewer}/task").iterdir()]
        lowest = min(os.getpriority(os.PRIO_PROCESS, thread) for thread in threads)
        assert lowest == 15 > os.getpriority(os.PRIO_PROCESS, process.pid)
        page.wait_for(lambda: page.moves > 20)
        page.wait_for(lambda: any("iteration" in text for text in page.texts()))
        process.send_signal(end)
        process.wait(PATIENCE_SECONDS)
        wait_until(lambda: not alive(viewer))
        assert process.returncode == (130 if end == signal.SIGINT else -end)


@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
@pytest.mark.parametrize("size", [(1000, 700), (390, 844)], ids=["screen", "phone"])
def test_a_browser_shows_the_curve_of_a_training(size, tmp_path):
    folder = ROOT / "build" / "screenshots" / f"watch_{size[0]}"
    folder.mkdir(parents=True, exist_ok=True)
    with training_in_view(tmp_path) as (process, address, _), browser_page() as tab:
        tab.call(
            "Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1,
            mobile=size[0] < 500,
        )  # fmt: skip
        tab.open(address, offline=False)
        tab.wait_for("document.querySelectorAll('.uplot').length == 3")
        tab.wait_for("document.body.innerText.includes('Return by iteration')")
        tab.wait_for("/iteration \\d+ of/.test(document.body.innerText)")
        tab.screenshot(folder / "learning.png")
        assert process.poll() is None
