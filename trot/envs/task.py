"""What a task is. Everything else (episodes, resets, gradients, seeds) belongs to Env."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from torch import Tensor

from trot.envs.start import Start
from trot.sim.load import load_model
from trot.sim.model import Model
from trot.sim.state import State

ASSETS = Path(__file__).parent / "assets"

RENAMED = {"dt": "control_dt", "horizon": "episode_length"}
"""What tasks of earlier versions may still set."""

Measured = TypeVar("Measured")


class Task(ABC, Generic[Measured]):
    """A robot, where it starts, what it sees, what it is paid for, and when it has fallen.

    Methods get all worlds at once, one row per world, and return tensors that gradients flow through. What a row gets
    must depend on that row alone: there may be more rows than worlds, those of many steps or of starts. No method may
    branch on values or move data to the CPU: masks (torch.where) instead of `if`.
    """

    summary: ClassVar[str]
    """One line for `trot tasks` and `trot try`; the class's docstring gives it where it is left out."""
    robot: ClassVar[str | os.PathLike[str]]
    """MJCF or URDF."""
    ground: ClassVar[bool] = False
    """Add the plane z = 0 where the file has none, as no URDF has."""
    floating_base: ClassVar[bool] = False
    """Give the first body a free joint."""
    start: ClassVar[Start] = Start()
    control_dt: ClassVar[float] = 1 / 60
    """Seconds between two actions."""
    substeps: ClassVar[int] = 16
    """Physics steps in that time."""
    episode_length: ClassVar[int] = 1000
    """Actions in an episode."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, renamed in RENAMED.items():
            # Left alone, the class would silently run with the default of the new name.
            if name in vars(cls):
                raise ValueError(f"{cls.__name__}.{name}: a task calls this {renamed}")
        if not hasattr(cls, "summary"):
            cls.summary = (cls.__doc__ or cls.__name__).partition("\n")[0].rstrip(".")

    def __init__(self) -> None:
        self.model = self.load_robot()
        self.name = type(self).__name__
        """What make_env() and the commands know it by."""

    @property
    def num_actions(self) -> int:
        return self.model.num_controls

    def load_robot(self) -> Model:
        if not hasattr(self, "robot"):
            raise ValueError(f"{type(self).__name__} has no robot: set it to the path of an MJCF or URDF file")
        return load_once(os.fspath(self.robot), self.ground, self.floating_base)

    def control(self, action: Tensor) -> Tensor:
        """Actions, (worlds, num_actions) in [-1, 1], to the controls of the robot's actuators."""
        return action

    @abstractmethod
    def measure(self, state: State) -> Measured:
        """What observation, reward and fallen are made of, computed once. Scalars as columns, (worlds, 1)."""

    @abstractmethod
    def observation(self, measured: Measured, previous_action: Tensor) -> dict[str, Tensor]:
        """Named parts, (worlds, width) each; Env joins them in this order."""

    @abstractmethod
    def reward_terms(self, measured: Measured, action: Tensor) -> dict[str, Tensor]:
        """Named terms, (worlds, 1) or (worlds,) each, after the step that `action` led to; their sum is the reward."""

    def fallen(self, measured: Measured) -> Tensor | None:
        """Where an episode ends early, (worlds, 1) or (worlds,); None where nothing can fall."""
        return None


@functools.cache
def load_once(robot: str, ground: bool, floating_base: bool) -> Model:
    """Environments of the same robot share its model and so its compiled kernels."""
    return load_model(robot, ground=ground, floating_base=floating_base)
