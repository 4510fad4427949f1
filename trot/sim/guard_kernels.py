"""The guard on CUDA: one kernel sets worlds aside that blew up, another silences their gradients."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from trot.sim.arguments import Argument, ArgumentGroup
from trot.sim.native_rows import RowKernels, RowProgram

_WIDTHS = ("q", "qd", "activation", "action", "control", "parameter")
_GUARDING = ArgumentGroup(
    "Guarding",
    (
        Argument("bound", "Scalar", "beyond it a number counts as blown up"),
        *(Argument(f"{name}_width", "int", "numbers in a row") for name in _WIDTHS),
    ),
)
_MOVED = ArgumentGroup(
    "Moved",
    (
        Argument("joint_q", "Scalar*", "changed in place", ("rows", "q_width")),
        Argument("joint_qd", "Scalar*", "likewise", ("rows", "qd_width")),
        Argument("activation", "Scalar*", "likewise", ("rows", "activation_width"), optional=True),
        Argument("nominal_q", "const Scalar*", "of all worlds", ("one", "q_width")),
        Argument("action", "const Scalar*", "read", ("rows", "action_width"), optional=True),
        Argument("action_taken", "Scalar*", "written", ("rows", "action_width"), optional=True),
        Argument("sound", "bool*", "written", ("rows", "one")),
    ),
)
_SILENCED = ArgumentGroup(
    "Silenced",
    (
        Argument("joint_q_bar", "Scalar*", "changed in place", ("rows", "q_width"), optional=True),
        Argument("joint_qd_bar", "Scalar*", "likewise", ("rows", "qd_width"), optional=True),
        Argument("activation_bar", "Scalar*", "likewise", ("rows", "activation_width"), optional=True),
        Argument("control_bar", "Scalar*", "likewise", ("rows", "control_width"), optional=True),
        Argument("parameter_bar", "Scalar*", "likewise", ("rows", "parameter_width"), optional=True),
        Argument("action_taken_bar", "const Scalar*", "read", ("rows", "action_width"), optional=True),
        Argument("action_bar", "Scalar*", "written", ("rows", "action_width"), optional=True),
        Argument("sound", "const bool*", "read", ("rows", "one")),
    ),
)
_kernels = RowKernels(
    Path(__file__).parent / "guard.h",
    {
        "set_aside": RowProgram((_GUARDING, _MOVED), "trot::set_aside(guarding, moved, row, lane, lanes)"),
        "silence": RowProgram((_GUARDING, _SILENCED), "trot::silence(guarding, silenced, row, lane, lanes)"),
    },
)


def set_aside(
    nominal_q: Tensor, bound: float, joint_q: Tensor, joint_qd: Tensor, activation: Tensor | None, action: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Which worlds are sound, and the actions, zeros in the others. Of these the state is replaced in place."""
    rows = len(joint_q)
    sound = torch.empty(rows, 1, dtype=torch.bool, device=joint_q.device)
    action = None if action is None else action.contiguous()
    action_taken = None if action is None else torch.empty_like(action)
    tensors = {
        "joint_q": joint_q,
        "joint_qd": joint_qd,
        "activation": activation,
        "nominal_q": nominal_q,
        "action": action,
        "action_taken": action_taken,
        "sound": sound,
    }
    widths = {"q": joint_q, "qd": joint_qd, "activation": activation, "action": action}
    _kernels.launch("set_aside", joint_q, rows, _numbers(widths, bound), tensors)
    return sound, action_taken


def silence(sound: Tensor, bars: dict[str, Tensor | None], action_taken_bar: Tensor | None) -> Tensor | None:
    """Zeros in place in the derivatives of worlds that are not sound; returns that by the action.

    Of joint_q, joint_qd, activation, control and parameter, by name.
    """
    like = next(bar for bar in (*bars.values(), action_taken_bar) if bar is not None)
    action_bar = None
    if action_taken_bar is not None:
        action_taken_bar = action_taken_bar.contiguous()
        action_bar = torch.empty_like(action_taken_bar)
    tensors = {
        **{f"{name}_bar": bar for name, bar in bars.items()},
        "action_taken_bar": action_taken_bar,
        "action_bar": action_bar,
        "sound": sound,
    }
    widths = {**bars, "action": action_bar, "q": bars["joint_q"], "qd": bars["joint_qd"]}
    _kernels.launch("silence", like, len(sound), _numbers(widths, 0.0), tensors)
    return action_bar


def _numbers(tensors: dict[str, Tensor | None], bound: float) -> dict[str, float]:
    given = {name: tensors.get(name) for name in _WIDTHS}
    widths = {f"{name}_width": 0 if tensor is None else tensor.shape[1] for name, tensor in given.items()}
    return {"bound": bound, "one": 1, **widths}
