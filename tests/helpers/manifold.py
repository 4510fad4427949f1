"""Moving about in joint_q, whose quaternions are no vectors: lively states, small steps, and derivatives by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mujoco
import numpy as np

from trot.sim.model import WORLD, JointType, Model


def quaternions(model: Model) -> list[tuple[slice, slice]]:
    """Where each quaternion stands in joint_q, and its three dofs in joint_qd."""
    found = []
    for kind, q, dof in zip(model.joint_type, model.joint_q_start, model.joint_dof_start, strict=True):
        if kind in (JointType.FREE, JointType.BALL):
            skip = 3 if kind == JointType.FREE else 0
            found.append((slice(q + skip, q + skip + 4), slice(dof + skip, dof + skip + 3)))
    return found


def plain_dofs(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates that are plain numbers, and their dofs."""
    q, dof = np.ones(model.num_q, bool), np.ones(model.num_dofs, bool)
    for where_q, where_dof in quaternions(model):
        q[where_q], dof[where_dof] = False, False
    return np.flatnonzero(q), np.flatnonzero(dof)


def quat_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    aw, av, bw, bv = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    w = aw * bw - (av * bv).sum(-1, keepdims=True)
    return np.concatenate([w, aw * bv + bw * av + np.cross(av, bv)], axis=-1)


def quat_exp(turn: np.ndarray) -> np.ndarray:
    """The unit quaternion that turns by a rotation vector."""
    half = np.linalg.norm(turn, axis=-1, keepdims=True) / 2
    return np.concatenate([np.cos(half), turn / 2 * np.sinc(half / np.pi)], axis=-1)


def integrate(model: Model, joint_q: np.ndarray, tangent: np.ndarray) -> np.ndarray:
    """joint_q moved by one number per dof: added to plain coordinates, a turn in body axes to quaternions."""
    moved = np.array(joint_q, np.float64)
    q, dof = plain_dofs(model)
    moved[:, q] += tangent[:, dof]
    for where_q, where_dof in quaternions(model):
        moved[:, where_q] = quat_product(moved[:, where_q], quat_exp(tangent[:, where_dof]))
    return moved


def to_tangent(model: Model, joint_q: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """A gradient in joint_q's own numbers as one number per dof: r changes a quaternion by q (0, r) / 2."""
    tangent = np.zeros((len(joint_q), model.num_dofs))
    q, dof = plain_dofs(model)
    tangent[:, dof] = grad[:, q]
    for where_q, where_dof in quaternions(model):
        for k, unit in enumerate(np.eye(4)[1:]):
            change = quat_product(joint_q[:, where_q], unit[None]) / 2
            tangent[:, where_dof.start + k] = (grad[:, where_q] * change).sum(axis=1)
    return tangent


class Derivative(NamedTuple):
    """A finite difference and, from the same values, a bound on what a kink or curvature nearby makes it wrong by."""

    value: np.ndarray
    doubt: np.ndarray


def central_difference(
    function: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    step: float | np.ndarray = 1e-5,
    *,
    move: Callable[[np.ndarray, np.ndarray], np.ndarray] = np.add,
    directions: np.ndarray | None = None,
) -> Derivative:
    """Derivatives of function(x) in each world: (num_worlds, num_directions).

    function takes (k * num_worlds, ...), the worlds k times over, and gives one number per row. move(x, change) is how
    x changes; directions, (num_directions, num_worlds, width), are the unit vectors of all numbers of x if not given.
    step may differ per direction.

    Differences over one and two steps are extrapolated (the error is then of fourth order). Where a slope jumps by J a
    distance a < 2 steps away, the result is wrong by at most J / 2, and so are first and second differences over one
    step and over two. What these disagree by, together, exceeds that error whatever a is: it is the doubt.
    """
    if directions is None:
        width = x.shape[1]
        directions = np.broadcast_to(np.eye(width)[:, None], (width, len(x), width))
    h = np.broadcast_to(np.reshape(step, (-1, 1)), (len(directions), 1))
    change = directions * h[..., None]
    moved = [move(np.concatenate([x] * len(change)), k * change.reshape(-1, change.shape[2])) for k in (2, 1, -1, -2)]
    values = function(np.concatenate([*moved, x]))
    up2, up, down, down2 = values[: -len(x)].reshape(4, len(change), len(x))
    here = values[-len(x) :]
    once, twice = (up - down) / (2 * h), (up2 - down2) / (4 * h)
    bend_once, bend_twice = (up - 2 * here + down) / h, (up2 - 2 * here + down2) / (2 * h)
    doubt = abs(once - twice) + abs(bend_twice - 2 * bend_once)
    return Derivative((4 * once - twice).T / 3, doubt.T)


def least_doubtful(derivatives: list[Derivative]) -> Derivative:
    """Of several differences of the same function, with other steps, for each number the one with the least doubt."""
    value, doubt = (np.array([derivative[k] for derivative in derivatives]) for k in (0, 1))
    best = doubt.argmin(axis=0)[None]
    return Derivative(np.take_along_axis(value, best, 0)[0], np.take_along_axis(doubt, best, 0)[0])


def point_heights(model: Model, joint_q: np.ndarray) -> np.ndarray:
    """How high the lowest bit of every contact point is above the ground, by MuJoCo's kinematics."""
    assert model.ground_height is not None
    data = mujoco.MjData(model.source)
    body = np.array([model.source.body(name).id for name in model.body_name])[model.shape_body[model.point_shape]]
    heights = np.zeros((len(joint_q), model.num_points))
    for world, q in enumerate(joint_q):
        data.qpos[:] = q
        mujoco.mj_kinematics(model.source, data)
        centre = np.einsum("pij,pj->pi", data.xmat[body].reshape(-1, 3, 3), model.point_pos) + data.xpos[body]
        heights[world] = centre[:, 2] - model.point_radius - model.ground_height
    return heights


def lively_states(
    model: Model, num_worlds: int, rng: np.random.Generator, speed: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """joint_q and joint_qd that are nowhere special.

    Joints lie up to a fifth of their range beyond their limits; those without are turned by any angle.
    A robot that can be lifted stands with its lowest point within 5 cm of the ground, above or below.
    """
    joint_q = integrate(
        model, np.tile(model.q_reference, (num_worlds, 1)), rng.normal(0, 0.4, (num_worlds, model.num_dofs))
    )
    for joint in range(model.num_joints):
        kind, low, high = model.joint_type[joint], model.joint_lower[joint], model.joint_upper[joint]
        first = model.joint_q_start[joint]
        # Evenly spread over the worlds, so that every limit is exceeded in some.
        spread = 1.4 * (rng.permutation(num_worlds) + rng.random(num_worlds)) / num_worlds - 0.2
        if kind in (JointType.HINGE, JointType.SLIDE):
            if np.isfinite(low) and np.isfinite(high):
                joint_q[:, first] = low + spread * (high - low)
        else:
            axis = rng.normal(size=(num_worlds, 3))
            axis /= np.linalg.norm(axis, axis=1, keepdims=True)
            largest = min(high, np.pi) if kind == JointType.BALL else np.pi
            first += 3 if kind == JointType.FREE else 0
            joint_q[:, first : first + 4] = quat_exp(spread[:, None] * largest * axis)
    lift = _lifting_coordinate(model)
    if lift is not None and model.num_points:
        lifted = model.shape_body[model.point_shape] < _end_of_first_root(model)
        joint_q[:, lift] += rng.uniform(-0.05, 0.05, num_worlds) - point_heights(model, joint_q)[:, lifted].min(axis=1)
    return joint_q, speed * rng.normal(size=(num_worlds, model.num_dofs))


def _lifting_coordinate(model: Model) -> int | None:
    """The coordinate that raises the first root and all it carries, if there is one."""
    if model.ground_height is None:
        return None
    for joint in np.flatnonzero(model.joint_body == 0):
        if model.joint_type[joint] == JointType.FREE:
            return int(model.joint_q_start[joint]) + 2
        # Slides of a planar robot act before it turns, so their axes stand as the file draws them.
        upright = model.joint_axis[joint, 2] == 1 and np.array_equal(model.body_quat[0], [1, 0, 0, 0])
        if model.joint_type[joint] == JointType.SLIDE and upright:
            return int(model.joint_q_start[joint])
    return None


def _end_of_first_root(model: Model) -> int:
    """Past the last body that the first one carries."""
    return int(np.append(np.flatnonzero(model.body_parent == WORLD), model.num_bodies)[1])
