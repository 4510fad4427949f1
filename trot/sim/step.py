"""The differentiable step: one PyTorch operation per control step, all substeps in one kernel launch each way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trot.sim.build import SCALARS, Variant
from trot.sim.capturing import capturing
from trot.sim.guard import Guard, Guarded
from trot.sim.launch import Launcher, launcher_for
from trot.sim.model import Model
from trot.sim.parameters import Parameters
from trot.sim.programs import BACKWARD, FORWARD
from trot.sim.state import State
from trot.unpromised import inside_transform


def step(
    model: Model,
    state: State,
    control: Tensor,
    control_dt: float,
    substeps: int = 1,
    parameters: Parameters | None = None,
) -> State:
    """Advance every world by control_dt seconds, in equal substeps, with the controls held still.

    control is (num_worlds, model.num_controls), in the order of the file's actuators: a motor takes force before gear,
    a muscle takes its activation in [0, 1], or what its activation follows; each is clamped to its range. Gradients
    flow to state, control and parameters. The result's `finite` flag tells, when read, which worlds hold a NaN;
    check_finite() names where it began.
    """
    _refuse_transforms()
    check_inputs(model, state, control, control_dt, substeps)
    packed, run = prepare(model, state, substeps, parameters)
    physics = Physics(run, control_dt, substeps)
    next_q, next_qd, next_activation, *_ = _apply(
        physics, state.joint_q, state.joint_qd, state.activation, control, packed, None
    )
    return State(next_q, next_qd, activation=next_activation)


def guarded_step(
    physics: Physics,
    joint_q: Tensor,
    joint_qd: Tensor,
    control: Tensor,
    parameter: Tensor | None,
    activation: Tensor | None = None,
    action: Tensor | None = None,
) -> Guarded:
    """The next state, and which worlds of it are sound.

    A world that is not sound comes back at the nominal pose and at rest, and no gradient passes through its step. The
    others get exactly what step() gives them. Unlike step() it never looks at numbers, so it never waits for the GPU.
    What the control was made of is zero in such a world too, and gets no gradient there.
    """
    _refuse_transforms()
    next_q, next_qd, next_activation, sound, all_sound, taken = _apply(
        physics, joint_q, joint_qd, activation, control, parameter, action
    )
    assert sound is not None, "these physics have no guard"
    return Guarded(next_q, next_qd, next_activation, sound, all_sound, taken)


def prepare(model: Model, state: State, substeps: int, parameters: Parameters | None) -> tuple[Tensor | None, Launcher]:
    """The parameters as the kernel reads them, and the kernels for this state's precision and device."""
    joint_q = state.joint_q
    if not isinstance(parameters, Parameters | None):
        raise TypeError(f"parameters must be a trot.Parameters, not {type(parameters).__name__}")
    packed = None if parameters is None else parameters.pack(model, state.num_worlds, joint_q)
    variant = Variant(joint_q.dtype, per_world_parameters=packed is not None)
    return packed, launcher_for(model, variant, joint_q.device, state.num_worlds, substeps)


@dataclass(frozen=True, eq=False)
class Physics:
    """What stays the same from step to step."""

    run: Launcher
    control_dt: float
    substeps: int
    guard: Guard | None = None
    """Sets aside the worlds that blow up; without it they stay as they are."""


@dataclass
class Pass:
    """One control step through the kernels: its input tensors, its results, and the trajectory between them."""

    physics: Physics
    joint_q: Tensor
    joint_qd: Tensor
    control: Tensor
    parameter: Tensor | None
    next_q: Tensor | None = None
    trajectory: Tensor | None = None
    activation: Tensor | None = None

    def __post_init__(self) -> None:
        # Kernels get addresses: rows must lie one after the other.
        self.joint_q, self.joint_qd = self.joint_q.contiguous(), self.joint_qd.contiguous()
        self.control = self.control.contiguous()
        if self.activation is not None:
            self.activation = self.activation.contiguous()
        self.num_worlds = self.joint_q.shape[0]
        self.num_blocks = self.physics.run.num_blocks(self.num_worlds)

    def forward(self, keep: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """The next joint_q, joint_qd and activation. With `keep`, self.trajectory has what backward() needs."""
        run, substeps = self.physics.run, self.physics.substeps
        self.next_q, next_qd = torch.empty_like(self.joint_q), torch.empty_like(self.joint_qd)
        self.trajectory = run.new_trajectory(self.num_worlds, substeps) if keep else None
        next_activation = None if self.activation is None else torch.empty_like(self.activation)
        run.launch(FORWARD, self._numbers(), self._tensors(next_qd, next_activation), self.num_blocks, substeps)
        return self.next_q, next_qd, next_activation

    def backward(
        self, next_q_bar: Tensor, next_qd_bar: Tensor, tangent: bool, next_activation_bar: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]:
        """Derivatives after the step to derivatives before it: joint_q, joint_qd, activation, control, parameters.

        With `tangent`, those of joint_q have one number per dof, and there may be several rows per world: row
        k * padded + world, where padded is num_worlds rounded up to whole blocks.
        """
        run, rows = self.physics.run, len(next_qd_bar)
        next_q_bar, next_qd_bar = next_q_bar.contiguous(), next_qd_bar.contiguous()
        joint_q_bar, joint_qd_bar = torch.empty_like(next_q_bar), torch.empty_like(next_qd_bar)
        if next_activation_bar is not None:
            next_activation_bar = next_activation_bar.contiguous()
        activation_bar = None if next_activation_bar is None else torch.empty_like(next_activation_bar)
        control_bar = _rows_like(self.control, rows)
        parameter_bar = None if self.parameter is None else next_qd_bar.new_empty(rows, self.parameter.shape[1])
        tensors = {
            **self._tensors(None, None),
            "next_q_bar": next_q_bar,
            "next_qd_bar": next_qd_bar,
            "next_activation_bar": next_activation_bar,
            "joint_q_bar": joint_q_bar,
            "joint_qd_bar": joint_qd_bar,
            "activation_bar": activation_bar,
            "control_bar": control_bar,
            "parameter_bar": parameter_bar,
        }
        numbers = {**self._numbers(), "bar_rows": rows, "q_bar_width": next_q_bar.shape[1], "tangent": int(tangent)}
        run.launch(BACKWARD, numbers, tensors, run.num_blocks(rows), self.physics.substeps)
        return joint_q_bar, joint_qd_bar, activation_bar, control_bar, parameter_bar

    def _numbers(self) -> dict[str, float]:
        return {
            "num_worlds": self.num_worlds,
            "parameter_rows": 0 if self.parameter is None else self.parameter.shape[0],
            "num_blocks": self.num_blocks,
            "substeps": self.physics.substeps,
            "substep_dt": self.physics.control_dt / self.physics.substeps,
        }

    def _tensors(self, next_qd: Tensor | None, next_activation: Tensor | None) -> dict[str, Tensor | None]:
        return {
            "joint_q": self.joint_q,
            "joint_qd": self.joint_qd,
            "activation": self.activation,
            "control": self.control,
            "parameter": self.parameter,
            "next_q": self.next_q,
            "next_qd": next_qd,
            "next_activation": next_activation,
            "trajectory": self.trajectory,
        }


def _rows_like(tensor: Tensor, rows: int) -> Tensor:
    # PyTorch makes one of the same shape in half the time.
    return torch.empty_like(tensor) if rows == len(tensor) else tensor.new_empty(rows, tensor.shape[1])


class _Step(torch.autograd.Function):
    """Border between PyTorch and the kernels. Results are fresh tensors, and the same code runs without gradients."""

    @staticmethod
    def forward(
        ctx: Any, physics: Physics, keep: bool, joint_q: Tensor, joint_qd: Tensor, activation: Tensor | None,
        control: Tensor, parameter: Tensor | None, action: Tensor | None,
    ) -> _Applied:  # fmt: skip
        ran = Pass(physics, joint_q, joint_qd, control, parameter, activation=activation)
        next_q, next_qd, next_activation = ran.forward(keep)
        # Or PyTorch would make up a gradient of zeros by `sound`.
        ctx.set_materialize_grads(False)
        sound, all_sound = None, True
        if physics.guard is not None:
            next_q, next_qd, next_activation, sound, all_sound, action = physics.guard.take(
                next_q, next_qd, next_activation, action
            )
            ctx.mark_non_differentiable(sound)
        if keep:
            ctx.physics, ctx.all_sound = physics, all_sound
            ctx.save_for_backward(
                ran.joint_q, ran.joint_qd, ran.activation, ran.control, parameter, ran.next_q, ran.trajectory, sound
            )
        return next_q, next_qd, next_activation, sound, all_sound, action

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        raise NotImplementedError("trot.step has no forward-mode derivatives; use backward(), or trot.linearize")

    @staticmethod
    def backward(
        ctx: Any, next_q_bar: Tensor | None, next_qd_bar: Tensor | None, next_activation_bar: Tensor | None, _: None,
        __: None, action_bar: Tensor | None,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "trot.step has first derivatives only; create_graph=True would give second ones that miss the physics"
            )
        joint_q, joint_qd, activation, control, parameter, next_q, trajectory, sound = ctx.saved_tensors
        next_q_bar = torch.zeros_like(joint_q) if next_q_bar is None else next_q_bar
        next_qd_bar = torch.zeros_like(joint_qd) if next_qd_bar is None else next_qd_bar
        if activation is not None and next_activation_bar is None:
            next_activation_bar = torch.zeros_like(activation)
        ran = Pass(ctx.physics, joint_q, joint_qd, control, parameter, next_q, trajectory, activation)
        found = ran.backward(next_q_bar, next_qd_bar, tangent=False, next_activation_bar=next_activation_bar)
        gradients: list[Tensor | None] = [
            bar if wanted else None for bar, wanted in zip(found, ctx.needs_input_grad[2:], strict=False)
        ]
        if not ctx.all_sound:
            bars = dict(zip(("joint_q", "joint_qd", "activation", "control", "parameter"), gradients, strict=True))
            gradients, action_bar = ctx.physics.guard.silence(sound, bars, action_bar)
        *others, parameter_bar = gradients
        if parameter_bar is not None and parameter.shape[0] == 1:
            parameter_bar = parameter_bar.sum(dim=0, keepdim=True)
        return None, None, *others, parameter_bar, action_bar


_Applied = tuple[Tensor, Tensor, Tensor | None, Tensor | None, bool, Tensor | None]
"""The next joint_q, joint_qd and activation, which worlds are sound, whether all surely are, and the action."""


def _apply(
    physics: Physics,
    joint_q: Tensor,
    joint_qd: Tensor,
    activation: Tensor | None,
    control: Tensor,
    parameter: Tensor | None,
    action: Tensor | None,
) -> _Applied:
    keep = torch.is_grad_enabled() and (
        joint_q.requires_grad
        or joint_qd.requires_grad
        or control.requires_grad
        or (parameter is not None and parameter.requires_grad)
        or (activation is not None and activation.requires_grad)
        or (action is not None and action.requires_grad)
    )
    result: _Applied = _Step.apply(  # type: ignore[no-untyped-call]
        physics, keep, joint_q, joint_qd, activation, control, parameter, action
    )
    return result


def _refuse_transforms() -> None:
    # They hand over tensors without memory of their own, and the kernels read addresses.
    if inside_transform():
        raise NotImplementedError(
            "trot.step does not run inside torch.func (vmap, jvp, grad, jacrev ...): it takes all worlds at once, and "
            "torch.autograd.grad gives its derivatives"
        )


def check_inputs(model: Model, state: State, control: Tensor, control_dt: float, substeps: int) -> None:
    """Say what is wrong with the arguments of a step, before any kernel runs."""
    if not isinstance(model, Model):
        raise TypeError(f"model must be a trot.Model, as trot.load_model gives it, not {type(model).__name__}")
    if not isinstance(state, State):
        raise TypeError(f"state must be a trot.State, not {type(state).__name__}")
    if not isinstance(control, Tensor):
        raise TypeError(f"control must be a tensor, not {type(control).__name__}")
    joint_q, joint_qd = state.joint_q, state.joint_qd
    if joint_q.dtype not in SCALARS:
        raise TypeError(f"joint_q must be float32 or float64, not {joint_q.dtype}")
    if joint_q.device.type not in ("cpu", "cuda"):
        raise ValueError(f"joint_q is on {joint_q.device}; trot runs on cpu and cuda")
    worlds = joint_q.shape[0]
    expected = {
        "joint_q": (joint_q, (worlds, model.num_q)),
        "joint_qd": (joint_qd, (worlds, model.num_dofs)),
        "control": (control, (worlds, model.num_controls)),
    }
    if state.activation is not None:
        expected["activation"] = (state.activation, (worlds, model.num_acts))
    elif model.num_acts:
        raise ValueError(f"the state needs an activation of ({worlds}, {model.num_acts}), as default_state() gives")
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must be {shape} for this model and {worlds} worlds, not {tuple(tensor.shape)}")
        if tensor.dtype != joint_q.dtype:
            raise TypeError(f"{name} is {tensor.dtype} but joint_q is {joint_q.dtype}; convert one with .to(...)")
        if tensor.device != joint_q.device:
            raise ValueError(f"{name} is on {tensor.device} but joint_q is on {joint_q.device}; move one with .to(...)")
    if worlds < 1:
        raise ValueError("there must be at least one world")
    check_times(control_dt, substeps)
    _check_control_finite(control)


def check_times(control_dt: float, substeps: int, whose: str = "") -> None:
    """Refuse what is no time, or what a kernel could not count or tell from zero. `whose` comes before the names."""
    if not isinstance(substeps, int) or isinstance(substeps, bool) or not 1 <= substeps < 2**31:
        raise ValueError(f"{whose}substeps must be an int of 32 bits and at least 1, not {substeps!r}")
    if not isinstance(control_dt, float | int) or not 0 < control_dt < math.inf:
        raise ValueError(f"{whose}control_dt must be a positive float, in seconds, not {control_dt!r}")
    single = torch.finfo(torch.float32)
    if not single.tiny <= control_dt / substeps <= single.max:
        raise ValueError(
            f"{whose}control_dt / substeps is {control_dt / substeps!r} seconds, which single precision cannot hold"
        )


def _check_control_finite(control: Tensor) -> None:
    # Looking makes the host wait for the GPU; while a graph is captured it cannot look, and State.finite tells.
    if capturing(control.device):
        return
    # One bad number spoils the sum, and the sum is quick; only if it is spoilt look for the number.
    if math.isfinite(control.detach().sum().item()):
        return
    finite = control.isfinite()
    if not finite.all():
        world, actuator = (int(i) for i in (~finite).nonzero()[0])
        found = float(control[world, actuator])
        raise ValueError(f"control[{world}, {actuator}] is {found}; every control must be finite")
