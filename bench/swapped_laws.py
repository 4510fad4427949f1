"""A task moved by MuJoCo's dynamics, with trot's laws of contact and limits or MuJoCo's own, each chosen by itself.

trot's laws are written here once more, in NumPy, and act as applied forces; everything else is MuJoCo's. With all of
trot's laws and as many steps, a robot moves here as in trot up to rounding: then what differs between the simulators
lies in these laws alone, and they can be exchanged one at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

from trot.envs.mujoco_env import Doubles, MujocoEnv
from trot.envs.task import Task
from trot.sim.model import JointType

Law = Literal["trot", "MuJoCo"]

TIME_CONSTANT, IMPEDANCE = 0.02, 0.95
"""Of MuJoCo's contact where a file says nothing."""

ROUNDS, CLOSE = 50, 1e-3
"""Rounds over the contact points that MuJoCo's friction takes at most, and the change, N, at which they end."""

HALVINGS = 6
"""Rounds in which MuJoCo's normal forces and trot's friction are fitted to each other."""


@dataclass(frozen=True)
class Laws:
    """Whose law each force follows."""

    normal: Law = "trot"
    friction: Law = "trot"
    limits: Law = "trot"

    def __str__(self) -> str:
        swapped = [name for name, law in vars(self).items() if law == "MuJoCo"]
        return " and ".join(swapped) or "none"


@dataclass(frozen=True)
class Touches:
    """The contact points below the ground in one world, a row each."""

    jacobian: Doubles
    """(rows, 3, num_dofs)"""
    velocity: Doubles
    """(rows, 3), m/s; the last is the speed of separation."""
    depth: Doubles
    stiffness: Doubles
    damping: Doubles
    friction_stiffness: Doubles
    friction: Doubles
    """Coulomb's coefficient."""
    point: NDArray[np.intp]
    """Which of the model's."""

    def drag(self, normal: Doubles) -> Doubles:
        """Of trot's friction under these normal forces: force per sliding speed, N s/m."""
        speed = np.sqrt((self.velocity[:, :2] ** 2).sum(axis=1) + 1e-30)
        least: Doubles = np.minimum(self.friction_stiffness, self.friction * normal / speed)
        return least

    def pulled(self, drag: Doubles) -> Doubles:
        """What such friction does to every dof."""
        force: Doubles = -np.einsum("r,ri,rid->d", drag, self.velocity[:, :2], self.jacobian[:, :2])
        return force


@dataclass(frozen=True)
class Instant:
    """What acts in one world in one substep; hinges and slides have a column each."""

    touches: Touches
    normal: Doubles
    """N; zero where MuJoCo keeps normal force and friction to itself."""
    drag: Doubles
    """Of trot's friction: force per sliding speed, N s/m."""
    beyond: Doubles
    """How far each joint is below its lower limit, or, negative, above its upper one, rad or m."""
    limit_force: Doubles
    """Of trot's limits."""
    motor_force: Doubles
    rates: Doubles


class SwappedEnv(MujocoEnv):
    """MuJoCo's worlds with the laws that are asked for, in trot's substeps, for robots that touch a plane alone."""

    def __init__(
        self,
        task: Task[Any],
        num_worlds: int,
        laws: Laws,
        seed: int = 0,
        watch: Callable[[Instant], None] | None = None,
    ) -> None:
        super().__init__(task, num_worlds, seed, longest_step=task.control_dt / task.substeps)
        model, self.laws, self.watch = task.model, laws, watch
        if model.num_pairs or model.num_acts or model.ground_height is None:
            raise ValueError(f"{task.name}: laws are exchanged only where a robot without muscles stands on a plane")
        own = self._mujoco
        # trot's damping of joints is explicit.
        own.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_EULERDAMP
        if laws.limits == "trot":
            own.jnt_limited[:] = 0
        if laws.normal == "trot":
            own.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
        elif laws.friction == "trot":
            own.geom_condim[:] = 1
        self._data = [mujoco.MjData(own) for _ in range(num_worlds)]
        self._ground = model.ground_height
        bodies = np.array([own.body(name).id for name in model.body_name])
        self._point_body = bodies[model.shape_body[model.point_shape]]
        axes = np.isin(model.joint_type, (JointType.HINGE, JointType.SLIDE))
        self._axis_q, self._axis_dof = model.joint_q_start[axes], model.joint_dof_start[axes]
        self._lower, self._upper = model.joint_lower[axes], model.joint_upper[axes]
        self._limit_stiffness = model.joint_limit_stiffness[axes]
        self._limit_damping = model.joint_limit_damping[axes]

    def _move(self, data: mujoco.MjData, q: Doubles, qd: Doubles, activation: Doubles, control: Doubles) -> None:
        self._begin(data, q, qd, activation, control)
        for _ in range(self.steps_per_control):
            mujoco.mj_step1(self._mujoco, data)
            data.qfrc_applied[:] = self._forces(data)
            mujoco.mj_step2(self._mujoco, data)

    def _forces(self, data: mujoco.MjData) -> Doubles:
        """Of all of trot's laws together, on every dof."""
        laws, touches = self.laws, self._touches(data)
        beyond, limit_force = self._limits(data)
        force = np.zeros(self._mujoco.nv)
        if laws.limits == "trot":
            force[self._axis_dof] += limit_force
        normal = drag = np.zeros(len(touches.depth))
        if laws.normal == "trot":
            separating = touches.velocity[:, 2]
            normal = np.maximum(0.0, touches.depth * (touches.stiffness - touches.damping * separating))
            force += normal @ touches.jacobian[:, 2]
            if laws.friction == "trot":
                drag = touches.drag(normal)
                force += touches.pulled(drag)
            elif len(normal):
                self._accelerate(data, force)
                force += self._mujocos_friction(data, touches, normal)
        elif laws.friction == "trot" and len(normal):
            normal, drag = self._normal_under_drag(data, touches, force)
            force += touches.pulled(drag)
        if self.watch is not None:
            dofs = self._axis_dof
            mujoco.mj_fwdActuation(self._mujoco, data)
            motor_force, rates = data.qfrc_actuator[dofs], data.qvel[dofs].copy()
            self.watch(Instant(touches, normal, drag, beyond, limit_force, motor_force, rates))
        return force

    def _touches(self, data: mujoco.MjData) -> Touches:
        model = self.task.model
        rotation = data.xmat[self._point_body].reshape(-1, 3, 3)
        place = data.xpos[self._point_body] + np.einsum("pij,pj->pi", rotation, model.point_pos)
        place[:, 2] -= model.point_radius
        depth = self._ground - place[:, 2]
        point = np.flatnonzero(depth > 0)
        jacobian = np.zeros((len(point), 3, self._mujoco.nv))
        for row, one in zip(jacobian, point, strict=True):
            mujoco.mj_jac(self._mujoco, data, row, None, place[one], self._point_body[one])
        shape = model.point_shape[point]
        return Touches(
            jacobian,
            jacobian @ data.qvel,
            depth[point],
            model.shape_stiffness[shape],
            model.shape_damping[shape],
            model.shape_friction_stiffness[shape],
            model.shape_friction[shape],
            point,
        )

    def _limits(self, data: mujoco.MjData) -> tuple[Doubles, Doubles]:
        """How far joints are beyond their limits, and what trot's law makes of it."""
        q, qd = data.qpos[self._axis_q], data.qvel[self._axis_dof]
        below, above = np.maximum(self._lower - q, 0), np.maximum(q - self._upper, 0)
        stiffness, damping = self._limit_stiffness, self._limit_damping
        force = below * np.maximum(stiffness - damping * qd, 0) - above * np.maximum(stiffness + damping * qd, 0)
        return below - above, force

    def _accelerate(self, data: mujoco.MjData, applied: Doubles) -> None:
        """What MuJoCo would do with these forces: accelerations, and forces of its constraints."""
        data.qfrc_applied[:] = applied
        mujoco.mj_fwdActuation(self._mujoco, data)
        mujoco.mj_fwdAcceleration(self._mujoco, data)
        mujoco.mj_fwdConstraint(self._mujoco, data)

    def _normal_under_drag(self, data: mujoco.MjData, touches: Touches, force: Doubles) -> tuple[Doubles, Doubles]:
        """MuJoCo's normal forces and the drag of trot's friction under them.

        Friction changes how hard a foot is pressed, and by that itself, so that both are found in turn, by half steps.
        """
        self._accelerate(data, force)
        normal = self._mujocos_normal(data, touches)
        for _ in range(HALVINGS):
            self._accelerate(data, force + touches.pulled(touches.drag(normal)))
            normal = 0.5 * (normal + self._mujocos_normal(data, touches))
        return normal, touches.drag(normal)

    def _mujocos_normal(self, data: mujoco.MjData, touches: Touches) -> Doubles:
        """The normal forces of MuJoCo's contacts, each at the point of trot's that lies nearest on the same body.

        A body that touches the ground by no point of trot's has no friction of trot's, so that its force is left out.
        """
        normal, force = np.zeros(len(touches.depth)), np.zeros(6)
        bodies, points = self._point_body[touches.point], self.task.model.point_pos[touches.point]
        for index in range(data.ncon):
            contact = data.contact[index]
            mujoco.mj_contactForce(self._mujoco, data, index, force)
            body = max(self._mujoco.geom_bodyid[contact.geom])
            rotation = data.xmat[body].reshape(3, 3)
            away = np.linalg.norm(points - (contact.pos - data.xpos[body]) @ rotation, axis=1)
            if body in bodies:
                normal[np.where(bodies == body, away, np.inf).argmin()] += force[0]
        return normal

    def _mujocos_friction(self, data: mujoco.MjData, touches: Touches, normal: Doubles) -> Doubles:
        """MuJoCo's soft friction under given normal forces: what slides is to come to rest within its time constant.

        The forces minimise f (A + R) f / 2 + f (a + b v) within each point's circle, where A is the inverse of the
        mass that the points feel, a their acceleration without friction, and R makes them soft: point by point, in
        turn, until nothing changes.
        """
        jacobian = touches.jacobian[:, :2].reshape(-1, self._mujoco.nv)
        moved = np.zeros_like(jacobian)
        mujoco.mj_solveM(self._mujoco, data, moved, jacobian)
        stopping = 2 / (IMPEDANCE * max(TIME_CONSTANT, 2 * self._mujoco.opt.timestep))
        matrix = jacobian @ moved.T
        softness = np.repeat(np.diag(matrix).reshape(-1, 2).mean(axis=1), 2) * (1 - IMPEDANCE) / IMPEDANCE
        matrix += np.diag(softness)
        wanted = jacobian @ (data.qacc + stopping * data.qvel)
        force, bound = np.zeros(len(jacobian)), touches.friction * normal
        for _ in range(ROUNDS):
            before = force.copy()
            for row, most in enumerate(bound):
                own = slice(2 * row, 2 * row + 2)
                force[own] -= np.linalg.solve(matrix[own, own], wanted[own] + matrix[own] @ force)
                force[own] *= min(1.0, most / max(float(np.linalg.norm(force[own])), 1e-30))
            if np.abs(force - before).max() < CLOSE:
                break
        applied: Doubles = force @ jacobian
        return applied
