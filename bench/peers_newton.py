"""Newton: MuJoCo's solver in it, and its own two that have gradients."""

from __future__ import annotations

from typing import Any

import newton
import numpy as np
import warp as wp

from bench.peer import Case, Numbers, Peer

FREE, _BALL, SLIDE, HINGE = range(4)
"""Joint types by MuJoCo's numbers."""


class Newton(Peer):
    """The whole window in one graph; contacts are found once in a control step."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        wp.config.log_level = wp.LOG_ERROR
        self.mujoco = case.compiled()
        actuated = self.mujoco.actuator_trnid[:, 0]
        self.motor_dofs, self.gears = self.mujoco.jnt_dofadr[actuated], self.mujoco.actuator_gear[:, 0]
        with wp.ScopedDevice(case.device):
            self.worlds = newton.ModelBuilder()
            self.worlds.replicate(self.build(), case.worlds)
            self.model = self.worlds.finalize(device=case.device)
            self.solver = self.make_solver(self.model)
            self.start = self.start_state(self.model)
            self.states = (self.model.state(), self.model.state())
            self.pipeline = self.make_pipeline(self.model)
            self.contacts = self.pipeline and self.pipeline.contacts()
            self.commands = self.make_commands(self.model, requires_grad=False)
            # Once before, so that nothing is built while the graph is captured.
            self._roll()
            with wp.ScopedCapture() as capture:
                self._roll()
            self.graph: Any = capture.graph

    def build(self) -> newton.ModelBuilder:
        """The robot of one world."""
        one = newton.ModelBuilder()
        newton.solvers.SolverMuJoCo.register_custom_attributes(one)
        self.set_ground(one)
        one.add_mjcf(self.case.robot_file, parse_visuals=False)
        if (one.joint_coord_count, one.joint_dof_count) != (self.mujoco.nq, self.mujoco.nv):
            raise RuntimeError("Newton reads other joints from this file than MuJoCo does")
        return one

    def set_ground(self, one: newton.ModelBuilder) -> None:
        """Before the file is read."""

    def make_solver(self, model: newton.Model) -> Any:
        raise NotImplementedError

    def make_pipeline(self, model: newton.Model) -> Any:
        """What finds contacts, where the solver does not."""
        return None

    def start_state(self, model: newton.Model) -> newton.State:
        """Newton's layout: quaternions end with w, a free joint moves its mass centre and turns in the world."""
        joint_q, joint_qd = self.case.joint_q.copy(), self.case.joint_qd.copy()
        for kind, body, at, dof in zip(
            self.mujoco.jnt_type, self.mujoco.jnt_bodyid, self.mujoco.jnt_qposadr, self.mujoco.jnt_dofadr, strict=True
        ):
            if kind == FREE:
                turn = joint_q[:, at + 3 : at + 7].copy()
                joint_q[:, at + 3 : at + 7] = np.roll(turn, -1, axis=1)
                spin = _rotate(turn, joint_qd[:, dof + 3 : dof + 6])
                joint_qd[:, dof + 3 : dof + 6] = spin
                joint_qd[:, dof : dof + 3] += np.cross(spin, _rotate(turn, self.mujoco.body_ipos[body]))
        state = model.state()
        state.joint_q.assign(joint_q.astype(np.float32).ravel())
        state.joint_qd.assign(joint_qd.astype(np.float32).ravel())
        newton.eval_fk(model, state.joint_q, state.joint_qd, state)
        return state

    def make_commands(self, model: newton.Model, requires_grad: bool) -> list[newton.Control]:
        commands = []
        for control in self.case.controls:
            command = model.control(clone_variables=False)
            command.joint_f = wp.array(self._forces(control), dtype=float, requires_grad=requires_grad)
            commands.append(command)
        return commands

    def synchronize(self) -> None:
        wp.synchronize_device(self.case.device)

    def forward(self) -> None:
        wp.capture_launch(self.graph)

    def positions(self) -> Numbers:
        # An even number of substeps ends where it began.
        last = self.states[self._substeps() % 2]
        return np.asarray(last.joint_q.numpy(), float).reshape(self.case.worlds, -1)

    def set_controls(self, controls: Numbers) -> None:
        for command, control in zip(self.commands, controls, strict=True):
            command.joint_f.assign(self._forces(control))

    def copy_start(self, start: newton.State, to: newton.State) -> None:
        for name in ("joint_q", "joint_qd", "body_q", "body_qd"):
            wp.copy(getattr(to, name), getattr(start, name))

    def _roll(self) -> None:
        before, after = self.states
        self.copy_start(self.start, before)
        for command in self.commands:
            if self.pipeline:
                self.pipeline.collide(before, self.contacts)
            for _ in range(self.case.substeps):
                before.clear_forces()
                self.solver.step(before, after, command, self.contacts, self.case.substep_dt)
                before, after = after, before

    def _substeps(self) -> int:
        return len(self.case.controls) * self.case.substeps

    def _forces(self, control: Numbers) -> Any:
        forces = np.zeros((self.case.worlds, self.mujoco.nv), np.float32)
        forces[:, self.motor_dofs] = self.gears * control
        return forces.ravel()


class NewtonMujoco(Newton):
    """MuJoCo Warp as Newton calls it: forward alone."""

    def make_solver(self, model: newton.Model) -> Any:
        from bench.peers_warp import contact_room

        self.contact_room, self.rows = contact_room(self.case)
        return newton.solvers.SolverMuJoCo(model, integrator="euler", nconmax=self.contact_room, njmax=self.rows)

    def settings(self) -> str:
        room = f"room for {self.contact_room} contacts and {self.rows} rows"
        return f"SolverMuJoCo, Euler, float32, graph of the window, {room}"


def _rotate(quaternions: Numbers, vectors: Numbers) -> Numbers:
    """By quaternions that begin with w."""
    w, axis = quaternions[:, :1], quaternions[:, 1:]
    twice = 2 * np.cross(axis, vectors)
    return np.asarray(vectors + w * twice + np.cross(axis, twice))
