"""Hopper: a planar robot with one leg; hop forward and stay up."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from trot.envs.entry import Entries
from trot.envs.planar import Planar, measure_planar, planar_entries, planar_observation
from trot.envs.start import Start
from trot.envs.task import ASSETS, Task
from trot.envs.torso import height_bonus, squared_norm
from trot.sim.state import State

FALLEN_HEIGHT = -0.45


class Hopper(Task[Planar]):
    """Heights are relative to 1.25 m above the ground."""

    summary = "a planar leg: hop forward without falling"
    robot = ASSETS / "hopper.xml"
    start = Start(joint_noise=0.05, velocity_noise=0.05)

    def measure(self, state: State) -> Planar:
        return measure_planar(state)

    def observation(self, measured: Planar, previous_action: Tensor) -> dict[str, Tensor]:
        return planar_observation(measured)

    def observation_entries(self) -> Entries:
        return planar_entries(self.model)

    def reward_terms(self, measured: Planar, action: Tensor) -> dict[str, Tensor]:
        return {
            "forward": measured.forward_speed,
            "height": height_bonus(measured.height, wanted=-0.3, reach=0.3, gain=1),
            "upright": 1 - (measured.pitch / (math.pi / 6)).square(),
            "effort": -0.1 * squared_norm(action),
        }

    def fallen(self, measured: Planar) -> Tensor:
        return measured.height < FALLEN_HEIGHT

    def looks_fallen(self, observation: Mapping[str, Tensor]) -> Tensor:
        return observation["height"] < FALLEN_HEIGHT
