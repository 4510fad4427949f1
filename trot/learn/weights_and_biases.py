"""Metrics for Weights & Biases, for runs that ask for it: `trot train --wandb`, after pip install "trot[wandb]"."""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Sequence
from typing import Any

from trot.runs.folder import RunFolder

WANDB = "wandb"
"""Of a run's settings, where the run logs to W&B."""


class WandbWriter:
    """Logs a row as one step; W&B itself leaves out steps that it has already, as of a run that was resumed."""

    def __init__(self, wandb_run: Any) -> None:
        self._wandb_run = wandb_run

    def write(self, rows: Sequence[dict[str, float | int]]) -> None:
        for row in rows:
            values = {name: value for name, value in row.items() if name != "iteration"}
            self._wandb_run.log(values, step=int(row["iteration"]))

    def close(self) -> None:
        self._wandb_run.finish()


def new_wandb_run() -> dict[str, str]:
    """What the settings of a new run keep, so that it goes on as the same run of W&B when it is resumed."""
    return {"id": secrets.token_hex(8)}


def open_wandb(run: RunFolder) -> WandbWriter | None:
    """A writer for a run whose settings ask for it. W&B's own variables rule: WANDB_MODE=offline, WANDB_PROJECT, ..."""
    if WANDB not in run.settings:
        return None
    module = require_wandb()
    try:
        wandb_run = module.init(
            project=os.environ.get("WANDB_PROJECT", "trot"),
            name=os.environ.get("WANDB_NAME", run.path.name),
            id=run.settings[WANDB]["id"],
            resume="allow",
            dir=str(run.path),
            config=run.settings,
            # Several seeds train in one process, each as a run of its own.
            reinit="create_new",
            # Else W&B takes hold of the terminal, and the line of progress is spoilt.
            settings=module.Settings(console="off"),
        )
    except module.Error as error:
        raise ValueError(
            f"W&B does not take the run: {str(error).rstrip('.')}. After `wandb login`: trot resume {run.path}; "
            f"without an account or network: WANDB_MODE=offline trot resume {run.path}"
        ) from None
    return WandbWriter(wandb_run)


def require_wandb() -> Any:
    """The module wandb; ValueError where it is not installed."""
    try:
        module: Any = importlib.import_module("wandb")
    except ImportError:
        module = None
    # A folder named wandb, such as W&B leaves where it runs, is an empty package to Python.
    if not hasattr(module, "init"):
        raise ValueError('W&B is not installed here: pip install "trot[wandb]"')
    return module
