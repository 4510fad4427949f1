"""Worlds with physics of their own, drawn anew for every episode: what a policy must bear to run on hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from trot.envs.streams import Streams, uniform
from trot.sim.model import Model
from trot.sim.parameters import Parameters, columns

Range = tuple[float, float]

FACTORS = ("friction", "mass", "motor_strength")
"""Fields of Randomize that change the physics."""


@dataclass(frozen=True)
class Randomize:
    """What differs from world to world and from episode to episode; nothing unless it is asked for.

    Friction, mass and strength are ranges of factors on the robot's own figures, drawn uniformly; (1, 1) leaves a
    figure as it is.
    """

    friction: Range = (1.0, 1.0)
    """Coulomb's coefficient: one factor per world."""
    mass: Range = (1.0, 1.0)
    """Masses, and inertias with them: one factor per body and world."""
    motor_strength: Range = (1.0, 1.0)
    """Force of motors and muscles: one factor per actuator and world."""
    push_interval: float = 0.0
    """Seconds between two pushes, on average; 0: nobody pushes."""
    push_speed: float = 0.0
    """How much a push changes the velocity of the first body along each axis at most, m/s."""
    push_turning: float = 0.0
    """How much it changes its angular velocity about each axis at most, rad/s."""
    observation_noise: tuple[float, ...] | dict[str, float] = ()
    """Deviations of normal noise, in the units of the observation: one for all entries, one for each entry, or one for
    each part by its name."""
    action_delay: tuple[int, int] = (0, 0)
    """Control steps between an action and the moment it is carried out, the least and the most: one per world."""

    def __post_init__(self) -> None:
        for name in FACTORS:
            low, high = getattr(self, name)
            if not 0 < low <= high < float("inf"):
                raise ValueError(f"randomize.{name} is ({low}, {high}); give 0 < low <= high, factors around 1")
        for name in ("push_interval", "push_speed", "push_turning"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"randomize.{name} is {getattr(self, name)}; give a number of at least 0")
        if (self.push_interval > 0) != (self.push_speed > 0 or self.push_turning > 0):
            raise ValueError(
                "randomize.push_interval says how often, randomize.push_speed and push_turning how much: pushes take "
                f"both, not ({self.push_interval}, {self.push_speed}, {self.push_turning})"
            )
        noise = self.observation_noise
        for deviation in noise.values() if isinstance(noise, dict) else noise:
            if not 0 <= deviation < float("inf"):
                raise ValueError(f"randomize.observation_noise has {deviation}; give deviations of at least 0")
        least, most = self.action_delay
        if not all(isinstance(steps, int) for steps in (least, most)) or not 0 <= least <= most:
            raise ValueError(f"randomize.action_delay is ({least}, {most}); give whole steps, 0 <= least <= most")

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> Randomize:
        """From what asdict() gave, and JSON made of it."""
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()
        }
        return cls(**given)

    @property
    def changes_physics(self) -> bool:
        """Whether worlds have figures of their own."""
        return any(getattr(self, name) != (1.0, 1.0) for name in FACTORS)

    @property
    def disturbs(self) -> bool:
        """Whether there are pushes, noise or a delay."""
        return self.push_interval > 0 or bool(self.observation_noise) or self.action_delay[1] > 0

    def with_own_physics(self) -> Randomize:
        """The same pushes, noise and delay on a robot with its own figures."""
        return replace(self, friction=(1.0, 1.0), mass=(1.0, 1.0), motor_strength=(1.0, 1.0))

    def deviations(self, layout: Mapping[str, slice]) -> tuple[float, ...]:
        """Of the noise on each entry of an observation with these parts; ValueError where they do not fit it."""
        noise, count = self.observation_noise, sum(part.stop - part.start for part in layout.values())
        if isinstance(noise, dict):
            if unknown := [name for name in noise if name not in layout]:
                raise ValueError(
                    f"randomize.observation_noise: the observation has no part '{unknown[0]}'; it has: "
                    f"{', '.join(layout)}"
                )
            return tuple(noise.get(name, 0.0) for name, part in layout.items() for _ in range(part.start, part.stop))
        if len(noise) not in (0, 1, count):
            raise ValueError(
                f"randomize.observation_noise has {len(noise)} numbers, the observation {count} entries; give one for "
                "all, or one for each"
            )
        return noise * count if len(noise) == 1 else noise or (0.0,) * count

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
