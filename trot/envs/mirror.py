"""The mirror image of a robot and its task: what happens on its left happens on its right.

The plane is that of x and z, through the first body. Which joint is the partner of which, MuJoCo's pose of the start
tells; the partners of actions and of the observation's entries are found by trying. At the end all of it is tried
together: mirrored worlds must move, see, earn and fall as mirror images.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trot.envs.constants import constant
from trot.envs.env import Env
from trot.envs.rotation import multiply, rotate_back
from trot.envs.situation import Situation, as_columns
from trot.envs.task import Task
from trot.sim.model import JointType
from trot.sim.pose import Pose
from trot.sim.state import State

SAMPLES = 64
"""Random states that are tried together with their mirror images."""
SAME_PLACE = 1e-4
"""m between a joint and the mirror image of its partner."""
CLOSE = 0.1
"""Largest difference between mirror images, as a share of the column's size: measured robots are not quite the same on
both sides."""
TINY = 1e-6
"""What counts as nothing."""
PUSH = 0.5
"""The action that is tried alone."""


@dataclass(frozen=True)
class Mirror:
    """Where the entries of a mirrored vector come from: places counted from 1, negative where the sign changes."""

    observation: tuple[int, ...]
    action: tuple[int, ...]


def mirror_matrix(places: tuple[int, ...], like: Tensor) -> Tensor:
    """What a row is multiplied by from the right to be mirrored: in each column a single 1 or -1.

    With the dtype and on the device of `like`. The tensor is shared, and copied there once: do not write to it.
    """
    return _mirror_matrix(places, like.dtype, like.device)


@functools.cache
def _mirror_matrix(places: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    matrix = torch.zeros(len(places), len(places), dtype=dtype)
    for column, place in enumerate(places):
        matrix[abs(place) - 1, column] = 1.0 if place > 0 else -1.0
    return matrix.to(device)


@torch.no_grad()
def find_mirror(env: Env) -> Mirror:
    """For the environment's task. ValueError names what is not its own mirror image."""
    task, like = env.task, torch.zeros((), dtype=env.dtype, device=env.device)
    states = _MirroredStates(task, task.start.draw(task.model, 1, None, like))
    action = _actions(env, states)
    return Mirror(_try_all(env, states, action), action)


def _refused(task: Task[Any], reason: str) -> ValueError:
    return ValueError(f"the task '{task.name}' has no mirror image: {reason}. Train it without --symmetric")


class _MirroredStates:
    """How states are mirrored, so that the nominal start is its own image."""

    def __init__(self, task: Task[Any], nominal: State) -> None:
        kinds = [JointType(int(kind)) for kind in task.model.joint_type]
        if not kinds or kinds[0] != JointType.FREE:
            raise _refused(task, "its first joint is not free")
        for name, kind in zip(task.model.joint_name[1:], kinds[1:], strict=True):
            if kind.has_quaternion:
                raise _refused(task, f"of joints besides the first, only hinges and slides are known, not '{name}'")
        self.joints = mirror_matrix(_partners(task, kinds), nominal.joint_q)
        self.start = nominal.joint_q[:, 3:7]

    def of(self, state: State) -> State:
        q, qd = state.joint_q, state.joint_qd
        rotation = multiply(_reflected(q[:, 3:7]), self._undone(len(q)))
        joint_q = torch.cat([_across(q[:, :3]), rotation, q[:, 7:] @ self.joints], dim=1)
        return State(joint_q, self.rates(qd), activation=state.activation)

    def rates(self, joint_qd: Tensor) -> Tensor:
        """A velocity of the joints, mirrored."""
        start = self.start.expand(len(joint_qd), 4)
        turning = rotate_back(_inverse(start), joint_qd[:, 3:6])
        turning = rotate_back(start, -_across(turning))
        return torch.cat([_across(joint_qd[:, :3]), turning, joint_qd[:, 6:] @ self.joints], dim=1)

    def _undone(self, rows: int) -> Tensor:
        """What turns the reflected start back into the start."""
        return multiply(_inverse(_reflected(self.start)), self.start).expand(rows, 4)


def _across(vector: Tensor) -> Tensor:
    return vector * constant((1.0, -1.0, 1.0), vector)


def _reflected(rotation: Tensor) -> Tensor:
    """Of a body whose axes are reflected too."""
    return rotation * constant((1.0, -1.0, 1.0, -1.0), rotation)


def _inverse(rotation: Tensor) -> Tensor:
    return rotation * constant((1.0, -1.0, -1.0, -1.0), rotation)


def _partners(task: Task[Any], kinds: list[JointType]) -> tuple[int, ...]:
    """For each coordinate behind the free joint's, that of its mirror image."""
    pose = Pose(task.model)
    pose.move(np.array(task.start.pose(task.model)), np.zeros(task.model.num_dofs))
    anchors, axes = (torch.from_numpy(part.copy()) for part in (pose.data.xanchor, pose.data.xaxis))
    anchors = anchors - anchors[0]
    places: list[int] = []
    for joint in range(1, len(kinds)):
        image, axis = _across(anchors[joint]), _across(axes[joint])
        # A turn goes the other way round in a mirror.
        axis = -axis if kinds[joint] == JointType.HINGE else axis
        near = (anchors - image).norm(dim=1) < SAME_PLACE
        along = axes @ axis
        found = [
            other
            for other in range(1, len(kinds))
            if near[other] and kinds[other] == kinds[joint] and abs(abs(along[other]) - 1) < SAME_PLACE
        ]
        if not found:
            raise _refused(task, f"the joint '{task.model.joint_name[joint]}' has no partner on the other side")
        places.append(found[0] if along[found[0]] > 0 else -found[0])
    return tuple(places)


def _actions(env: Env, states: _MirroredStates) -> tuple[int, ...]:
    """An action's partner is the one that does, mirrored, what it does itself from the nominal start."""
    count = env.num_actions
    alone = PUSH * torch.eye(count, dtype=env.dtype, device=env.device)
    pushed = torch.cat([alone, -alone, alone.new_zeros(1, count)])
    trial = Env(env.task, len(pushed), device=env.device, dtype=env.dtype, stochastic_start=False)
    trial.reset(seed=0)
    after = trial.step(pushed)[-1]["final_state"].joint_qd
    effects = after[:-1] - after[-1]
    mirrored, sizes = states.rates(effects[:count]), effects[:count].norm(dim=1)
    distances = torch.cdist(mirrored, effects)
    places = []
    for action in range(count):
        other = int(distances[action].argmin())
        if not distances[action, other] <= CLOSE * sizes[action]:
            name = env.task.model.actuator_name[action]
            raise _refused(env.task, f"no action does on the other side what that of '{name}' does")
        places.append(other + 1 if other < count else -(other - count + 1))
    if sorted(map(abs, places)) != list(range(1, count + 1)):
        raise _refused(env.task, "two of its actions would be the mirror image of the same one")
    return tuple(places)


def _try_all(env: Env, states: _MirroredStates, action: tuple[int, ...]) -> tuple[int, ...]:
    """Worlds beside their mirror images, for one step. Returns the partners of the observation's entries."""
    task = env.task
    trial = Env(task, 2 * SAMPLES, device=env.device, dtype=env.dtype, stochastic_start=False)
    trial.reset(seed=0)
    wide = replace(task.start, position_noise=0.1, angle_noise=0.5, joint_noise=0.2, velocity_noise=0.5)
    generator = torch.Generator(env.device).manual_seed(0)
    here = wide.draw(task.model, SAMPLES, generator, torch.zeros((), dtype=env.dtype, device=env.device))
    there = states.of(here)
    acted, before = (
        2 * torch.rand(SAMPLES, env.num_actions, generator=generator, dtype=env.dtype, device=env.device) - 1
        for _ in range(2)
    )
    mirrored = mirror_matrix(action, acted)
    joined = Situation(
        torch.cat([here.joint_q, there.joint_q]),
        torch.cat([here.joint_qd, there.joint_qd]),
        _memory_of_both(task, mirrored, generator, acted),
        activation=None if here.activation is None else torch.cat([here.activation] * 2),
    )
    before_it = trial.place(joined, torch.cat([before, before @ mirrored]))
    _, reward, terminated, _, info = trial.step(torch.cat([acted, acted @ mirrored]))
    # Both, as what is the same in all of them at first, such as a clock, need not be so later.
    seen, image = (torch.cat(part) for part in zip(before_it.chunk(2), info["final_obs"].chunk(2), strict=True))
    observation = _observation(env, seen, image)
    if not _apart(*reward.unsqueeze(1).chunk(2)) <= CLOSE:
        raise _refused(task, "mirrored worlds do not earn as mirror images")
    fell, image_fell = terminated.chunk(2)
    # Some may be just about to.
    if not (fell != image_fell).to(env.dtype).mean() <= CLOSE:
        raise _refused(task, "mirrored worlds do not fall as mirror images")
    return observation


def _memory_of_both(
    task: Task[Any], mirrored: Tensor, generator: torch.Generator, like: Tensor
) -> dict[str, Tensor]:  # fmt: skip
    """What worlds remember, and their mirror images."""
    here = as_columns(task.draw_memory(SAMPLES, generator, like))
    there = task.mirrored_memory(here, lambda action: action @ mirrored) if here else {}
    if there is None:
        raise _refused(task, "it has a memory, and no mirrored_memory() that says what this becomes")
    if there.keys() != here.keys():
        raise _refused(task, f"its mirrored_memory() must give {', '.join(here)}, and gives {', '.join(there)}")
    return {name: torch.cat([part, there[name]]) for name, part in here.items()}


def _observation(env: Env, seen: Tensor, image: Tensor) -> tuple[int, ...]:
    """For each entry of the image, the entry that it is equal to, or the negative of."""
    places = []
    for column in range(seen.shape[1]):
        same, opposite = (_apart(sign * seen, image[:, column : column + 1]) for sign in (1, -1))
        nearest = torch.minimum(same, opposite)
        # Itself where others are as near, as for an entry that never changes.
        best = column if same[column] <= nearest.min() + TINY else int(nearest.argmin())
        if not min(same[best], opposite[best]) <= CLOSE:
            raise _refused(env.task, f"entry {column} of its observation{_part(env, column)} becomes none in a mirror")
        places.append(best + 1 if same[best] <= opposite[best] else -(best + 1))
    if sorted(map(abs, places)) != list(range(1, len(places) + 1)):
        raise _refused(env.task, "two entries of its observation would be the mirror image of the same one")
    return tuple(places)


def _part(env: Env, column: int) -> str:
    names = [name for name, columns in env.observation_layout.items() if columns.start <= column < columns.stop]
    return f" ('{names[0]}')" if names else ""


def _apart(first: Tensor, second: Tensor) -> Tensor:
    """(columns,) the largest difference, as a share of the largest number."""
    size = second.abs().amax(dim=0).clamp(min=TINY)
    found: Tensor = (first - second).abs().amax(dim=0) / size
    return found
