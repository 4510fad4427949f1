"""Which machine, which versions and which commit a run was made with."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("trot", "torch", "warp-lang", "mujoco")


def describe_machine() -> dict[str, Any]:
    """Everything that may explain later why two runs differ; None for what this machine does not tell."""
    # Not above: PyTorch takes seconds to import, and only this needs it.
    import torch

    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": _git_state(),
        "versions": {package: _version(package) for package in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _git_state() -> dict[str, Any] | None:
    """The working folder's commit, and whether files that git knows have changed since."""
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    return None if commit is None or changes is None else {"commit": commit, "dirty": changes != ""}


def _git(*arguments: str) -> str | None:
    # Without optional locks: a look at the state must not get in the way of a commit that is being made.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor_name() -> str:
    """As the system calls it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
