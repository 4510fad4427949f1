"""The differentiable step: one PyTorch operation per control step, all substeps in one kernel launch each way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trot.sim.build import SCALARS, Variant
from trot.sim.launch import Launcher, launcher
from trot.sim.model import Model
from trot.sim.parameters import Parameters
from trot.sim.state import State


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
    a muscle takes activation in [0, 1]; each is clamped to its range. Gradients flow to state, control and parameters.
    The result's `finite` flag tells, when read, which worlds hold a NaN; check_finite() names where it began.
    """
    check_inputs(model, state, control, control_dt, substeps)
    packed, run = prepare(model, state, parameters)
    inputs = [state.joint_q, state.joint_qd, control] + ([] if packed is None else [packed])
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    next_q, next_qd = _Step.apply(run, control_dt, substeps, keep, state.joint_q, state.joint_qd, control, packed)  # type: ignore[no-untyped-call]
    return State(next_q, next_qd)


def prepare(model: Model, state: State, parameters: Parameters | None) -> tuple[Tensor | None, Launcher]:
    """The parameters as the kernel reads them, and the kernels for this state's precision and device."""
    joint_q = state.joint_q
    if not isinstance(parameters, Parameters | None):
        raise TypeError(f"parameters must be a trot.Parameters, not {type(parameters).__name__}")
    packed = None if parameters is None else parameters.pack(model, state.num_worlds, joint_q)
    variant = Variant(joint_q.dtype, per_world_parameters=packed is not None, store_factor=joint_q.is_cuda)
    return packed, launcher(model, variant, joint_q.device)


@dataclass
class Pass:
    """One control step through the kernels: its input tensors, its results, and the trajectory between them."""

    run: Launcher
    control_dt: float
    substeps: int
    joint_q: Tensor
    joint_qd: Tensor
    control: Tensor
    parameter: Tensor | None
    next_q: Tensor | None = None
    trajectory: Tensor | None = None

    def __post_init__(self) -> None:
        # Kernels get addresses: rows must lie one after the other.
        self.joint_q, self.joint_qd = self.joint_q.contiguous(), self.joint_qd.contiguous()
        self.control = self.control.contiguous()
        self.num_worlds = self.joint_q.shape[0]

    def forward(self, keep: bool) -> tuple[Tensor, Tensor]:
        """The next joint_q and joint_qd. With `keep`, what the backward pass needs stays in self.trajectory."""
        self.next_q, next_qd = torch.empty_like(self.joint_q), torch.empty_like(self.joint_qd)
        self.trajectory = self.run.new_trajectory(self.num_worlds, self.substeps) if keep else None
        self.run.forward(self._arguments(next_qd), self.run.num_blocks(self.num_worlds), self.substeps)
        return self.next_q, next_qd

    def backward(self, next_q_bar: Tensor, next_qd_bar: Tensor, tangent: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Derivatives after the step to derivatives before it: joint_q, joint_qd, control, parameters.

        With `tangent`, those of joint_q have one number per dof, and there may be several rows per world: row
        k * padded + world, where padded is num_worlds rounded up to whole blocks.
        """
        rows = next_qd_bar.shape[0]
        next_q_bar, next_qd_bar = next_q_bar.contiguous(), next_qd_bar.contiguous()
        joint_q_bar, joint_qd_bar = torch.empty_like(next_q_bar), torch.empty_like(next_qd_bar)
        control_bar = next_qd_bar.new_empty(rows, self.control.shape[1])
        parameter_bar = next_qd_bar.new_empty(rows, 0 if self.parameter is None else self.parameter.shape[1])
        addresses = [next_q_bar, next_qd_bar, joint_q_bar, joint_qd_bar, control_bar, parameter_bar]
        tail = [rows, self.run.num_blocks(self.num_worlds), int(tangent)]
        arguments = [*self._arguments(None), *(tensor.data_ptr() for tensor in addresses), *tail]
        self.run.backward(arguments, self.run.num_blocks(rows), self.substeps)
        return joint_q_bar, joint_qd_bar, control_bar, parameter_bar

    def _arguments(self, next_qd: Tensor | None) -> list[Any]:
        """As both kernels list them, from joint_q to substep_dt."""
        inputs = (self.joint_q, self.joint_qd, self.control, self.parameter)
        addresses = [_address(tensor) for tensor in (*inputs, self.next_q, next_qd, self.trajectory)]
        parameter_rows = 0 if self.parameter is None else self.parameter.shape[0]
        return [*addresses, self.num_worlds, parameter_rows, self.substeps, self.control_dt / self.substeps]


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


class _Step(torch.autograd.Function):
    """Border between PyTorch and the kernels. Results are fresh tensors, and the same code runs without gradients."""

    @staticmethod
    def forward(
        ctx: Any, run: Launcher, control_dt: float, substeps: int, keep: bool,
        joint_q: Tensor, joint_qd: Tensor, control: Tensor, parameter: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        ran = Pass(run, control_dt, substeps, joint_q, joint_qd, control, parameter)
        next_q, next_qd = ran.forward(keep)
        if keep:
            ctx.call = (run, control_dt, substeps)
            ctx.save_for_backward(ran.joint_q, ran.joint_qd, ran.control, parameter, next_q, ran.trajectory)
        return next_q, next_qd

    @staticmethod
    def backward(ctx: Any, next_q_bar: Tensor, next_qd_bar: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "trot.step has first derivatives only; create_graph=True would give second ones that miss the physics"
            )
        joint_q, joint_qd, control, parameter, next_q, trajectory = ctx.saved_tensors
        run, control_dt, substeps = ctx.call
        ran = Pass(run, control_dt, substeps, joint_q, joint_qd, control, parameter, next_q, trajectory)
        joint_q_bar, joint_qd_bar, control_bar, parameter_bar = ran.backward(next_q_bar, next_qd_bar, tangent=False)
        if parameter is None:
            return None, None, None, None, joint_q_bar, joint_qd_bar, control_bar, None
        if parameter.shape[0] == 1:
            parameter_bar = parameter_bar.sum(dim=0, keepdim=True)
        return None, None, None, None, joint_q_bar, joint_qd_bar, control_bar, parameter_bar


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
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must be {shape} for this model and {worlds} worlds, not {tuple(tensor.shape)}")
        if tensor.dtype != joint_q.dtype:
            raise TypeError(f"{name} is {tensor.dtype} but joint_q is {joint_q.dtype}; convert one with .to(...)")
        if tensor.device != joint_q.device:
            raise ValueError(f"{name} is on {tensor.device} but joint_q is on {joint_q.device}; move one with .to(...)")
    if worlds < 1:
        raise ValueError("there must be at least one world")
    if not isinstance(substeps, int) or substeps < 1:
        raise ValueError(f"substeps must be an int of at least 1, not {substeps!r}")
    if not isinstance(control_dt, float | int) or not 0 < control_dt < float("inf"):
        raise ValueError(f"control_dt must be a positive float, in seconds, not {control_dt!r}")
    _check_control_finite(control)


def _check_control_finite(control: Tensor) -> None:
    # Looking makes the host wait for the GPU; while a graph is captured it cannot look, and State.finite tells.
    if control.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    # One bad number spoils the sum, and the sum is quick; only if it is spoilt look for the number.
    if math.isfinite(control.detach().sum().item()):
        return
    finite = control.isfinite()
    if not finite.all():
        world, actuator = (int(i) for i in (~finite).nonzero()[0])
        found = float(control[world, actuator])
        raise ValueError(f"control[{world}, {actuator}] is {found}; every control must be finite")
