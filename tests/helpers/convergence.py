"""One world in float64: runs it, and measures how it converges to a closed form as time steps shrink.

Semi-implicit Euler is a first-order method, so most tests halve the time step a few times, measure that order, and
allow at each step size the error that one step of the exact motion makes up: a first-order method is early or late by
a fraction of a step. Laws that the method reproduces exactly (constant forces, points of rest) are checked to rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from trot.sim.model import Model
from trot.sim.state import State
from trot.sim.step import step

ROUNDING = 1e-11
"""Relative: a few thousand steps of float64, 1e-16 each, with some to spare."""


def at(q: object, qd: object) -> State:
    """One world."""
    return State(*(torch.tensor(np.atleast_2d(np.asarray(x, float))) for x in (q, qd)))


def advance(model: Model, state: State, duration: float, substeps: int = 1, control: object = None) -> State:
    control = np.zeros(model.num_controls) if control is None else control
    return step(model, state, torch.tensor(np.atleast_2d(np.asarray(control, float))), duration, substeps)


def final(model: Model, q: object, qd: object, duration: float, substeps: int, control: object = None) -> np.ndarray:
    """joint_q and joint_qd after the duration, one after the other."""
    state = advance(model, at(q, qd), duration, substeps, control)
    return np.concatenate([state.joint_q[0].numpy(), state.joint_qd[0].numpy()])


def acceleration(model: Model, q: object, qd: object, control: object = None) -> np.ndarray:
    """What one step adds to joint_qd, per second."""
    dt = 2.0**-10
    return (advance(model, at(q, qd), dt, 1, control).joint_qd[0].numpy() - np.asarray(qd, float)) / dt


def trajectory(
    model: Model, state: State, duration: float, rows: int, substeps: int, control: object = None
) -> np.ndarray:
    """joint_q and joint_qd after each of `rows` equal parts of the duration."""
    result = []
    for _ in range(rows):
        state = advance(model, state, duration / rows, substeps, control)
        result.append(np.concatenate([state.joint_q[0].numpy(), state.joint_qd[0].numpy()]))
    return np.array(result)


def assert_converges(
    simulate: Callable[[int], object],
    exact: object,
    rate: object,
    duration: float,
    *,
    order: int = 1,
    coarsest: int = 500,
    steps: float = 1,
) -> None:
    """Errors shrink like dt ** order, and are within the motion of one step.

    rate: how much the exact result changes per second (its n-th derivative for order n). simulate takes the number of
    steps. steps: how many steps' worth of motion the error may be, where more than one.
    """
    counts = coarsest * 2 ** np.arange(4)
    dt = duration / counts
    rate = np.asarray(rate, float)
    errors = np.abs([np.asarray(simulate(int(count)), float) - exact for count in counts]).reshape(len(counts), -1)
    in_steps = errors / (rate * dt[:, None] ** order)
    assert in_steps.max() < steps, in_steps
    measured = np.polyfit(np.log(dt), np.log(np.linalg.norm(errors / rate, axis=1)), 1)[0]
    assert abs(measured - order) < 0.1, (measured, in_steps)
