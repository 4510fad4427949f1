"""Ant: four legs around a sphere; run forward."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from trot.envs.entry import Entries, past_actions
from trot.envs.start import SMALL_TURN, Start
from trot.envs.task import ASSETS, Task
from trot.envs.torso import Torso, measure_torso, torso_entries, torso_observation
from trot.sim.state import State

FALLEN_HEIGHT = 0.27


class Ant(Task[Torso]):
    """Paid for speed along x, for staying level and turned to the target, and for height."""

    summary = "four legs around a sphere: run forward"
    robot = ASSETS / "ant.xml"
    start = Start(
        joint_q=(0.0, 0.0, 0.75, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0),
        position_noise=0.1,
        angle_noise=SMALL_TURN,
        joint_noise=0.2,
        velocity_noise=0.25,
    )

    def measure(self, state: State) -> Torso:
        return measure_torso(state, target_distance=10_000)

    def observation(self, measured: Torso, previous_action: Tensor) -> dict[str, Tensor]:
        return {**torso_observation(measured), "previous_action": previous_action}

    def observation_entries(self) -> Entries:
        return {**torso_entries(self.model), "previous_action": past_actions(self.model.actuator_name)}

    def reward_terms(self, measured: Torso, action: Tensor) -> dict[str, Tensor]:
        return {
            "forward": measured.forward_speed,
            "up": 0.1 * measured.up,
            "heading": measured.heading,
            "height": measured.height - FALLEN_HEIGHT,
        }

    def fallen(self, measured: Torso) -> Tensor:
        return measured.height < FALLEN_HEIGHT

    def looks_fallen(self, observation: Mapping[str, Tensor]) -> Tensor:
        return observation["height"] < FALLEN_HEIGHT
