"""Two seconds of a robot left to itself: does it stay finite, does its energy grow, does it come to rest?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trot.sim.contact_forces import contact_forces
from trot.sim.diagnose import check_finite
from trot.sim.model import Floats, JointType, Model
from trot.sim.notes import listed
from trot.sim.pose import Pose
from trot.sim.settled_start import SettledStart, ground_depths, settled_start
from trot.sim.state import State
from trot.sim.step import step

SECONDS = 2.0
AT_REST = 0.05
"""m/s or rad/s below which all dofs of a robot are at rest."""
GROWTH = 0.05
"""Of the largest energy of motion, which the integrator may add on the way."""
DEEP = 0.1
"""m in the ground, which is worth a word."""


@dataclass(frozen=True)
class Drop:
    """What became of it."""

    substeps: int
    start: SettledStart
    held: bool
    """Whether servos held the default pose."""
    energy_growth: float | None
    """The most that it ever had above what it began with, as a share of the largest energy of motion; None where
    muscles, springs of ball joints, bonds, gravcomp or controls that cannot be zero give it more."""
    last_speed: float
    """The largest rate of a dof at the end, m/s or rad/s."""
    last_dof: str
    largest_speed: float
    largest_dof: str
    depth: float
    """The deepest that it ever was in the ground, m."""
    deepest_shape: str

    @property
    def passes(self) -> bool:
        return self.energy_growth is None or self.energy_growth <= GROWTH

    def sentence(self) -> str:
        """For a reader: how it began, and what became of it."""
        turned, lifted = self.start.turned, self.start.lifted
        moved = f", {listed('joint', turned)} moved to the nearest limit" if turned else ""
        moved += f", lifted {lifted:.3g} m out of the ground" if lifted else ""
        controls = "servos holding it, other controls zero" if self.held else "controls zero"
        rest = "comes to rest" if self.last_speed < AT_REST else f"still moves at the end ({self.last_dof})"
        told = [
            f"{SECONDS:g} s from the default pose{moved}, {controls}, {self.substeps} substeps: finite",
            self._energy(),
            rest,
            f"fastest {self.largest_speed:.3g} m/s or rad/s ({self.largest_dof})",
        ]
        if self.depth > 0:
            told.append(f"deepest {1e3 * self.depth:.2g} mm in the ground ({self.deepest_shape})")
        return "; ".join(told)

    def _energy(self) -> str:
        if self.energy_growth is None:
            return "energy not judged"
        if not self.passes:
            return f"ENERGY GROWS by {100 * self.energy_growth:.0f} %"
        if self.energy_growth > 0.01:
            return f"energy grows by {100 * self.energy_growth:.0f} % only"
        return "energy does not grow"

    def advice(self) -> str | None:
        """What to do about what it found."""
        if not self.passes:
            return "energy comes from nowhere: raise substeps, or begin at a pose where nothing overlaps (keyframe)."
        if self.depth > DEEP:
            return "it sinks in: raise the contact stiffness (contact=, or the geoms' user), or start it lower."
        return None


@torch.no_grad()
def drop_test(model: Model, control_dt: float, substeps: int) -> Drop:
    """Let it go from its settled start, with zero controls but for servos, which hold it. In float64.

    Raises NonFiniteError where it blows up.
    """
    pose, start = Pose(model), settled_start(model)
    state = start.state(model, 1)
    control, held, calm = _controls(model, start.joint_q)
    pose.move(*_numbers(state))
    begin = most = sum(pose.energies()) + _stored(model, pose, state)
    liveliest, fastest, deepest = 0.0, np.zeros(model.num_dofs), np.zeros(model.num_points)
    for _ in range(round(SECONDS / control_dt)):
        following = step(model, state, control, control_dt, substeps)
        if not bool(following.finite.all()):
            check_finite(model, state, control, control_dt, substeps)
        state = following
        pose.move(*_numbers(state))
        still, moving = pose.energies()
        most, liveliest = max(most, still + moving), max(liveliest, moving)
        fastest, deepest = np.maximum(fastest, abs(pose.data.qvel)), np.maximum(deepest, ground_depths(model, pose))
    last, point = abs(pose.data.qvel), int(deepest.argmax()) if model.num_points else None
    return Drop(
        substeps=substeps,
        start=start,
        held=held,
        energy_growth=(most - begin) / max(liveliest, 1e-12) if calm else None,
        last_speed=float(last.max()),
        last_dof=model.dof_name[last.argmax()],
        largest_speed=float(fastest.max()),
        largest_dof=model.dof_name[fastest.argmax()],
        depth=0.0 if point is None else float(deepest[point]),
        deepest_shape="" if point is None else model.shape_name[model.point_shape[point]],
    )


def _numbers(state: State) -> tuple[Floats, Floats]:
    return state.joint_q[0].numpy(), state.joint_qd[0].numpy()


def _controls(model: Model, joint_q: Floats) -> tuple[Tensor, bool, bool]:
    """Zero, or what holds a servo where it is; whether any holds, and whether none of them works on the robot."""
    wanted = np.zeros(model.num_controls)
    dof_q = {int(dof): int(q) for dof, q in zip(model.joint_dof_start, model.joint_q_start, strict=True)}
    holds = False
    for servo, actuator in enumerate(model.servo_actuator):
        drives = np.flatnonzero(model.drive_servo == servo)
        where = [model.drive_gear[i] * joint_q[dof_q.get(int(model.drive_dof[i]), 0)] for i in drives]
        length = np.array([1.0, sum(where), 0.0])
        gain, bias = float(model.servo_gain[servo] @ length), float(model.servo_bias[servo] @ length)
        wanted[actuator] = -bias / gain if gain else 0.0
        holds = holds or bool(model.servo_bias[servo, 1] < 0)
    given = wanted.clip(model.control_lower, model.control_upper)
    springy_balls = np.any(model.joint_stiffness[model.joint_type == JointType.BALL] > 0)
    uncounted = model.num_hills or model.num_acts or model.num_bonds or model.body_lift.any() or springy_balls
    calm = bool(np.allclose(given, wanted)) and not uncounted
    return torch.tensor(given).unsqueeze(0), holds, calm


def _stored(model: Model, pose: Pose, state: State) -> float:
    """In springs that MuJoCo does not have, where they are pressed from the start: contacts, limits and ties, J."""
    single = np.isin(model.joint_type, (JointType.HINGE, JointType.SLIDE))
    angle = pose.data.qpos[model.joint_q_start]
    beyond = np.maximum(model.joint_lower - angle, angle - model.joint_upper).clip(min=0) * single
    energy = float((model.joint_limit_stiffness * beyond**2).sum()) / 2
    if model.num_points:
        stiffness = model.shape_stiffness[model.point_shape]
        energy += float((stiffness * ground_depths(model, pose).clip(min=0) ** 2).sum()) / 2
    if model.num_pairs:
        forces = contact_forces(model, state).force[0, model.num_points :].norm(dim=1).numpy()
        energy += float((forces**2 / model.pair_stiffness.clip(min=1e-9)).sum()) / 2
    return energy + _stored_in_ties(model, angle)


def _stored_in_ties(model: Model, angle: Floats) -> float:
    energy = 0.0
    for tie in range(model.num_ties):
        strands = np.flatnonzero(model.strand_tie == tie)
        moved = angle[model.strand_joint[strands]] - model.strand_reference[strands]
        length = sum(
            float(np.polynomial.Polynomial(model.strand_coefficient[strand])(by))
            for strand, by in zip(strands, moved, strict=True)
        )
        for stiffness, (lower, upper) in (
            (model.tie_stiffness[tie], model.tie_rest[tie]),
            (model.tie_limit_stiffness[tie], model.tie_limits[tie]),
        ):
            energy += float(stiffness * max(lower - length, length - upper, 0.0) ** 2) / 2
    return energy
