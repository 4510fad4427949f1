"""Return and reward terms of the last seconds, against time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import viser

from trot.view.browser.charts import add_chart
from trot.view.play.living import Moment


class LiveCharts:
    """Two charts inside a folder; made when the names of the terms are known, after the first step."""

    def __init__(self, folder: viser.GuiFolderHandle, gui: viser.GuiApi) -> None:
        self._folder, self._gui = folder, gui
        self._return: viser.GuiUplotHandle | None = None
        self._terms: viser.GuiUplotHandle | None = None
        self._names: list[str] = []

    def show(self, history: Sequence[Moment]) -> None:
        """Draw these moments."""
        # One point alone has no line, and its axis no length.
        if len(history) < 2:
            return
        if self._return is None or self._terms is None:
            self._names = list(history[-1].terms)
            self._return = self._chart("Return of the episode", ["return"])
            self._terms = self._chart("Reward by term", self._names)
        time = np.array([moment.seconds for moment in history])
        self._return.data = (time, np.array([moment.total for moment in history]))
        self._terms.data = (time, *(np.array([moment.terms[name] for moment in history]) for name in self._names))

    def _chart(self, title: str, names: list[str]) -> viser.GuiUplotHandle:
        with self._folder:
            return add_chart(self._gui, title, "s", names)
