"""The mirror image of a robot and its task: what happens on its left happens on its right.

The plane is that of x and z, through the first body. Which joint is the partner of which, MuJoCo's pose of the start
tells; the partners of actions and of the observation's entries are found by trying. At the end all of it is tried
together: mirrored worlds must move, see, earn and fall as mirror images. Measured robots are not quite the same on both
sides, and a few of their parts may differ much, as toes do.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trot.envs.env import Env
from trot.envs.situation import Situation, as_columns
from trot.envs.task import Task
from trot.sim.model import Floats, JointType
from trot.sim.pose import Pose
from trot.sim.state import State

SAMPLES = 64
"""Random states that are tried together with their mirror images."""
SAME_PLACE = 0.02
"""Largest distance between a joint and the mirror image of its partner, as a share of the robot's size."""
ALIGNED = 1e-4
"""Likewise what an axis' cosine with that of its partner may lack of 1."""
CLOSE = 0.1
"""Largest difference between mirror images, as a share of the column's size."""
FEW = 0.2
"""The share of actions, and of the observation's entries, that may differ by more."""
RELATED = 0.5
"""Largest difference of these entries. Such actions have partners by name."""
SIDES = {"left": "right", "l": "r"}
"""What names say of the two sides, in lower case or not, as words of their own."""
ACROSS = (1.0, -1.0, 1.0)
"""What a place or a velocity is multiplied by to be on the other side."""
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
    states = MirroredStates(task, like)
    action = _actions(env, states)
    return Mirror(_try_all(env, states, action), action)


def _refused(task: Task[Any], reason: str) -> ValueError:
    return ValueError(f"the task '{task.name}' has no mirror image: {reason}. Train it without --symmetric")


class MirroredStates:
    """How states are mirrored, so that the nominal start is its own image: a matrix each for joint_q and joint_qd."""

    def __init__(self, task: Task[Any], like: Tensor) -> None:
        model = task.model
        kinds = [JointType(int(kind)) for kind in model.joint_type]
        if not kinds or kinds[0] != JointType.FREE:
            raise _refused(task, "its first joint is not free")
        start, pose = np.array(task.start.pose(model)), Pose(model)
        pose.move(start, np.zeros(model.num_dofs))
        q, qd = np.zeros((model.num_q, model.num_q)), np.zeros((model.num_dofs, model.num_dofs))
        for joint, (partner, sign) in enumerate(_partners(task, kinds, pose)):
            (to_q, from_q), (to_qd, from_qd) = (
                (first[joint], first[partner]) for first in (model.joint_q_start, model.joint_dof_start)
            )
            # Plain coordinates come before the quaternion, if there is one.
            plain = kinds[joint].num_plain
            across = np.diag(ACROSS) if kinds[joint] == JointType.FREE else sign * np.eye(plain)
            for matrix, to, origin in ((q, to_q, from_q), (qd, to_qd, from_qd)):
                matrix[origin : origin + plain, to : to + plain] = across
            if kinds[joint].has_quaternion:
                turn = _mirrored_turn(pose, joint, partner)
                to_q, from_q, to_qd, from_qd = (first + plain for first in (to_q, from_q, to_qd, from_qd))
                here, there = (_turning_by(start[first : first + 4]) for first in (to_q, from_q))
                away = np.block([[np.eye(1), np.zeros((1, 3))], [np.zeros((3, 1)), turn]])
                q[from_q : from_q + 4, to_q : to_q + 4] = (here @ away @ there.T).T
                qd[from_qd : from_qd + 3, to_qd : to_qd + 3] = turn.T
        self._q, self._qd = (torch.from_numpy(matrix).to(like) for matrix in (q, qd))

    def of(self, state: State) -> State:
        return State(state.joint_q @ self._q, self.rates(state.joint_qd), activation=state.activation)

    def rates(self, joint_qd: Tensor) -> Tensor:
        """A velocity of the joints, mirrored."""
        return joint_qd @ self._qd


def _partners(task: Task[Any], kinds: list[JointType], pose: Pose) -> list[tuple[int, int]]:
    """For each joint that of its mirror image, and -1 where the one grows as the other falls."""
    anchors, axes = pose.data.xanchor - pose.data.xanchor[0], pose.data.xaxis
    reach = SAME_PLACE * np.linalg.norm(anchors, axis=1).max()
    found = [(0, 1)]
    for joint in range(1, len(kinds)):
        apart = np.linalg.norm(anchors - anchors[joint] * ACROSS, axis=1)
        # A turn goes the other way round in a mirror.
        along = axes @ (axes[joint] * ACROSS) * (-1 if kinds[joint] == JointType.HINGE else 1)
        fits = (np.array(kinds) == kinds[joint]) & (kinds[joint].has_quaternion | (abs(along) > 1 - ALIGNED))
        partner = int(np.where(fits, apart, np.inf).argmin())
        if not (fits[partner] and apart[partner] <= reach):
            raise _refused(task, f"the joint '{task.model.joint_name[joint]}' has no partner on the other side")
        found.append((partner, 1 if along[partner] > 0 else -1))
    return found


def _mirrored_turn(pose: Pose, joint: int, partner: int) -> Floats:
    """From an angular velocity of the partner's body, in that body's axes, to its mirror image in those of the joint's.

    Angular velocities turn the other way round in a mirror.
    """
    here, there = (pose.data.xmat[pose.source.jnt_bodyid[which]].reshape(3, 3) for which in (joint, partner))
    turn: Floats = -here.T @ np.diag(ACROSS) @ there
    return turn


def _turning_by(quaternion: Floats) -> Floats:
    """What a quaternion, as a column, is multiplied by from the left to be turned by this one afterwards."""
    w, x, y, z = quaternion
    return np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])


def _actions(env: Env, states: MirroredStates) -> tuple[int, ...]:
    """An action's partner is the one that does, mirrored, what it does itself from the nominal start."""
    count = env.num_actions
    alone = PUSH * torch.eye(count, dtype=env.dtype, device=env.device)
    pushed = torch.cat([alone, -alone, alone.new_zeros(1, count)])
    trial = Env(env.task, len(pushed), device=env.device, dtype=env.dtype, stochastic_start=False)
    trial.reset(seed=0)
    after = trial.step(pushed)[-1]["final_state"].joint_qd
    effects = after[:-1] - after[-1]
    mirrored, sizes = states.rates(effects[:count]), effects[:count].norm(dim=1)
    # Not by the products that cdist takes instead where it can: these lose what is small.
    distances = torch.cdist(mirrored, effects, compute_mode="donot_use_mm_for_euclid_dist") / sizes.unsqueeze(1)
    nearest, alike = distances.argmin(dim=1), distances.amin(dim=1) <= CLOSE
    few = int((~alike).sum()) <= FEW * count
    names, places = list(env.task.model.actuator_name), []
    for action, name in enumerate(names):
        namesake = on_the_other_side(name)
        other = names.index(namesake) if namesake in names else None
        # The one that is called so, if it does, as others may do nearly the same.
        if other is not None and (distances[action, other] <= CLOSE or (few and not alike[action])):
            places.append(other + 1)
        elif alike[action]:
            found = int(nearest[action])
            places.append(found + 1 if found < count else -(found - count + 1))
        else:
            raise _refused(env.task, f"no action does on the other side what that of '{name}' does")
    if sorted(map(abs, places)) != list(range(1, count + 1)):
        raise _refused(env.task, "two of its actions would be the mirror image of the same one")
    return tuple(places)


def on_the_other_side(name: str) -> str | None:
    """What a part with this name is called there; None where the name does not say its side."""
    swapped = SIDES | {there: here for here, there in SIDES.items()}
    words = re.split(r"([^a-zA-Z])", name)
    if sum(word.lower() in swapped for word in words) != 1:
        return None
    return "".join(_in_case_of(word, swapped.get(word.lower(), word)) for word in words)


def _in_case_of(word: str, other: str) -> str:
    return other.upper() if word.isupper() else other.capitalize() if word.istitle() else other


def _try_all(env: Env, states: MirroredStates, action: tuple[int, ...]) -> tuple[int, ...]:
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
    places, odd = [], []
    for column in range(seen.shape[1]):
        same, opposite = (_apart(sign * seen, image[:, column : column + 1]) for sign in (1, -1))
        nearest = torch.minimum(same, opposite)
        # Itself where others are as near, as for an entry that never changes.
        best = column if same[column] <= nearest.min() + TINY else int(nearest.argmin())
        odd += [column] * (not nearest[best] <= CLOSE)
        if not nearest[best] <= RELATED or len(odd) > FEW * seen.shape[1]:
            raise _refused(env.task, f"entry {odd[0]} of its observation{_part(env, odd[0])} becomes none in a mirror")
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
