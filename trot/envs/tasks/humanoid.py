"""Humanoid: a human figure driven by 21 torques; run forward."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from trot.envs.entry import Entries, past_actions
from trot.envs.start import SMALL_TURN, Start
from trot.envs.task import ASSETS, Task
from trot.envs.torso import Torso, height_bonus, measure_torso, squared_norm, torso_entries, torso_observation
from trot.sim.state import State

FALLEN_HEIGHT = 0.74


class Humanoid(Task[Torso]):
    """Paid for speed along x, for an upright trunk turned to the target and held high, and for little effort."""

    summary = "a human figure with 21 motors: run forward"
    robot = ASSETS / "humanoid.xml"
    start = Start(
        joint_q=(0.0, 0.0, 1.35, 1.0, *[0.0] * 24),
        position_noise=0.1,
        angle_noise=SMALL_TURN,
        joint_noise=0.2,
        velocity_noise=0.25,
    )
    substeps = 48

    def measure(self, state: State) -> Torso:
        return measure_torso(state, target_distance=200)

    def observation(self, measured: Torso, previous_action: Tensor) -> dict[str, Tensor]:
        return {**torso_observation(measured), "previous_action": previous_action}

    def observation_entries(self) -> Entries:
        return {**torso_entries(self.model), "previous_action": past_actions(self.model.actuator_name)}

    def reward_terms(self, measured: Torso, action: Tensor) -> dict[str, Tensor]:
        return {
            "forward": measured.forward_speed,
            "up": 0.1 * measured.up,
            "heading": measured.heading,
            "height": height_bonus(measured.height, wanted=0.84, reach=0.1, gain=10),
            "effort": -0.002 * squared_norm(action),
        }

    def fallen(self, measured: Torso) -> Tensor:
        return measured.height < FALLEN_HEIGHT

    def looks_fallen(self, observation: Mapping[str, Tensor]) -> Tensor:
        return observation["height"] < FALLEN_HEIGHT
