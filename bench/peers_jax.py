"""The simulators written in JAX: MJX and Brax's generalized pipeline."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from bench.peer import Case, Numbers, Peer


class JaxPeer(Peer):
    """A window is one jitted function: a scan over control steps of a scan over substeps, each over all worlds.

    The backward pass computes each control step again; kept instead, every substep of a window would lie in memory.
    """

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        jax.config.update("jax_enable_x64", case.double)
        if case.device == "cuda" and jax.default_backend() != "gpu":
            raise RuntimeError(f"JAX has no GPU here, it would use the {jax.default_backend()}")
        self.system = self.load()
        self.start = (self._array(case.joint_q), self._array(case.joint_qd))
        self.controls = self._array(case.controls)
        self.run = jax.jit(partial(self._window, lambda step: step))
        again = partial(self._window, jax.checkpoint)
        self.run_gradient = jax.jit(jax.grad(lambda *given: again(*given).sum()))
        self.end = self.gradients = jnp.zeros(0)

    @abstractmethod
    def load(self) -> Any:
        """The robot as this simulator has it."""

    @abstractmethod
    def begin(self, system: Any, joint_q: Any, joint_qd: Any) -> Any:
        """The state of one world."""

    @abstractmethod
    def substep(self, system: Any, state: Any, control: Any) -> Any:
        """The next state of one world."""

    @abstractmethod
    def joint_q(self, state: Any) -> Any:
        """Positions of a state."""

    def _window(self, wrap: Callable[[Any], Any], controls: Any, system: Any, start: Any) -> Any:
        def control_step(state: Any, control: Any) -> Any:
            def one(state: Any, _: None) -> Any:
                return jax.vmap(self.substep, (None, 0, 0))(system, state, control), None

            return jax.lax.scan(one, state, None, length=self.case.substeps)

        state = jax.vmap(self.begin, (None, 0, 0))(system, *start)
        return self.joint_q(jax.lax.scan(wrap(control_step), state, controls)[0])

    def forward(self) -> None:
        self.end = self.run(self.controls, self.system, self.start).block_until_ready()

    def gradient(self) -> None:
        self.gradients = self.run_gradient(self.controls, self.system, self.start).block_until_ready()

    def positions(self) -> Numbers:
        return np.asarray(self.end, float)

    def control_gradient(self) -> Numbers:
        return np.asarray(self.gradients, float)

    def set_controls(self, controls: Numbers) -> None:
        self.controls = self._array(controls)

    def _array(self, values: Numbers) -> Any:
        return jnp.asarray(values, jnp.float64 if self.case.double else jnp.float32)

    def _precision(self) -> str:
        return f"{'float64' if self.case.double else 'float32'}, jax {jax.__version__}"


class Mjx(JaxPeer):
    """Forward alone. Its worlds wait for the slowest, so it is given fewer iterations than the file's 100."""

    iterations, line_search = 4, 8

    def load(self) -> Any:
        from mujoco import mjx

        model = self.case.compiled()
        model.opt.iterations, model.opt.ls_iterations = self.iterations, self.line_search
        self.step, self.blank = mjx.step, mjx.make_data(model, impl="jax")
        return mjx.put_model(model, impl="jax")

    def settings(self) -> str:
        return (
            f"Euler, Newton, iterations {self.iterations}, of its line search {self.line_search}, {self._precision()}"
        )

    def begin(self, system: Any, joint_q: Any, joint_qd: Any) -> Any:
        return self.blank.replace(qpos=joint_q, qvel=joint_qd)

    def substep(self, system: Any, state: Any, control: Any) -> Any:
        return self.step(system, state.replace(ctrl=control))

    def joint_q(self, state: Any) -> Any:
        return state.qpos


class MjxGradient(Mjx):
    """With one iteration of its solver: JAX cannot go backward through the loop that more of them take."""

    iterations, line_search = 1, 4


class Brax(JaxPeer):
    """Its generalized pipeline, with more iterations than its own files take: with 4 or 8 the Ant sinks."""

    iterations, line_search, inverse_iterations = 16, 15, 10

    def load(self) -> Any:
        from brax.generalized import pipeline
        from brax.io import mjcf

        self.pipeline = pipeline
        system = mjcf.load(self.case.robot_file).replace(
            solver_iterations=self.iterations, solver_maxls=self.line_search,
            matrix_inv_iterations=self.inverse_iterations,
        )  # fmt: skip
        return system.tree_replace({"opt.timestep": self.case.substep_dt})

    def settings(self) -> str:
        return f"generalized, semi-implicit Euler, {self.iterations} iterations, {self._precision()}"

    def begin(self, system: Any, joint_q: Any, joint_qd: Any) -> Any:
        return self.pipeline.init(system, joint_q, joint_qd)

    def substep(self, system: Any, state: Any, control: Any) -> Any:
        return self.pipeline.step(system, state, control)

    def joint_q(self, state: Any) -> Any:
        return state.q
