"""The arrows at a robot's feet: where the ground pushes it in a frame of a recorded motion."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from trot.view.motion.trajectory import Floats64, Trajectory

if TYPE_CHECKING:
    from trot.sim.model import Model


@functools.lru_cache(maxsize=4)
def _loaded(robot: str) -> Model:
    """With the constants of the contacts: they travel in the text's user attributes."""
    from trot.sim.load import load_model

    return load_model(robot)


def contact_forces(trajectory: Trajectory, frame: int) -> list[tuple[Floats64, Floats64]]:
    """For each world the points that the ground pushes, (k, 3), and the forces on them, (k, 3) in N; world axes."""
    # Only who wants arrows waits for PyTorch.
    import torch

    from trot.sim import contact_forces as sim
    from trot.sim.state import State

    state = State(*(torch.from_numpy(part[frame]).double() for part in (trajectory.joint_q, trajectory.joint_qd)))
    found = sim.contact_forces(_loaded(trajectory.robot), state)
    return [(point[pushed].numpy(), force[pushed].numpy()) for point, force, pushed in zip(*found, strict=True)]
