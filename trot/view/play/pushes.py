"""Pushes and pulls from outside. The simulator takes no forces, so they act as jumps of velocity between two steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trot.sim.model import Floats
from trot.view.play.inertia import Inertia

STIFFNESS_RATE = 8.0
"""1/s: the spring would let the whole robot, taken as a point, swing at this rate, and damps it critically."""
MOST_WEIGHTS = 10.0
"""No pull is stronger than this many times the robot's weight on Earth."""
EARTH = 9.81

DIRECTIONS: dict[str, tuple[float, float, float]] = {
    "forward": (1.0, 0.0, 0.0),
    "back": (-1.0, 0.0, 0.0),
    "left": (0.0, 1.0, 0.0),
    "right": (0.0, -1.0, 0.0),
    "up": (0.0, 0.0, 1.0),
}


@dataclass(frozen=True)
class Pull:
    """A spring from a point of a body to a point of the world."""

    body: int
    """MuJoCo's number."""
    point: tuple[float, float, float]
    """In the body's frame."""
    target: tuple[float, float, float]
    """In the world."""


def push_jump(inertia: Inertia, body: int, impulse: Floats) -> Floats:
    """(num_dofs,) how joint_qd changes when a body is pushed at its centre of mass by so many newton-seconds."""
    jacobian = inertia.jacobian(body, inertia.centre(body))
    jump: Floats = inertia.divided((impulse @ jacobian)[None])[0]
    return jump


def pull_jump(inertia: Inertia, joint_qd: Floats, pull: Pull, dt: float) -> Floats:
    """(num_dofs,) how joint_qd changes by dt seconds of a pull.

    The spring is implicit: its force is that at the end of the time, so that it cannot overshoot however light the
    body is. With x the stretch, v the point's velocity, A = J M^-1 J^T and v' = v + A p,
    p = dt (k (x - dt v') - c v').
    """
    point = inertia.to_world(pull.body, np.array(pull.point))
    jacobian = inertia.jacobian(pull.body, point)
    answer = inertia.divided(jacobian)
    mass = inertia.total_mass
    stiffness, damping = mass * STIFFNESS_RATE**2, 2 * mass * STIFFNESS_RATE
    stretch, velocity = np.array(pull.target) - point, jacobian @ joint_qd
    slowing = dt * (dt * stiffness + damping)
    asked = dt * stiffness * stretch - slowing * velocity
    impulse = np.linalg.solve(np.eye(3) + slowing * jacobian @ answer.T, asked)
    most = MOST_WEIGHTS * mass * EARTH * dt
    impulse *= min(1.0, most / max(float(np.linalg.norm(impulse)), 1e-12))
    jump: Floats = impulse @ answer
    return jump


def directions_of(inertia: Inertia, body: int) -> list[str]:
    """The directions in which a push on this body moves anything: a robot that lives in a plane has fewer."""
    jacobian = inertia.jacobian(body, inertia.centre(body))
    return [name for name, direction in DIRECTIONS.items() if np.abs(np.array(direction) @ jacobian).max() > 1e-6]
