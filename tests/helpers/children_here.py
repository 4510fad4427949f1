"""Trot commands that a comparison would start as processes, in this process instead: PyTorch is imported once."""

import contextlib
import io
import os
import subprocess
from types import SimpleNamespace

from trot.cli import main


class RanHere:
    """Stands for the process of a trot command. It has ended when it is there, and its log is written."""

    pid = 0

    def __init__(self, command, *, stdout, **_):
        assert command[1:3] == ["-m", "trot"]
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
            self.code = main(command[3:])
        stdout.write(said.getvalue().encode())

    def poll(self):
        return self.code


def run_children_here(monkeypatch):
    """From now on; tests/compare/test_children.py and one interrupted comparison see to the processes themselves."""
    others = SimpleNamespace(Popen=RanHere, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr("trot.compare.children.subprocess", others)
    # There is no process to give cores of its own.
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
