"""Worlds with physics of their own, drawn anew for every episode: what a policy must bear to run on hardware."""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor

from trot.envs.streams import Streams, uniform
from trot.sim.model import Model
from trot.sim.parameters import Parameters, columns

Range = tuple[float, float]


@dataclass(frozen=True)
class Randomize:
    """Ranges of factors on the robot's own figures, drawn uniformly; (1, 1) leaves a figure as it is."""

    friction: Range = (1.0, 1.0)
    """Coulomb's coefficient: one factor per world."""
    mass: Range = (1.0, 1.0)
    """Masses, and inertias with them: one factor per body and world."""
    motor_strength: Range = (1.0, 1.0)
    """Force of motors and muscles: one factor per actuator and world."""

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = getattr(self, field.name)
            if not 0 < low <= high < float("inf"):
                raise ValueError(f"randomize.{field.name} is ({low}, {high}); give 0 < low <= high, factors around 1")

    def draw(self, model: Model, count: int, generator: Streams, like: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters as the kernels read them, (count, ...), and strengths (count, num_controls).

        Several generators share the rows: those of the first come before those of the second.
        """
        if self.motor_strength != (1.0, 1.0) and model.num_servos:
            name = model.actuator_name[model.servo_actuator[0]]
            raise ValueError(
                f"randomize.motor_strength multiplies controls, but that of actuator '{name}' is no force: it is a "
                "servo. Leave it at (1, 1)."
            )
        where = columns(model)
        parameter = Parameters().pack(model, 1, like).repeat(count, 1)
        parameter[:, where["body_mass"]] *= _between(self.mass, (count, model.num_bodies), generator, like)
        grip = _between(self.friction, (count, 1), generator, like)
        for name in ("friction", "pair_friction"):
            if name in where:
                parameter[:, where[name]] *= grip
        strength = _between(self.motor_strength, (count, model.num_controls), generator, like)
        return parameter, strength


def _between(bounds: Range, shape: tuple[int, ...], generator: Streams, like: Tensor) -> Tensor:
    low, high = bounds
    return low + (high - low) * uniform(shape, generator, like)
