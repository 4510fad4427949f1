"""What a training leaves, for Python and for notebooks: its numbers, its curves, its policy, and its motion."""

from __future__ import annotations

import functools
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trot.api.notebook import InlinePage, nothing_displayed
from trot.envs.randomize import Randomize
from trot.learn.agent import Agent, load_agent
from trot.learn.evaluate import Evaluation, Simulator, evaluate
from trot.learn.train import choose_device
from trot.runs.folder import RunFolder
from trot.view.motion.record import record
from trot.view.motion.trajectory import Trajectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN_SECONDS = 6.0


class TrainedRun:
    """A run and what can be done with it. Everything is read from its folder, which holds all there is.

    Args:
        folder: As `trot train` or trot.train() left it.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        return f"TrainedRun({self.path}: {self.folder.told()})"

    @property
    def path(self) -> Path:
        """Of the run folder, for the commands: `trot view PATH`."""
        return self.folder.path

    @property
    def task(self) -> str:
        """The name that it was trained by."""
        return str(self.folder.settings["task"])

    @property
    def settings(self) -> dict[str, Any]:
        """All that it was trained with, as settings.json keeps it."""
        return self.folder.settings

    @property
    def metrics(self) -> dict[str, NDArray[np.float64]]:
        """The columns of metrics.csv, a number per iteration."""
        rows = self.folder.read_metrics()
        return {name: np.array([row[name] for row in rows]) for name in self.folder.metric_columns()}

    @property
    def returns(self) -> NDArray[np.float64]:
        """Mean return of the latest finished episodes, per iteration; nan before the first one ends."""
        columns = self.metrics
        if not columns:
            return np.zeros(0)
        return np.where(columns["episodes"] > 0, columns["episode_return"], np.nan)

    @property
    def best_return(self) -> float | None:
        """Of the policy in the checkpoint `best`; None as long as no episode has ended."""
        return self.folder.best_return()

    @property
    def checkpoints(self) -> list[str]:
        """In the order of the run's life."""
        return self.folder.checkpoint_names()

    def policy(self, checkpoint: str = "best") -> Agent:
        """A callable: observations, (worlds, num_observations), to actions in [-1, 1]. It is on the CPU."""
        return load_agent(self.folder, checkpoint)

    def evaluate(
        self,
        episodes: int = 128,
        checkpoint: str = "best",
        *,
        device: str = "auto",
        seed: int = 1000,
        stochastic: bool = False,
        simulator: Simulator = "trot",
        randomize: Randomize | None = None,
    ) -> Evaluation:
        """Play new episodes, as `trot eval` does; stochastic: with the policy's noise, else its mean."""
        agent, place = self.policy(checkpoint), "cpu" if simulator == "mujoco" else choose_device(device)
        return evaluate(
            agent, self.task, episodes, place, seed, stochastic, simulator=simulator, randomize=randomize
        )  # fmt: skip

    def plot(self) -> Figure:
        """The learning curve against samples and seconds; `trot plot --health` draws the rest."""
        return plotted([self.path])

    def record(self, seconds: float = SHOWN_SECONDS, checkpoint: str = "best", **how: Any) -> Trajectory:
        """The policy's motion, to save() and to look at; `how` goes on to trot.view.motion.record.record()."""
        return record(os.fspath(self.path), checkpoint=checkpoint, seconds=seconds, **how)

    def show(
        self, seconds: float = SHOWN_SECONDS, checkpoint: str = "best", *, forces: bool = False, **how: Any
    ) -> InlinePage:
        """The policy's motion as a player inside of a notebook; save() makes it a file for any browser."""
        from trot.view.browser.page import page

        motion = self.record(seconds, checkpoint, **how)
        with nothing_displayed():
            text = page(motion, forces=forces)
        return InlinePage(text, f"{self.path.name}, {checkpoint}", len(motion.begins))

    def play(self, *options: str) -> None:
        """A living robot in the browser, to push and to change, until Ctrl-C; options are those of `trot play`."""
        from trot.view.play.play_command import play_command

        play_command([os.fspath(self.path), *options])


def plotted(paths: list[Path]) -> Figure:
    """Learning curves as `trot plot` draws them, as a figure that notebooks show."""
    from trot.view.plots.curves import CURVE_COLUMNS, load_runs
    from trot.view.plots.plot import AXES, curves_figure, with_episodes

    figure = curves_figure(with_episodes(load_runs(paths, CURVE_COLUMNS)), "algo", AXES["both"])
    # Notebooks know how to show figures of pyplot alone, which keeps each of them for ever.
    figure._repr_png_ = functools.partial(_png, figure)  # type: ignore[attr-defined]
    return figure


def _png(figure: Figure) -> bytes:
    from trot.view.plots.figures import write_figure

    file = io.BytesIO()
    write_figure(figure, file, ".png")
    return file.getvalue()
