"""HalfCheetah: a planar runner with two legs; run forward."""

from __future__ import annotations

from torch import Tensor

from trot.envs.entry import Entries
from trot.envs.planar import Planar, measure_planar, planar_entries, planar_observation
from trot.envs.start import Start
from trot.envs.task import ASSETS, Task
from trot.envs.torso import squared_norm
from trot.sim.state import State


class HalfCheetah(Task[Planar]):
    """Heights are relative to 1 m above the ground."""

    summary = "a planar runner with two legs: run forward"
    robot = ASSETS / "half_cheetah.xml"
    start = Start(joint_q=(0.0, -0.2, *[0.0] * 7), joint_noise=0.1, velocity_noise=0.25)

    def measure(self, state: State) -> Planar:
        return measure_planar(state)

    def observation(self, measured: Planar, previous_action: Tensor) -> dict[str, Tensor]:
        return planar_observation(measured)

    def observation_entries(self) -> Entries:
        return planar_entries(self.model)

    def reward_terms(self, measured: Planar, action: Tensor) -> dict[str, Tensor]:
        return {"forward": measured.forward_speed, "effort": -0.1 * squared_norm(action)}
