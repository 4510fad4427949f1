"""Newton's solvers with penalty contacts and gradients: Featherstone and semi-implicit."""

from __future__ import annotations

from typing import Any

import newton
import numpy as np
import warp as wp

from bench.peer import Case, Numbers
from bench.peers_newton import HINGE, SLIDE, Newton

DAMPING_DEPTH = 0.01
"""m: trot's contacts are damped in proportion to their depth, Newton's are not; as deep as this they are alike."""
SPHERE, CAPSULE, BOX = 2, 3, 6
POINTS = {SPHERE: 1, CAPSULE: 2, BOX: 4}
"""Contacts with the ground of a geom of this type, by MuJoCo's number."""


class NewtonPenalty(Newton):
    """A window on one tape, captured with its backward pass in one graph; the file's constants, as trot has them."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.tape: Any = None
        self.gradient_graph: Any = None

    def set_ground(self, one: newton.ModelBuilder) -> None:
        stiffness, damping, friction = self.mujoco.geom_user[self.mujoco.geom_bodyid > 0][0][:3]
        shape = one.default_shape_cfg
        shape.ke, shape.kd, shape.kf = float(stiffness), DAMPING_DEPTH * float(damping), float(friction)

    def build(self) -> newton.ModelBuilder:
        one = super().build()
        for joint, dof in enumerate(self.mujoco.jnt_dofadr):
            if self.mujoco.jnt_type[joint] in (SLIDE, HINGE):
                one.joint_limit_ke[dof] = float(self.mujoco.jnt_user[joint][0])
                one.joint_limit_kd[dof] = 0.0
                one.joint_target_ke[dof] = float(np.ravel(self.mujoco.jnt_stiffness[joint])[0])
        return one

    def make_pipeline(self, model: newton.Model) -> Any:
        kinds = self.mujoco.geom_type[self.mujoco.geom_bodyid > 0]
        most = self.case.worlds * sum(POINTS.get(int(kind), 0) for kind in kinds)
        return newton.CollisionPipeline(model, broad_phase="explicit", rigid_contact_max=most, soft_contact_max=0)

    def settings(self) -> str:
        return f"{type(self.solver).__name__}, penalty contacts, float32, graph of the window"

    def gradient(self) -> None:
        with wp.ScopedDevice(self.case.device):
            if self.gradient_graph is None:
                self._prepare()
                self._tape_roll()
                with wp.ScopedCapture() as capture:
                    self._tape_roll()
                self.gradient_graph = capture.graph
            wp.capture_launch(self.gradient_graph)

    def control_gradient(self) -> Numbers:
        by_force = [command.joint_f.grad.numpy().reshape(self.case.worlds, -1) for command in self.kept_commands]
        return np.asarray(np.stack(by_force)[:, :, self.motor_dofs] * self.gears, float)

    def _prepare(self) -> None:
        """A model, states and contacts of their own for every substep, as the tape must find them again."""
        self.worlds.requires_grad = True
        model = self.worlds.finalize(device=self.case.device, requires_grad=True)
        self.kept_solver, self.kept_start = self.make_solver(model), self.start_state(model)
        self.kept_states = [model.state() for _ in range(self._substeps() + 1)]
        self.kept_pipeline = self.make_pipeline(model)
        self.kept_contacts = [self.kept_pipeline.contacts() for _ in self.case.controls]
        self.kept_commands = self.make_commands(model, requires_grad=True)
        self.seeds = self.loss_gradient(self.kept_states[-1])

    def _tape_roll(self) -> None:
        if self.tape is not None:
            # Its gradients would be added to.
            self.tape.zero()
        self.tape = wp.Tape()  # type: ignore[no-untyped-call]
        self.copy_start(self.kept_start, self.kept_states[0])
        at = 0
        with self.tape:
            for command, contacts in zip(self.kept_commands, self.kept_contacts, strict=True):
                self.kept_pipeline.collide(self.kept_states[at], contacts)
                for _ in range(self.case.substeps):
                    before, after = self.kept_states[at : at + 2]
                    before.clear_forces()
                    self.before_substep(at)
                    self.kept_solver.step(before, after, command, contacts, self.case.substep_dt)
                    at += 1
        self.tape.backward(grads=self.seeds)

    def before_substep(self, substep: int) -> None:
        """While the tape is recorded."""

    def loss_gradient(self, end: newton.State) -> dict[Any, Any]:
        """Of the sum of the last positions."""
        return {end.joint_q: wp.ones_like(end.joint_q, requires_grad=False)}


class NewtonFeatherstone(NewtonPenalty):
    """One solver for the whole tape, as its documentation has it."""

    def make_solver(self, model: newton.Model) -> Any:
        return newton.solvers.SolverFeatherstone(model)


class NewtonFeatherstoneKept(NewtonFeatherstone):
    """With matrices of its own for every substep: the tape reads them, and one solver overwrites its own."""

    def _prepare(self) -> None:
        super()._prepare()
        solver = self.kept_solver
        self.matrices = [
            {name: wp.zeros_like(getattr(solver, name), requires_grad=True) for name in "MJPHL"}
            for _ in range(self._substeps())
        ]

    def before_substep(self, substep: int) -> None:
        for name, matrix in self.matrices[substep].items():
            setattr(self.kept_solver, name, matrix)

    def settings(self) -> str:
        return f"{super().settings()}, matrices of every substep kept"


class NewtonSemiImplicit(NewtonPenalty):
    """In maximal coordinates: bodies held together by springs."""

    def make_solver(self, model: newton.Model) -> Any:
        return newton.solvers.SolverSemiImplicit(model)

    def positions(self) -> Numbers:
        last = self.states[self._substeps() % 2]
        poses = np.asarray(last.body_q.numpy(), float).reshape(self.case.worlds, -1, 7)
        return poses[:, :, :3].reshape(self.case.worlds, -1)

    def heights(self) -> Numbers:
        # A planar robot's joint counts from where the file has its body; a free one's from the ground.
        planar = self.mujoco.jnt_type[0] == SLIDE
        return self.positions()[:, 2] - (self.mujoco.body_pos[1][2] if planar else 0.0)

    def loss_gradient(self, end: newton.State) -> dict[Any, Any]:
        # Of a pose: the place counts, the quaternion does not.
        return {end.body_q: wp.array(np.tile([1, 1, 1, 0, 0, 0, 0], (len(end.body_q), 1)), dtype=wp.transform)}
