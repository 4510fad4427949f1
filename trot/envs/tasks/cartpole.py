"""CartPole SwingUp: a pole hangs from a cart; swing it up and hold it there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from trot.envs.cart_and_pole import cart_and_pole
from trot.envs.entry import Entries, Entry
from trot.envs.start import Start
from trot.envs.task import ASSETS, Task
from trot.sim.state import State


@dataclass(frozen=True)
class Measurement:
    """Columns, one row per world."""

    position: Tensor
    """Of the cart, m."""
    velocity: Tensor
    sine: Tensor
    """Of the pole's angle, which is 0 upright and positive towards +x."""
    cosine: Tensor
    angle_rate: Tensor


class CartPole(Task[Measurement]):
    """Reward is at most 0, the pole upright and the cart still in the middle."""

    summary = "a pole on a cart: swing it up and balance it"
    robot = ASSETS / "cartpole.xml"
    start = Start(joint_q=(0.0, -math.pi), joint_noise=math.pi / 2, velocity_noise=0.25)
    substeps = 4
    episode_length = 240

    def measure(self, state: State) -> Measurement:
        return Measurement(*cart_and_pole(state))

    def observation(self, measured: Measurement, previous_action: Tensor) -> dict[str, Tensor]:
        return {
            "position": measured.position,
            "velocity": measured.velocity,
            "sine": measured.sine,
            "cosine": measured.cosine,
            "angle_rate": measured.angle_rate,
        }

    def observation_entries(self) -> Entries:
        return {
            "position": [Entry("cart position x", "m", "world")],
            "velocity": [Entry("cart velocity x", "m/s", "world")],
            "sine": [Entry("sine of the pole's angle, 0 upright, positive towards +x", "1", "world")],
            "cosine": [Entry("cosine of the pole's angle, 0 upright", "1", "world")],
            "angle_rate": [Entry("pole rate", "rad/s", "joint")],
        }

    def reward_terms(self, measured: Measurement, action: Tensor) -> dict[str, Tensor]:
        # Sine and cosine bring the angle back to within half a turn.
        wrapped = torch.atan2(measured.sine, measured.cosine)
        return {
            "angle": -wrapped.square(),
            "angle_rate": -0.1 * measured.angle_rate.square(),
            "position": -0.05 * measured.position.square(),
            "velocity": -0.1 * measured.velocity.square(),
        }
