"""`trot replay-fault`: what a fault file holds, and what went wrong there."""

from __future__ import annotations

import os
from typing import Any

import torch

from trot.envs.explain_fault import explain_fault
from trot.envs.fault import load_fault
from trot.learn.bad_window import explain_offence


def replay_fault(path: str | os.PathLike[str]) -> str:
    """A world that blew up, or a window whose gradient failed, in words."""
    saved = _gradient_fault(path)
    return explain_fault(load_fault(path)) if saved is None else explain_offence(saved)


def _gradient_fault(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    try:
        saved = torch.load(path, weights_only=True, map_location="cpu")
    except Exception:
        # load_fault() says what is wrong with the file.
        return None
    return saved if isinstance(saved, dict) and saved.get("offence") == 1 else None
