"""Ant, Humanoid and muscle Humanoid: a lively state of each, with the numbers that were put into it."""

from __future__ import annotations

import numpy as np
import torch
from closed_forms import UPRIGHT, times, turn
from exact_tasks import rows

import trot

NAMES = ["ant", "humanoid", "muscle_humanoid"]

# The muscle Humanoid's body frames have x left, y up, z forward: at the start they turn x to y, y to z, z to x.
START_ROTATION = {"ant": UPRIGHT, "humanoid": UPRIGHT, "muscle_humanoid": (0.5, 0.5, 0.5, 0.5)}
SUBSTEPS = {"ant": 16, "humanoid": 48, "muscle_humanoid": 48}
# Name: height wanted, how far above it counts, factor on that.
HEIGHT_REWARD = {"humanoid": (0.84, 0.1, 10), "muscle_humanoid": (0.51, 0.05, 4)}


def copy_of(state: trot.State) -> trot.State:
    return trot.State(state.joint_q.clone(), state.joint_qd.clone())


def cos(degrees: float) -> float:
    return np.cos(np.radians(degrees))


def sin(degrees: float) -> float:
    return np.sin(np.radians(degrees))


# A state of each task. All are turned 30 degrees about z, then 20 about the new y, then 10 about the new x. So the
# nose points along (cos 30 cos 20, sin 30 cos 20, -sin 20), and the crown's height is cos 20 cos 10.
TURN = times(turn("z", np.radians(30)), turn("y", np.radians(20)), turn("x", np.radians(10)))
UP = cos(20) * cos(10)
LINEAR = (1.5, -0.7, 0.4)
ANGULAR = (0.3, -1.1, 0.8)  # in body axes
PLACE = {"ant": (3, -2, 0.6), "humanoid": (150, 50, 0.9), "muscle_humanoid": (-40, 700, 0.53)}
HEADING = {
    # The way to the target: (9997, 2).
    "ant": cos(20) * (cos(30) * 9997 + sin(30) * 2) / np.hypot(9997, 2),
    # (50, -50): 45 degrees to the right, where the nose is 30 to the left.
    "humanoid": cos(20) * cos(75),
    # (10040, -700).
    "muscle_humanoid": cos(20) * (cos(30) * 10040 - sin(30) * 700) / np.hypot(10040, 700),
}
RIGHT_LEG = [*turn("x", 0.4), 0.5, *turn("z", -0.3), 0.1, -0.2]
LEFT_LEG = [*turn("y", -0.6), 1.5, *turn("x", 0.2), -0.3, 0.4]
JOINTS = {
    "ant": [0.1, 0.9, -0.2, -1.1, 0.3, -0.8, -0.4, 1.2],
    "humanoid": [0.05 * k for k in range(-10, 11)],
    "muscle_humanoid": [*RIGHT_LEG, *LEFT_LEG],
}
RATES = {
    "ant": [1, -2, 3, -4, 5, -6, 7, -8],
    "humanoid": [0.7 * k for k in range(-7, 14)],
    "muscle_humanoid": [0.9 * k for k in range(-5, 13)],
}


def state_of(name: str) -> trot.State:
    quaternion = times(TURN, START_ROTATION[name])
    return trot.State(rows([*PLACE[name], *quaternion, *JOINTS[name]]), rows([*LINEAR, *ANGULAR, *RATES[name]]))


def actions(env: trot.Env) -> torch.Tensor:
    """From -0.5 to 1 in even steps."""
    return rows(np.linspace(-0.5, 1, env.num_actions)).repeat(env.num_worlds, 1)


def squares(values: object) -> float:
    return sum(float(value) ** 2 for value in values)
