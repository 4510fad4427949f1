"""trot as its peers are measured: on all threads, on one, and on CUDA replayed from graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench.peer import Case, Numbers, Peer, all_cores
from bench.robots import ROBOTS
from bench.window import GraphWindow, Window
from trot.sim.load import load_model
from trot.sim.state import State
from trot.sim.threads import set_num_threads


class Trot(Peer):
    """On all threads, or on CUDA."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.threads = self.wanted_threads()
        set_num_threads(self.threads)
        torch.set_num_threads(self.threads)
        self.device = torch.device(case.device)
        robot = next(robot for robot in ROBOTS if robot.name == case.robot)
        self.window = Window(
            replace(robot, substeps=case.substeps), load_model(Path(case.robot_file)),
            State(self._tensor(case.joint_q), self._tensor(case.joint_qd)),
            [self._tensor(control) for control in case.controls],
        )  # fmt: skip
        self.graphs: GraphWindow | None = None
        self.end = self.window.start
        self.gradients: list[Tensor] = []
        if self.device.type == "cuda":
            self.graphs = GraphWindow(self.window)
            # Positions alone are the loss here; a graph reads its seeds anew each time.
            self.graphs.seeds[1].zero_()
            self.end, self.gradients = self.graphs.forward_end, self.graphs.gradients

    def wanted_threads(self) -> int:
        return all_cores()

    def settings(self) -> str:
        how = f"{self.threads} thread{'s' * (self.threads > 1)}" if self.graphs is None else "CUDA graph of the window"
        return f"semi-implicit Euler, penalty contacts, {'float64' if self.case.double else 'float32'}, {how}"

    def synchronize(self) -> None:
        if self.graphs is not None:
            torch.cuda.synchronize(self.device)

    def forward(self) -> None:
        if self.graphs is not None:
            self.graphs.forward.replay()
            return
        with torch.no_grad():
            self.end = self.window.forward(self.window.controls)

    def gradient(self) -> None:
        if self.graphs is not None:
            self.graphs.kept.replay()
            self.graphs.backward.replay()
            return
        controls = self.window.fresh_controls()
        self.gradients = list(torch.autograd.grad(self.window.forward(controls).joint_q.sum(), controls))

    def positions(self) -> Numbers:
        return _numbers(self.end.joint_q)

    def control_gradient(self) -> Numbers:
        return _numbers(torch.stack(self.gradients))

    def set_controls(self, controls: Numbers) -> None:
        for mine, given in zip(self.window.controls, controls, strict=True):
            mine.copy_(self._tensor(given))

    def _tensor(self, values: Numbers) -> Tensor:
        return torch.tensor(values, dtype=torch.float64 if self.case.double else torch.float32, device=self.device)


class TrotOneThread(Trot):
    """On one core."""

    def wanted_threads(self) -> int:
        return 1


def _numbers(values: Tensor) -> Numbers:
    return np.asarray(values.detach().double().cpu().numpy())
