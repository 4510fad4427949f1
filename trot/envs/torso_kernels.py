"""The laws of torso.h as two kernels, and as one differentiable operation."""

import functools
from pathlib import Path
from typing import Any

import torch
import warp as wp
from torch import Tensor
from torch.autograd.function import once_differentiable

from trot.sim.build import C_NAMES, SCALARS, module_name, start_warp
from trot.sim.launch import CUDA_LANES, RecordedLaunches, build_lock, warp_stream
from trot.sim.native import MODULE_OPTIONS, declare_source

AXES = ("x", "y", "z")

_MEASURE = """
    trot::Measure m = {num_q, num_dofs, up_axis, forward_axis, target};
    const trot::Scalar* q = (const trot::Scalar*)joint_q + (long long)world * num_q;
    const trot::Scalar* qd = (const trot::Scalar*)joint_qd + (long long)world * num_dofs;
"""
_FORWARD = f"""{_MEASURE}
    trot::Scalar* row = (trot::Scalar*)rows + (long long)world * (num_q + num_dofs);
    trot::measure(m, q, qd, row, lane, lanes);
"""
_ADJOINT = f"""{_MEASURE}
    const trot::Scalar* row_bar = (const trot::Scalar*)rows_bar + (long long)world * (num_q + num_dofs);
    trot::Scalar* q_bar = (trot::Scalar*)joint_q_bar + (long long)world * num_q;
    trot::Scalar* qd_bar = (trot::Scalar*)joint_qd_bar + (long long)world * num_dofs;
    trot::measure_adjoint(m, q, qd, row_bar, q_bar, qd_bar, lane, lanes);
"""


@functools.cache
def _define(dtype: torch.dtype) -> tuple[wp.Kernel, wp.Kernel]:
    header = (Path(__file__).parent / "torso.h").read_text(encoding="utf-8").replace("#pragma once\n", "")
    text = f"namespace trot {{\nusing Scalar = {C_NAMES[dtype]};\n{header}}}  // namespace trot\n"
    scalar, name = SCALARS[dtype], module_name(text)
    declare = declare_source(text, name)
    module = wp.get_module(name)
    module.options.update(MODULE_OPTIONS)

    @wp.func_native(_FORWARD)
    def measure_world(
        joint_q: wp.uint64, joint_qd: wp.uint64, num_q: int, num_dofs: int, target: scalar, up_axis: int,
        forward_axis: int, rows: wp.uint64, world: int, lane: int, lanes: int,
    ): ...  # fmt: skip

    @wp.func_native(_ADJOINT)
    def measure_world_adjoint(
        joint_q: wp.uint64, joint_qd: wp.uint64, num_q: int, num_dofs: int, target: scalar, up_axis: int,
        forward_axis: int, rows_bar: wp.uint64, joint_q_bar: wp.uint64, joint_qd_bar: wp.uint64, world: int, lane: int,
        lanes: int,
    ): ...  # fmt: skip

    @wp.kernel(module=module, grid_stride=False)
    def forward(
        joint_q: wp.uint64, joint_qd: wp.uint64, num_q: int, num_dofs: int, target: scalar, up_axis: int,
        forward_axis: int, rows: wp.uint64, lanes: int,
    ):  # fmt: skip
        thread = wp.tid()
        declare()
        measure_world(
            joint_q, joint_qd, num_q, num_dofs, target, up_axis, forward_axis, rows, thread / lanes, thread % lanes,
            lanes,
        )  # fmt: skip

    @wp.kernel(module=module, grid_stride=False)
    def adjoint(
        joint_q: wp.uint64, joint_qd: wp.uint64, num_q: int, num_dofs: int, target: scalar, up_axis: int,
        forward_axis: int, rows_bar: wp.uint64, joint_q_bar: wp.uint64, joint_qd_bar: wp.uint64, lanes: int,
    ):  # fmt: skip
        thread = wp.tid()
        declare()
        measure_world_adjoint(
            joint_q, joint_qd, num_q, num_dofs, target, up_axis, forward_axis, rows_bar, joint_q_bar, joint_qd_bar,
            thread / lanes, thread % lanes, lanes,
        )  # fmt: skip

    return forward, adjoint


_recorded = RecordedLaunches()


def _launch(which: int, joint_q: Tensor, joint_qd: Tensor, setting: list[Any], others: list[Tensor]) -> None:
    """Run the forward (0) or the adjoint (1) kernel on every world."""
    with build_lock:
        start_warp()
        kernel = _define(joint_q.dtype)[which]
    device = joint_q.device
    lanes = CUDA_LANES if device.type == "cuda" else 1
    inputs = [joint_q.data_ptr(), joint_qd.data_ptr(), joint_q.shape[1], joint_qd.shape[1], *setting]
    inputs += [*(tensor.data_ptr() for tensor in others), lanes]
    command = _recorded.command(kernel, 0, inputs, len(joint_q) * lanes, None, wp.device_from_torch(device))
    command.launch(stream=warp_stream(device) if device.type == "cuda" else None)


class _Measure(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, joint_q: Tensor, joint_qd: Tensor, setting: list[Any]) -> Tensor:
        joint_q, joint_qd = joint_q.contiguous(), joint_qd.contiguous()
        ctx.save_for_backward(joint_q, joint_qd)
        ctx.setting = setting
        rows = joint_q.new_empty(len(joint_q), joint_q.shape[1] + joint_qd.shape[1])
        _launch(0, joint_q, joint_qd, setting, [rows])
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, rows_bar: Tensor) -> tuple[Tensor, Tensor, None]:
        joint_q, joint_qd = ctx.saved_tensors
        joint_q_bar, joint_qd_bar = torch.empty_like(joint_q), torch.empty_like(joint_qd)
        _launch(1, joint_q, joint_qd, ctx.setting, [rows_bar.contiguous(), joint_q_bar, joint_qd_bar])
        return joint_q_bar, joint_qd_bar, None


def torso_rows(joint_q: Tensor, joint_qd: Tensor, target: float, up_axis: str, forward_axis: str) -> Tensor:
    """The columns that torso.h describes."""
    _check(joint_q, joint_qd, (up_axis, forward_axis))
    rows: Tensor = _Measure.apply(joint_q, joint_qd, [target, AXES.index(up_axis), AXES.index(forward_axis)])  # type: ignore[no-untyped-call]
    return rows


def _check(joint_q: Tensor, joint_qd: Tensor, axes: tuple[str, str]) -> None:
    """Kernels see addresses only: what does not fit must be told before."""
    if joint_q.dim() != 2 or joint_qd.dim() != 2 or len(joint_q) != len(joint_qd):
        raise ValueError(f"both must have one row per world: {_shapes(joint_q, joint_qd)}")
    if joint_q.shape[1] < 7 or joint_qd.shape[1] < 6:
        raise ValueError(f"only of a robot whose first joint is free is there a torso: {_shapes(joint_q, joint_qd)}")
    if joint_q.dtype not in SCALARS or joint_qd.dtype != joint_q.dtype or joint_qd.device != joint_q.device:
        raise ValueError(
            f"joint_q is {joint_q.dtype} on {joint_q.device}, joint_qd {joint_qd.dtype} on {joint_qd.device}: "
            "both must be float32 or both float64, on one device"
        )
    for axis in axes:
        if axis not in AXES:
            raise ValueError(f"an axis is x, y or z, not {axis!r}")


def _shapes(joint_q: Tensor, joint_qd: Tensor) -> str:
    return f"joint_q is {tuple(joint_q.shape)} and joint_qd {tuple(joint_qd.shape)}"
