"""Ctrl-C in the midst of a training, in this process and in one of its own."""

import os
import signal
import subprocess
import sys
import time

from trot.learn.algorithms.shac import Shac
from trot.runs.folder import RunFolder


def ctrl_c_in_iteration(monkeypatch, iteration):
    """From now on the so-manieth iteration of SHAC in this process meets a Ctrl-C; monkeypatch.undo() ends that."""
    finish, calls = Shac.finish, []

    def stopping(self):
        calls.append(None)
        if len(calls) == iteration:
            os.kill(os.getpid(), signal.SIGINT)
        finish(self)

    monkeypatch.setattr(Shac, "finish", stopping)


def timeless_rows(path):
    """Of a run folder's metrics; none where there is no such file yet."""
    if not (path / "metrics.csv").exists():
        return []
    return [
        {name: value for name, value in row.items() if name != "seconds"} for row in RunFolder.open(path).read_metrics()
    ]


def ctrl_c_after_first_row(arguments, path):
    """A trot command that is stopped as soon as the run at `path` has metrics; what it printed, line by line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trot", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    while not timeless_rows(path) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate()
    assert process.returncode == 130
    return printed.splitlines()
