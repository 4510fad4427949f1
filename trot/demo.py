"""`trot demo`: 64 Ants learn to leap forward, by nothing but gradients through the simulator."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from trot.sim.check import CheckSettings, check_gradients
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.state import State
from trot.sim.step import step

ANT = Path(__file__).parent / "envs" / "assets" / "ant.xml"
DT, SUBSTEPS = 1 / 60, 16


def run_demo(worlds: int = 64, steps: int = 32, iterations: int = 40, device: str = "cpu") -> None:
    """Simulate Ants, check the gradient, then improve their controls by gradient ascent.

    Args:
        worlds: Ants in parallel.
        steps: Control steps of the motion, 1/60 s each.
        iterations: Gradient steps.
        device: cpu or cuda.
    """
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("PyTorch finds no CUDA device here. Leave out --device.")
    model = load_model(ANT)
    rows = check_gradients(model, CheckSettings(ANT, worlds=4))
    print(f"gradients against central differences: largest relative error {max(row.error for row in rows):.1e}")
    torch.manual_seed(0)
    start = _standing(model, worlds, device)
    controls = (0.1 * torch.randn(steps, worlds, model.num_controls, device=device)).requires_grad_()
    optimiser = torch.optim.Adam([controls], lr=0.05)
    began = time.perf_counter()
    first = reached = 0.0
    for iteration in range(iterations + 1):
        distance = _distance(model, start, controls).mean()
        reached = distance.item()
        if iteration == 0:
            first = reached
        if iteration % 10 == 0:
            print(f"iteration {iteration:3d}: mean distance after {steps * DT:.2f} s is {reached:.2f} m")
        optimiser.zero_grad()
        (-distance).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    seconds = time.perf_counter() - began
    substeps = (iterations + 1) * steps * SUBSTEPS * worlds
    print(
        f"from {first:.2f} m to {reached:.2f} m in {seconds:.1f} s: "
        f"{substeps / seconds / 1e6:.1f} million physics steps per second, forward and backward"
    )


def _standing(model: Model, worlds: int, device: str) -> State:
    """The Ant's start pose: knees bent, a little above the ground."""
    state = model.default_state(worlds, device)
    joint_q = state.joint_q.clone()
    joint_q[:, 7:] = torch.tensor([0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0], device=device)
    return State(joint_q, state.joint_qd)


def _distance(model: Model, state: State, controls: torch.Tensor) -> torch.Tensor:
    for control in controls:
        state = step(model, state, torch.tanh(control), DT, SUBSTEPS)
    return state.joint_q[:, 0]
