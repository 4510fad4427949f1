"""What a task is. Everything else (episodes, resets, gradients, seeds) belongs to Env."""

from __future__ import annotations

import copy
import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from trot.envs.command import Command
from trot.envs.entry import Entries
from trot.envs.randomize import Randomize
from trot.envs.situation import Situation
from trot.envs.start import Start
from trot.own_file import file_of, load_own_file
from trot.sim.load import Loaded, load_if_changed
from trot.sim.load_options import LoadOptions, make_options
from trot.sim.model import Model
from trot.sim.step import check_times

ASSETS = Path(__file__).parent / "assets"

RENAMED = {
    "dt": "control_dt",
    "horizon": "episode_length",
    "self_collision": 'robot_options = {"self_collision": True}',
}
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
    robot_options: ClassVar[Mapping[str, Any]] = {}
    """What load_model() is given besides these two, as in {"actuators": "position", "kp": 50, "kd": 1}."""
    start: ClassVar[Start] = Start()
    control_dt: ClassVar[float] = 1 / 60
    """Seconds between two actions."""
    substeps: ClassVar[int] = 16
    """Physics steps in that time."""
    episode_length: ClassVar[int] = 1000
    """Actions in an episode."""
    randomize: ClassVar[Randomize] = Randomize()
    """Random physics, pushes, noise and delay of `trot train` unless told otherwise; Env() has what it is given."""
    commands: ClassVar[Sequence[Command]] = ()
    """Numbers in the memory that a person may set: sliders and keys of `trot play`. commanded() says how they enter."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        require_new_names(cls, cls.__name__)
        if not hasattr(cls, "summary"):
            cls.summary = (cls.__doc__ or cls.__name__).partition("\n")[0].rstrip(".")

    def __init__(self) -> None:
        self.model = self.load_robot()
        self.name = type(self).__name__
        """What make_env() and the commands know it by."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled by its file where it comes from one, so that another process finds it there."""
        spec = file_of(type(self))
        return super().__reduce_ex__(protocol) if spec is None else (_unpickled, (spec,), vars(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Task[Measured]:
        # Not by its file, which may have been edited since.
        copied = memo[id(self)] = object.__new__(type(self))
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied

    @property
    def num_actions(self) -> int:
        return self.model.num_controls

    def load_robot(self) -> Model:
        if not hasattr(self, "robot"):
            raise ValueError(f"{type(self).__name__} has no robot: set it to the path of an MJCF or URDF file")
        return load_once(os.fspath(self.robot), self.ground, self.floating_base, **self.robot_options)

    def control(self, action: Tensor, *measured: Any, **named: Any) -> Tensor:
        """Actions, (worlds, num_actions) in [-1, 1], to the controls of the robot's actuators.

        Write it as control(self, action), or as control(self, action, measured) to be given what was measured of the
        state that the step begins from, as a servo must know its angle.
        """
        return action

    def draw_memory(self, count: int, generator: torch.Generator | None, like: Tensor) -> dict[str, Tensor]:
        """What a world remembers through an episode, drawn when it begins: a command, a goal, a phase.

        Named parts, (count, width) or (count,), with the dtype and device of `like`; all of them nominal without a
        generator. measure() finds them in state.memory, as columns.
        """
        return {}

    def next_memory(self, measured: Measured, action: Tensor) -> dict[str, Tensor]:
        """What is remembered from here on, after the step that `action` led to; parts left out stay as they are.

        `measured`, like the reward, knows the memory that the step began with; the next observation knows this one.
        """
        return {}

    def mirrored_memory(
        self, memory: Mapping[str, Tensor], mirrored_action: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor] | None:
        """What a world's mirror image remembers, for symmetric policies (--symmetric): all parts, as columns.

        A command to the left becomes one to the right, and where legs take turns by a clock, it stands half a stride
        later; `mirrored_action` mirrors actions that are remembered. None: not known.
        """
        return None

    def commanded(self, values: Tensor) -> dict[str, Tensor]:
        """The parts of the memory by which these values, (worlds, len(commands)), hold until the episode ends."""
        raise ValueError(f"{type(self).__name__} has commands, but no commanded() to put them into its memory")

    @abstractmethod
    def measure(self, state: Situation) -> Measured:
        """What observation, reward and fallen are made of, computed once. Scalars as columns, (worlds, 1).

        A task without memory may say State where this says Situation.
        """

    @abstractmethod
    def observation(self, measured: Measured, previous_action: Tensor) -> dict[str, Tensor]:
        """Named parts, (worlds, width) each; Env joins them in this order."""

    def observation_entries(self) -> Entries:
        """What the entries of the observation are, part by part: `trot export` writes it down for a robot's program.

        Parts may be left out; entries of theirs that are a joint's angle or rate or a past action are found out.
        """
        return {}

    @abstractmethod
    def reward_terms(self, measured: Measured, action: Tensor) -> dict[str, Tensor]:
        """Named terms, (worlds, 1) or (worlds,) each, after the step that `action` led to; their sum is the reward."""

    def figures(self, measured: Measured) -> dict[str, Tensor]:
        """What `trot eval` tells beside the return, such as the error of a speed: (worlds, 1) or (worlds,) each.

        It tells their means over all steps.
        """
        return {}

    def fallen(self, measured: Measured) -> Tensor | None:
        """Where an episode ends early, (worlds, 1) or (worlds,); None where nothing can fall."""
        return None

    def looks_fallen(self, observation: Mapping[str, Tensor]) -> Tensor | None:
        """What fallen() says, told by the parts of an observation alone; None where they do not tell.

        Only algorithms that imagine observations (MBPO) ask for it, of tasks that can fall.
        """
        return None


def _unpickled(spec: str) -> Task[Any]:
    """A task of that file, yet without its attributes."""
    module, name = load_own_file(spec, "task")
    task: Task[Any] = object.__new__(getattr(module, name))
    return task


def require_new_names(task: object, name: str) -> None:
    """Refuse what would silently run with the default of the new name."""
    for old, renamed in RENAMED.items():
        if hasattr(task, old):
            raise ValueError(f"{name}.{old}: a task calls this {renamed}")


def require_sensible_times(task: Task[Any]) -> None:
    """Refuse a task whose steps or episodes could not be carried out."""
    name = type(task).__name__
    check_times(task.control_dt, task.substeps, f"{name}.")
    length = task.episode_length
    if not isinstance(length, Integral) or isinstance(length, bool) or not 1 <= length < 2**63:
        raise ValueError(f"{name}.episode_length must be an int of 64 bits and at least 1, not {length!r}")


def control_sees_state(task: Task[Any]) -> bool:
    """Whether the task's control() wants to be given what was measured."""
    wanted = list(inspect.signature(task.control).parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # A second argument with a default is the task's own business, unless it says that it is this.
    return any(
        parameter.kind in positional and (parameter.default is parameter.empty or parameter.name == "measured")
        for parameter in wanted[1:]
    )


def task_control(task: Task[Any], action: Tensor, state: Situation) -> Tensor:
    """Controls for a step that begins from this state."""
    return task.control(action, task.measure(state)) if control_sees_state(task) else task.control(action)


_loaded: dict[tuple[str, LoadOptions], Loaded] = {}


def load_once(robot: str, ground: bool, floating_base: bool, **others: Any) -> Model:
    """Environments of the same robot share its model and so its compiled kernels, until its files are edited."""
    # MuJoCo's compiler takes 2 to 11 ms for the robots here; what it saves is all that comes after it.
    options = make_options(ground=ground, floating_base=floating_base, **others)
    key = (robot, options)
    _loaded[key] = load_if_changed(robot, _loaded.get(key), options)
    return _loaded[key].model
