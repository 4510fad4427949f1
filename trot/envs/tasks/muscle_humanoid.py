"""Muscle Humanoid: the lower half of a human body, moved by 152 muscles; run forward."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from trot.envs.entry import Entries
from trot.envs.start import SMALL_TURN, Start
from trot.envs.task import ASSETS, Task
from trot.envs.torso import Torso, height_bonus, measure_torso, squared_norm, torso_entries, torso_observation
from trot.sim.state import State

FALLEN_HEIGHT = 0.46


def activation(action: Tensor) -> Tensor:
    """From actions in [-1, 1] to muscle activations in [0, 1]."""
    return (action + 1) / 2


class MuscleHumanoid(Task[Torso]):
    """Its body frames have y up and face z, as in the data they come from."""

    summary = "a human lower body with 152 muscles: run forward"
    robot = ASSETS / "muscle_humanoid.xml"
    start = Start(position_noise=0.1, angle_noise=SMALL_TURN, velocity_noise=0.25)
    substeps = 48

    def control(self, action: Tensor) -> Tensor:
        return activation(action)

    def measure(self, state: State) -> Torso:
        return measure_torso(state, target_distance=10_000, up_axis="y", forward_axis="z")

    def observation(self, measured: Torso, previous_action: Tensor) -> dict[str, Tensor]:
        return torso_observation(measured)

    def observation_entries(self) -> Entries:
        return torso_entries(self.model, up_axis="y", forward_axis="z")

    def reward_terms(self, measured: Torso, action: Tensor) -> dict[str, Tensor]:
        return {
            "forward": measured.forward_speed,
            "up": 0.1 * measured.up,
            "heading": measured.heading,
            "height": height_bonus(measured.height, wanted=0.51, reach=0.05, gain=4),
            "effort": -0.001 * squared_norm(activation(action)),
        }

    def fallen(self, measured: Torso) -> Tensor:
        return measured.height < FALLEN_HEIGHT

    def looks_fallen(self, observation: Mapping[str, Tensor]) -> Tensor:
        return observation["height"] < FALLEN_HEIGHT
